package vrunner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// View is one version's namespace as handlers read and write it: kinds by name, tokens
// taken care of. A view of a version that is not active reads what the sync has brought
// there, and cannot be written.
type View struct {
	runner  *Runner
	version string
	client  record.Client
	asList  bool                // Database.ReadsAsList
	indexed map[string][]string // Database.Indexed
	hub     *hub                // nil where the database was given without a Watcher
}

// errMoved ends a handler whose version is no longer the active one; its request is run
// again on the new stack. Callers see it as record.ErrFenced.
var errMoved = fmt.Errorf("version is no longer active: %w", record.ErrFenced)

// request is what a running request knows of its permission and effects.
type request struct {
	version string // of the stack that runs it
	shows   bool   // it only reads, and ends with an answer: no stream, no controller
	epoch   uint64 // of the direction, for a stream
	pass    *pass  // nil for a request that only reads
	term    *term  // of a controller, which passes the gate for each write; nil otherwise
	moved   atomic.Bool
	effect  atomic.Bool
	lost    atomic.Bool // a stream has returned ErrLost
}

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// Get returns a live record, or record.ErrNotFound.
func (v *View) Get(ctx context.Context, kind, key string) (record.Record, error) {
	if v.readsAsList(ctx) {
		return v.getAsList(ctx, kind, key)
	}
	var rec record.Record
	err := v.read(ctx, kind, func(t record.Token) (err error) {
		rec, err = v.client.Get(ctx, t, record.StringKey(key))
		return err
	})
	if err != nil {
		return rec, err
	}
	return rec, take(memory.ReadsOf(ctx), int64(len(rec.Doc)))
}

func (v *View) getAsList(ctx context.Context, kind, key string) (record.Record, error) {
	recs, err := v.Select(ctx, []record.Selector{{Kind: kind, Key: record.StringKey(key)}}, true)
	if err != nil {
		return record.Record{}, err
	}
	if len(recs) == 0 {
		return record.Record{}, fmt.Errorf("%s %s: %w", kind, key, record.ErrNotFound)
	}
	return recs[0], nil
}

// readsAsList reports whether it is enough for a read to be as recent as a list. What is read in
// order to write, or to say that something has changed, is read linearizably.
func (v *View) readsAsList(ctx context.Context) bool {
	req := requestOf(ctx)
	return v.asList && req != nil && req.shows
}

// List returns live records of a kind in name order: those whose name has the prefix, and
// comes after after (exclusive).
func (v *View) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	recs, _, err := v.list(ctx, kind, prefix, after, limit, 0)
	return recs, err
}

// ListNames returns the names that List would return records of, alone. Some may be of records
// that were deleted.
func (v *View) ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error) {
	var names []string
	err := v.read(ctx, kind, func(t record.Token) (err error) {
		names, err = v.client.ListNames(ctx, record.ListRequest{Token: t, Prefix: prefix, After: after, Limit: limit})
		return err
	})
	return names, err
}

// Select returns the live records selected, all as they were at one moment: as recent as Get or,
// as a list, as List.
func (v *View) Select(ctx context.Context, sels []record.Selector, asList bool) ([]record.Record, error) {
	if len(sels) == 0 {
		return nil, nil
	}
	asList = asList || v.readsAsList(ctx)
	var recs []record.Record
	var kinds []string
	for _, sel := range sels {
		kinds = withKind(kinds, sel.Kind)
	}
	err := fitting(ctx, func(bytes int) (int64, error) {
		err := v.readAll(ctx, kinds, func(toks record.Tokens) (err error) {
			recs, err = v.client.Select(ctx, record.SelectRequest{Tokens: toks, Select: sels, AsList: asList, Bytes: bytes})
			return err
		})
		return sizeOf(recs), err
	})
	return recs, err
}

// read is readAll for one kind.
func (v *View) read(ctx context.Context, kind string, get func(record.Token) error) error {
	return v.readAll(ctx, []string{kind}, func(toks record.Tokens) error { return get(toks[kind]) })
}

// readAll tries the places that the record publishes for reading. When the database refuses
// all of them, the record has changed or will: wait for it. Of several kinds the present
// places are tried together, and then the next ones: while a fence has moved some of them
// and not others, the read waits for the rest.
func (v *View) readAll(ctx context.Context, kinds []string, get func(record.Tokens) error) error {
	bounded, cancel := context.WithTimeout(ctx, v.runner.cfg.HoldCap)
	defer cancel()
	for {
		d := v.runner.current()
		tries, err := v.tries(ctx, d, kinds)
		if err != nil {
			return err
		}
		for _, toks := range tries {
			err := get(toks)
			if !errors.Is(err, record.ErrFenced) {
				return err
			}
		}
		if err := v.runner.newer(bounded, d.Revision); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("read of %s/%s: %w", v.version, strings.Join(kinds, ", "), ErrHeld)
		}
	}
}

