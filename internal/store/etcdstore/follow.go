package etcdstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// This file follows a target to find foreign writes. An Apply writes a fixed-name record and its
// guard in one transaction, so both keys have one revision.

// target is the additional state of a stream of Follow.
type target struct {
	kinds  map[string]record.Token // by identity
	ids    map[string]string       // identity by fixed-name kind
	beside map[string]record.Guard // guards in the present response, by key and revision
	nudged bool
}

// Follow opens the changes of a target's collections after a position.
func (s *Store) Follow(ctx context.Context, from record.Position, toks record.Tokens) (record.Stream, error) {
	st := newStream(s)
	st.target = &target{kinds: map[string]record.Token{}, ids: map[string]string{}, beside: map[string]record.Guard{}}
	for kind, tok := range toks {
		st.target.kinds[tok.ID] = tok
		if in := s.keys(tok); in != nil {
			// Records of fixed-name kinds lie outside the namespace's prefix.
			st.own[kind] = *in
			st.target.ids[kind] = tok.ID
		}
	}
	return s.watch(ctx, from, st)
}

// Nudge writes a key that streams of Follow watch, and deletes it.
func (s *Store) Nudge(ctx context.Context) error {
	if _, err := s.conn.Put(ctx, s.at.nudge(), ""); err != nil {
		return s.readError("nudge", err)
	}
	// Leave no key behind, because it would count as content of the prefix.
	if _, err := s.conn.Delete(ctx, s.at.nudge()); err != nil {
		return s.readError("nudge", err)
	}
	return nil
}

// takeNudge reports whether there was a nudge since the last call.
func (t *target) takeNudge() bool {
	if t == nil || !t.nudged {
		return false
	}
	t.nudged = false
	return true
}

// look collects the guards in a response. A response has whole revisions, so guard and record come
// together.
func (t *target) look(at layout, events []*clientv3.Event) {
	// Guards of earlier responses belong to other revisions.
	clear(t.beside)
	for _, ev := range events {
		if what, id, name := at.split(string(ev.Kv.Key)); what == "b" && ev.Type == mvccpb.PUT {
			if e, err := open(ev.Kv.Value); err == nil {
				t.beside[besideKey(id, name, ev.Kv.ModRevision)] = e.guard
			}
		}
	}
}

func besideKey(id, name string, revision int64) string {
	return fmt.Sprintf("%s/%d/%s", id, revision, name)
}

// followed translates an event for a stream of Follow. An error ends the stream.
func (st *stream) followed(ev *clientv3.Event) (c record.Change, wall int64, ok bool, err error) {
	t, key := st.target, string(ev.Kv.Key)
	wall = time.Now().UnixMilli()
	deleted := ev.Type == mvccpb.DELETE
	for kind, in := range st.own {
		name, ours := strings.CutPrefix(key, in.Prefix)
		if !ours {
			continue
		}
		c = record.Change{Kind: kind, Key: record.StringKey(name), Delete: deleted}
		// Only an Apply writes a guard in the record's own transaction.
		if guard, applied := t.beside[besideKey(t.ids[kind], name, ev.Kv.ModRevision)]; applied {
			c.Origin, c.Guard = record.AppliedChange, guard
		}
		return c, wall, true, nil
	}
	if !strings.HasPrefix(key, st.store.at.all()) {
		return c, 0, false, nil
	}
	// The nudge is no change, but Next must return the position now.
	if key == st.store.at.nudge() {
		t.nudged = true
		return c, 0, false, nil
	}
	what, id, rest := st.store.at.split(key)
	tok, ours := t.kinds[id]
	switch {
	case !ours:
		return c, 0, false, nil
	case what == "g" && deleted:
		return c, 0, false, fmt.Errorf("%s of the target was dropped: %w", tok.Kind, record.ErrBroken)
	case what == "g":
		return record.Change{Kind: tok.Kind, Marker: string(ev.Kv.Value)}, wall, true, nil
	// A lost guard counts as a foreign change of the record.
	case what == "b" && deleted:
		return record.Change{Kind: tok.Kind, Key: record.StringKey(rest), Delete: true}, wall, true, nil
	case what != "d":
		return c, 0, false, nil
	}
	// A key of another form means that somebody else writes below our prefix.
	if c.Key, err = keyFrom(rest); err != nil {
		return c, 0, false, fmt.Errorf("%s: %w: %w", tok.Kind, record.ErrBroken, err)
	}
	c.Kind, c.Delete = tok.Kind, deleted
	if e, err := open(ev.Kv.Value); !deleted && err == nil && !e.guard.IsZero() {
		c.Origin, c.Guard = record.GuardedChange, e.guard
	}
	return c, wall, true, nil
}
