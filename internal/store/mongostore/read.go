package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/record"
)

// Records reads and writes the records of kinds.
type Records struct {
	*Conn
	fences *Fences
}

func newRecords(c *Conn, f *Fences) *Records { return &Records{Conn: c, fences: f} }

// selections groups selectors by kind and removes those that others cover, so that no record is
// found twice.
func selections(selectors []record.Selector) (map[string]*selection, []string, error) {
	byKind := make(map[string]*selection)
	var kinds []string
	exact := make(map[string]map[record.Key]struct{})
	for _, sel := range selectors {
		s := byKind[sel.Kind]
		if s == nil {
			s = &selection{}
			byKind[sel.Kind] = s
			kinds = append(kinds, sel.Kind)
			exact[sel.Kind] = make(map[record.Key]struct{})
		}
		if sel.Key == "" {
			return nil, nil, fmt.Errorf("selector of kind %q has no key", sel.Kind)
		}
		if !sel.Prefix {
			exact[sel.Kind][sel.Key] = struct{}{}
			continue
		}
		name, ok := sel.Key.Name()
		// Prefixes select by name, and only string keys are names.
		if !ok {
			return nil, nil, fmt.Errorf("selector of kind %q: prefix %s is no string", sel.Kind, sel.Key)
		}
		s.prefixes = append(s.prefixes, name)
	}
	// Sorted, a prefix is followed by the prefixes that it covers.
	for kind, s := range byKind {
		slices.Sort(s.prefixes)
		kept := s.prefixes[:0]
		for _, p := range s.prefixes {
			if len(kept) == 0 || !strings.HasPrefix(p, kept[len(kept)-1]) {
				kept = append(kept, p)
			}
		}
		s.prefixes = kept
		// A key below a selected prefix would be returned twice.
		for k := range exact[kind] {
			if name, ok := k.Name(); !ok || !s.covers(name) {
				s.keys = append(s.keys, k)
			}
		}
	}
	return byKind, kinds, nil
}

// covers reports whether a name has one of the prefixes. They must be sorted and disjoint.
func (s *selection) covers(name string) bool {
	i, found := slices.BinarySearch(s.prefixes, name)
	return found || i > 0 && strings.HasPrefix(name, s.prefixes[i-1])
}

// selects reports whether a found key was selected. The keys must be sorted.
func (s *selection) selects(key record.Key) bool {
	if name, ok := key.Name(); ok && s.covers(name) {
		return true
	}
	_, found := slices.BinarySearch(s.keys, key)
	return found
}

// Read returns the selected records of several kinds at one snapshot. The first find chooses the
// time, not before req.NotBefore.
func (n *Records) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	byKind, kinds, err := selections(req.Select)
	if err != nil {
		return record.Snapshot{}, fmt.Errorf("read: %w", err)
	}
	for _, s := range byKind {
		slices.Sort(s.keys)
	}
	var snap record.Snapshot
	err = n.atSnapshot(ctx, req.NotBefore, func(ctx context.Context, o readOptions) error {
		// A retry starts with an empty result.
		snap = record.Snapshot{}
		o.bound, o.keysOnly = newBound(req.Bytes), req.KeysOnly
		for _, kind := range kinds {
			tok, ok := req.Tokens[kind]
			if !ok {
				return fmt.Errorf("no token for kind %q", kind)
			}
			tok.Kind = kind
			at, err := n.readKind(ctx, tok, byKind[kind], o, req.Guards, &snap)
			if err != nil {
				return err
			}
			// Read the other kinds at the same time.
			o.at = at
		}
		if o.at.IsZero() {
			// Nothing was selected, so the empty result is true at any time.
			if o.at = timestampOf(req.NotBefore); o.at.IsZero() {
				var err error
				if o.at, err = n.majorityNow(ctx); err != nil {
					return err
				}
			}
		}
		snap.Version = versionOf(o.at)
		return nil
	})
	if err != nil {
		return record.Snapshot{}, fmt.Errorf("read: %w", err)
	}
	return snap, nil
}