// tries are the tokens to read kinds with, those of the present places first. A kind that has
// fewer places than another stays where it is.
func (v *View) tries(ctx context.Context, d upgradestate.Deployment, kinds []string) (tries []record.Tokens, err error) {
	for _, kind := range kinds {
		places, err := v.places(ctx, d, kind)
		if err != nil {
			return nil, err
		}
		if len(places) == 0 {
			return nil, nil // sealed
		}
		for len(tries) < len(places) {
			next := record.Tokens{}
			if len(tries) > 0 {
				next = maps.Clone(tries[len(tries)-1])
			}
			tries = append(tries, next)
		}
		for n := range tries {
			tries[n][kind] = tokenOf(places[min(n, len(places)-1)])
		}
	}
	return tries, nil
}

func (v *View) places(ctx context.Context, d upgradestate.Deployment, kind string) ([]upgradestate.Place, error) {
	req := requestOf(ctx)
	if req != nil && req.version != d.CurrentVersion {
		// The stack that runs this request is no longer the active one.
		req.moved.Store(true)
		return nil, errMoved
	}
	if v.version == d.CurrentVersion {
		if ns, _ := d.Namespace(v.version); !slices.ContainsFunc(ns.Kinds, func(k upgradestate.Kind) bool { return k.Kind == kind }) {
			return nil, v.undeclared(kind) // it is not sealed: no later record has it
		}
		return upgradestate.ReadPlaces(d, v.version)[kind], nil
	}
	places := upgradestate.EnginePlaces(d, v.version)[kind]
	if len(places) == 0 || upgradestate.Retired(d, v.version) {
		return nil, v.absent(d, kind)
	}
	return places, nil
}

// undeclared is the error of a kind that the active version does not have.
func (v *View) undeclared(kind string) error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf("%s has no kind %s: name it in a transformer or in Kinds of the Version, and run controllers of the same build", v.version, kind))
}

// absent is the error of a kind that is not to be had.
func (v *View) absent(d upgradestate.Deployment, kind string) error {
	because := func(reason refusal.Reason, text string) error {
		return refusal.Because(reason, text, record.ErrNotFound, refusal.MetaVersion, upgradestate.APIVersion(v.version))
	}
	if upgradestate.Retired(d, v.version) {
		return fmt.Errorf("%s/%s is gone, %w", v.version, kind, because(refusal.VersionRetired, v.version+" is retired"))
	}
	return fmt.Errorf("%s/%s is not there yet: %w", v.version, kind, because(refusal.VersionNotReady, v.version+" has no data yet"))
}

// Write makes all mutations or none, with the tokens with which the request passed the
// gate. After record.ErrFenced the request is run again by the Runner, if it had no
// effect before. A controller's write passes the gate itself; after record.ErrFenced, of
// which ErrEnded is one, what it was made of must be read again.
func (v *View) Write(ctx context.Context, ms []record.Mutation) error {
	req := requestOf(ctx)
	if req != nil && req.term != nil {
		return v.writeControlled(ctx, req.term, ms)
	}
	if req == nil || req.pass == nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("write to %s outside of a request that the stack declares as writing", v.version))
	}
	if req.pass.version != v.version {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("write to %s: version %s is active", v.version, req.pass.version))
	}
	for _, m := range ms {
		if _, ok := req.pass.tokens[m.Kind]; !ok {
			return v.undeclared(m.Kind)
		}
	}
	err := v.client.Write(ctx, req.pass.tokens, ms)
	switch {
	case errors.Is(err, record.ErrFenced):
		req.moved.Store(true)
	case err == nil || !withoutEffect(err):
		req.effect.Store(true)
	}
	return err
}

// withoutEffect reports whether err means for certain that nothing was written. Any
// other, a broken connection for one, may stand for a lost acknowledgement.
func withoutEffect(err error) bool {
	for _, certain := range []error{record.ErrFenced, record.ErrNotFound, record.ErrExists, record.ErrMismatch, record.ErrRefused, record.ErrUnreadable, record.ErrNoKey} {
		if errors.Is(err, certain) {
			return true
		}
	}
	return false
}
