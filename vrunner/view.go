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

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// View is one version's namespace for handlers. Callers name kinds, and the view adds the tokens. A
// view of a version that is not active is read-only. It shows the records that the sync has copied
// so far.
type View struct {
	runner  *Runner
	version string
	client  record.Client
	asList  bool                // Database.ReadsAsList
	indexed map[string][]string // Database.Indexed
	hub     *hub                // nil if Database has no Watcher
	search  Searcher            // Database.Search
}

// errMoved ends a handler whose version is no longer active. The Runner runs its request again on
// the new stack. Callers see it as record.ErrFenced.
var errMoved = fmt.Errorf("version is no longer active: %w", record.ErrFenced)

// request holds the permissions and effects of a running request, stream or controller.
type request struct {
	version string      // version of the stack that runs it
	shows   bool        // it only reads and returns one response: no stream, no controller
	epoch   uint64      // direction epoch of a stream or controller
	pass    *pass       // nil for a request that only reads
	term    *term       // of a controller, whose writes pass the gate one by one; otherwise nil
	moved   atomic.Bool // a switch has interrupted it
	effect  atomic.Bool // it has written, or may have
	lost    atomic.Bool // a subscription of the stream has lost changes
	lasting bool        // an import, which no flip ends
	// elsewhere is the region that owns what the request would write; nil: this one, as far as known.
	elsewhere atomic.Pointer[string]
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

// readsAsList reports whether a read may be only as recent as a list. Reads that lead to a write,
// or that report a change, must be linearizable.
func (v *View) readsAsList(ctx context.Context) bool {
	req := requestOf(ctx)
	return v.asList && req != nil && req.shows
}

// List returns the live records of a kind whose names begin with prefix and come after the name
// after, in name order. A limit of 0 means 1000.
func (v *View) List(ctx context.Context, kind, prefix, after string, limit int) ([]record.Record, error) {
	recs, _, err := v.list(ctx, kind, prefix, after, limit, 0)
	return recs, err
}

// ListNames returns only the names of the records that List would return. It may include names of
// deleted records.
func (v *View) ListNames(ctx context.Context, kind, prefix, after string, limit int) ([]string, error) {
	var names []string
	err := v.read(ctx, kind, func(t record.Token) (err error) {
		names, err = v.client.ListNames(ctx, record.ListRequest{Token: t, Prefix: prefix, After: after, Limit: limit})
		return err
	})
	return names, err
}

// Select returns the selected live records from one snapshot. They are as recent as Get or, with
// asList, as recent as List.
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

// readAll calls get with the tokens that the record publishes for reading. If the database refuses
// all of them, the record has changed or will change soon, so readAll waits for a newer record and
// retries. It tries all present places together, then all next places. While a fence has moved some
// of the kinds only, the read waits for the others.
func (v *View) readAll(ctx context.Context, kinds []string, get func(record.Tokens) error) error {
	// Only the wait for a new record has this limit. A slow read has the caller's.
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
		// No token works: this server has missed a change, or the namespace is sealed until the
		// flip.
		if err := v.runner.newer(bounded, d.Revision); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("read of %s/%s: %w", v.version, strings.Join(kinds, ", "), ErrHeld)
		}
	}
}

// tries returns the tokens for each attempt, the present places first. A kind with fewer places
// than others keeps its last one.
func (v *View) tries(ctx context.Context, d upgradestate.Deployment, kinds []string) (tries []record.Tokens, err error) {
	for _, kind := range kinds {
		places, err := v.places(ctx, d, kind)
		if err != nil {
			return nil, err
		}
		if len(places) == 0 {
			return nil, nil // no place to read from: the namespace is sealed
		}
		for len(tries) < len(places) {
			next := record.Tokens{}
			if len(tries) > 0 {
				next = maps.Clone(tries[len(tries)-1])
			}
			tries = append(tries, next)
		}
		// All kinds of one attempt must be from the same side of a rename.
		for n := range tries {
			tries[n][kind] = tokenOf(places[min(n, len(places)-1)])
		}
	}
	return tries, nil
}

func (v *View) places(ctx context.Context, d upgradestate.Deployment, kind string) ([]upgradestate.Place, error) {
	req := requestOf(ctx)
	if req != nil && req.version != d.CurrentVersion {
		// Another version is active, so the Runner must run this request on another stack.
		req.moved.Store(true)
		return nil, errMoved
	}
	if v.version == d.CurrentVersion {
		if ns, _ := d.Namespace(v.version); !slices.ContainsFunc(ns.Kinds, func(k upgradestate.Kind) bool { return k.Kind == kind }) {
			return nil, v.undeclared(kind) // a wait is in vain: no later record adds it
		}
		return upgradestate.ReadPlaces(d, v.version)[kind], nil
	}
	places := upgradestate.EnginePlaces(d, v.version)[kind]
	if len(places) == 0 || upgradestate.Retired(d, v.version) {
		return nil, v.absent(d, kind)
	}
	return places, nil
}

// undeclared returns the error for a kind that the active version does not have.
func (v *View) undeclared(kind string) error {
	return connect.NewError(connect.CodeInternal, fmt.Errorf("%s has no kind %s: name it in a transformer or in Kinds of the Version, and run controllers of the same build", v.version, kind))
}

// absent returns the error for a kind that a version does not have yet, or no longer has.
func (v *View) absent(d upgradestate.Deployment, kind string) error {
	because := func(reason refusal.Reason, text string) error {
		return refusal.Because(reason, text, record.ErrNotFound, refusal.MetaVersion, upgradestate.APIVersion(v.version))
	}
	if upgradestate.Retired(d, v.version) {
		return fmt.Errorf("%s/%s is gone, %w", v.version, kind, because(refusal.VersionRetired, v.version+" is retired"))
	}
	return fmt.Errorf("%s/%s is not there yet: %w", v.version, kind, because(refusal.VersionNotReady, v.version+" has no data yet"))
}

// Write makes all mutations or none, with the tokens of the request's pass. After record.ErrFenced
// the Runner runs the request again, unless it had an effect before. Each write of a controller
// passes the gate itself. After record.ErrFenced, which includes ErrEnded, a controller must read
// its data again.
func (v *View) Write(ctx context.Context, ms []record.Mutation) error {
	req := requestOf(ctx)
	if req != nil && req.term != nil {
		return v.writeControlled(ctx, req.term, ms)
	}
	// Without a pass, the gate could not hold this write during a switch.
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
	// Never a newer token: the pass belongs to the state in which the request passed the gate.
	err := v.client.Write(ctx, req.pass.tokens, ms)
	switch {
	case errors.Is(err, record.ErrFenced):
		req.moved.Store(true)
	// After an unknown outcome a second run could write twice.
	case err == nil || !withoutEffect(err):
		req.effect.Store(true)
	}
	return err
}

// withoutEffect reports whether err proves that nothing was written. Any other error, such as a
// broken connection, may hide a successful write.
func withoutEffect(err error) bool {
	for _, certain := range []error{record.ErrFenced, record.ErrNotFound, record.ErrExists, record.ErrMismatch, record.ErrRefused, record.ErrUnreadable, record.ErrNoKey} {
		if errors.Is(err, certain) {
			return true
		}
	}
	return false
}
