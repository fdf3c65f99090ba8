package recordio

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// This file reads several collections at one snapshot. The first find chooses the time of the
// snapshot, and the others read at that time. They do not wait for one another, because over a
// distance each wait is a round trip.

// besides is the number of finds side by side.
const besides = 8

// find is one selection of one collection.
type find struct {
	place    wire.Place
	keysOnly bool // ReadOptions.keysOnly applies: entries of a side collection are wanted whole
	guards   bool
	s        *Selection
	yield    func(doc []byte) error
}

// beside makes all finds at one snapshot, within a session. It sets o.At.
func (n *Records) beside(ctx context.Context, finds []find, o *ReadOptions) error {
	do := func(ctx context.Context, f find, o ReadOptions) (bson.Timestamp, error) {
		o.keysOnly = o.keysOnly && f.keysOnly
		o.guards = f.guards
		return n.findSelected(ctx, f.place, *f.s, o, f.yield)
	}
	// A collection that does not exist chooses no time.
	for len(finds) > 0 && o.At.IsZero() {
		at, err := do(ctx, finds[0], *o)
		if err != nil {
			return err
		}
		o.At, finds = at, finds[1:]
	}
	if len(finds) == 1 {
		_, err := do(ctx, finds[0], *o)
		return err
	}
	// One that fails does not cancel the others: a cancelled command closes its connection and leaves
	// its cursor open. Beyond the bound each of them ends with its next batch.
	var g errgroup.Group
	g.SetLimit(besides)
	for _, f := range finds {
		g.Go(func() error {
			if err := o.Bound.Take(nil); err != nil {
				return err
			}
			// A session serves one command at a time.
			session, err := n.Mongo.StartSession(options.Session().SetCausalConsistency(false))
			if err != nil {
				return fmt.Errorf("start session: %w", err)
			}
			defer session.EndSession(context.WithoutCancel(ctx))
			_, err = do(mongo.NewSessionContext(ctx, session), f, *o)
			return err
		})
	}
	return g.Wait()
}

// kindRead is the read of one kind.
type kindRead struct {
	tok     record.Token
	place   wire.Place
	s       *Selection
	set     wire.RecordSet
	entries map[record.Key]sideEntry // nil: not read
}

func newKindRead(tok record.Token, s *Selection, guards bool) (*kindRead, error) {
	p, err := wire.PlaceOf(tok)
	if err != nil {
		return nil, err
	}
	r := &kindRead{tok: tok, place: p, s: s, set: wire.RecordSet{Kind: tok.Kind, Fixed: tok.Fixed, Guards: guards}}
	if guards && tok.Fixed {
		r.entries = make(map[record.Key]sideEntry)
	}
	return r, nil
}

// finds returns the find of the documents, and that of the guards of a fixed-name kind.
func (r *kindRead) finds() []find {
	fs := []find{{place: r.place, keysOnly: true, guards: !r.tok.Fixed, s: r.s, yield: func(doc []byte) error { return r.set.Add(doc) }}}
	if r.entries == nil {
		return fs
	}
	return append(fs, find{place: wire.Place{Coll: conn.GuardsName(r.tok.Kind)}, s: r.s, yield: func(doc []byte) error {
		key, entry, err := sideEntryOf(doc)
		if err == nil && r.s.selects(key) {
			r.entries[key] = entry
		}
		return err
	}})
}

// appendTo appends the records that were read. It joins documents and guards of the same snapshot.
func (r *kindRead) appendTo(recs []record.Record) []record.Record {
	// A prefix that is not valid text finds more than was selected.
	found := slices.DeleteFunc(r.set.Records(), func(rec record.Record) bool { return !r.s.selects(rec.Key) })
	for i := range found {
		if e, ok := r.entries[found[i].Key]; ok {
			found[i].Guard = e.guard
			delete(r.entries, found[i].Key)
		}
	}
	recs = append(recs, found...)
	// A guard without a document is a tombstone.
	for key, e := range r.entries {
		recs = append(recs, e.tombstone(r.tok.Kind, key))
	}
	return recs
}