func (n *Records) readKind(ctx context.Context, tok record.Token, s *selection, o readOptions, guards bool, snap *record.Snapshot) (bson.Timestamp, error) {
	p, err := placeOf(tok)
	if err != nil {
		return o.at, err
	}
	rs := recordSet{kind: tok.Kind, fixed: tok.Fixed, guards: guards}
	o.guards = !tok.Fixed // a fixed-name kind has them in its side collection
	at, err := n.findSelected(ctx, p, *s, o, func(doc []byte) error { return rs.add(doc) })
	if err != nil {
		return at, err
	}
	found := rs.records()
	// A prefix that is not valid text finds more than was selected.
	found = slices.DeleteFunc(found, func(r record.Record) bool { return !s.selects(r.Key) })
	if !guards || !tok.Fixed {
		snap.Records = append(snap.Records, found...)
		return at, nil
	}
	// Join documents and guards of the same snapshot.
	o.at, o.keysOnly = at, false
	entries := make(map[record.Key]sideEntry)
	_, err = n.findSelected(ctx, place{coll: GuardsName(tok.Kind)}, *s, o, func(doc []byte) error {
		key, entry, err := sideEntryOf(doc)
		if err == nil && s.selects(key) {
			entries[key] = entry
		}
		return err
	})
	if err != nil {
		return at, err
	}
	for i := range found {
		if e, ok := entries[found[i].Key]; ok {
			found[i].Guard = e.guard
			delete(entries, found[i].Key)
		}
	}
	snap.Records = append(snap.Records, found...)
	// A guard without a document is a tombstone.
	for key, e := range entries {
		snap.Records = append(snap.Records, e.tombstone(tok.Kind, key))
	}
	return at, nil
}

// sideEntry is a side collection's entry for a key.
type sideEntry struct {
	id    bson.RawValue
	guard record.Guard
}

func sideEntryOf(doc []byte) (record.Key, sideEntry, error) {
	l, err := layoutOf(doc, false)
	if err != nil {
		return "", sideEntry{}, err
	}
	key, err := record.KeyOf(l.id)
	if err != nil {
		return "", sideEntry{}, err
	}
	e := sideEntry{id: l.id}
	e.guard, _ = guardOf(doc)
	return key, e, nil
}

// tombstone returns the record of an entry without a document. It is a tombstone even if the entry
// is not marked as one: another writer deleted the document, and the guard is still valid.
func (e sideEntry) tombstone(kind string, key record.Key) record.Record {
	return record.Record{Kind: kind, Key: key, Guard: e.guard, Tombstone: true}
}

// snapshotLimit bounds the retries for a snapshot that the server cannot provide.
const snapshotLimit = 5 * time.Second

// errSnapshot means, when wrapped, that another snapshot may work.
var errSnapshot = errors.New("snapshot is not available")

// atSnapshot calls read with a session until it has read at one snapshot not older than notBefore.
// The first find in read chooses the time.
func (n *Records) atSnapshot(ctx context.Context, notBefore record.Version, read func(context.Context, readOptions) error) error {
	session, err := n.client.StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	return retry(ctx, snapshotLimit, func() error {
		err := read(mongo.NewSessionContext(ctx, session), readOptions{snapshot: true, after: timestampOf(notBefore)})
		// Other errors do not go away with another snapshot.
		if errors.Is(err, errSnapshot) && ctx.Err() == nil {
			return err
		}
		return permanent(err)
	})
}

// classifyRead is classify for finds inside and outside transactions.
func classifyRead(what string, err error) error {
	if hasCode(err, codeSnapshotUnavailable, codeSnapshotTooOld, codeCursorNotFound, codeInvalidOptions) && !isTransient(err) {
		return fmt.Errorf("%s: %w: %w", what, errSnapshot, err)
	}
	var command mongo.CommandError
	if errors.As(err, &command) && command.Code == codeUUIDMismatch && !isTransient(err) {
		expected, _ := command.Raw.Lookup("expectedCollection").StringValueOK()
		actual, _ := command.Raw.Lookup("actualCollection").StringValueOK()
		if expected != "" && expected == actual {
			// The token is current; only the snapshot is from before the rename.
			return fmt.Errorf("%s: %w: %w", what, errSnapshot, err)
		}
	}
	return classify(what, err)
}
