package recordio

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// Limits of one transaction. Larger batches are split between groups.
const (
	txnWrites = 2000
	txnBytes  = 24 << 20
)

// Limits of one group. A larger group would strain the server's cache in one transaction, and is
// refused.
const (
	MaxGroupWrites = 10000
	MaxGroupBytes  = 64 << 20
)

// job is a prepared batch: tokens are resolved, and documents are checked once.
type job struct {
	batch   record.Batch
	kinds   []string // in order of first use
	targets map[string]target
	groups  []plan
	// joins allows one command for several collections. In a sharded cluster their data can be on
	// different shards.
	joins   bool
	holders holders
}

type target struct {
	wire.Place
	fixed bool
	mark  string // of the token; "" for managed kinds
}

// plan is one group of a job.
type plan struct {
	*record.GroupWrite
	guard   record.Guard
	bytes   int
	layouts []wire.Layout // of live documents, by write
	refused error
}

func newJob(b record.Batch) (*job, error) {
	j := &job{batch: b, targets: make(map[string]target), groups: make([]plan, len(b.Groups))}
	for i := range b.Groups {
		g := &b.Groups[i]
		p := plan{
			GroupWrite: g,
			guard:      record.Guard{Epoch: b.Epoch, Version: g.Version},
			layouts:    make([]wire.Layout, len(g.Writes)),
		}
		// An invalid group is a bug of the caller, so the whole batch fails.
		if len(g.Writes) == 0 || g.Anchor < 0 || g.Anchor >= len(g.Writes) {
			return nil, fmt.Errorf("group %q: anchor %d of %d writes", g.Group, g.Anchor, len(g.Writes))
		}
		for k := range g.Writes {
			w := &g.Writes[k]
			if w.Key == "" {
				return nil, fmt.Errorf("group %q: a write has no key", g.Group)
			}
			if err := j.addKind(w.Kind); err != nil {
				return nil, err
			}
			// Note the first reason and go on: the other groups are written without this one.
			if err := checkKey(w.Key); err != nil && p.refused == nil {
				p.refused = fmt.Errorf("%s %s: %w", w.Kind, w.Key, err)
			}
			if w.Doc == nil {
				p.bytes += len(w.Key) + wire.MaxGuardBytes
				continue
			}
			// Only managed documents grow by a guard.
			managed, guard := !j.targets[w.Kind].fixed, 0
			if managed {
				guard = wire.GuardBytes
			}
			l, err := wire.CheckDoc(w.Doc, managed)
			if err == nil {
				err = wire.CheckSize(w.Doc, l, guard)
			}
			if err != nil && p.refused == nil {
				p.refused = fmt.Errorf("%s %s: %w", w.Kind, w.Key, err)
			}
			p.layouts[k] = l
			p.bytes += len(w.Doc) + wire.MaxGuardBytes
		}
		if p.refused == nil && (len(g.Writes) > MaxGroupWrites || p.bytes > MaxGroupBytes) {
			p.refused = fmt.Errorf("group has %d records of %d bytes, but at most %d of %d bytes can be written together",
				len(g.Writes), p.bytes, MaxGroupWrites, MaxGroupBytes)
		}
		j.groups[i] = p
	}
	return j, nil
}

// checkKey refuses an _id that is too long, or that begins with $. MongoDB cannot store the latter,
// and a query would read it as an operator and fail the whole batch.
func checkKey(k record.Key) error {
	if err := record.CheckKey(k); errors.Is(err, record.ErrLongKey) {
		return err
	}
	// The entry of such a record would look like the end of a mark.
	if wire.IsEnded(k) {
		return errors.New("a field of _id has the name " + wire.EndedField)
	}
	if bson.Type(k[0]) == bson.TypeEmbeddedDocument && len(k) > 6 && k[6] == '$' {
		return errors.New("a field of _id begins with $")
	}
	return nil
}

func (j *job) addKind(kind string) error {
	if _, ok := j.targets[kind]; ok {
		return nil
	}
	tok, ok := j.batch.Tokens[kind]
	if !ok {
		return fmt.Errorf("no token for kind %q", kind)
	}
	p, err := wire.PlaceOf(tok)
	if err != nil {
		return err
	}
	t := target{Place: p, fixed: tok.Fixed}
	if tok.Fixed {
		t.mark = tok.Mark
	}
	j.targets[kind] = t
	j.kinds = append(j.kinds, kind)
	return nil
}
