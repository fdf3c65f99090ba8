package syncer

import (
	"context"
	"sync"

	"dbcontroller.dev/record"
)

// account holds the guards of this engine's writes to managed kinds until the target's stream
// delivers them. A guard in a managed record does not identify its writer: a client that writes
// back a document it has read writes the guard, too. Of all changes of one key with one guard, the
// first is this engine's.
//
// Only writes with a known outcome have an entry. A repair may find its document equal and write
// nothing. A write with an unknown outcome may not have happened. An entry without a change would
// later hide a foreign change. A missing entry costs one comparison.
type account struct {
	mu   sync.Mutex
	open bool // a stream is running and removes entries
	own  map[ownWrite]struct{}
}

// ownWrite identifies one write of this engine.
type ownWrite struct {
	kind  string
	key   record.Key
	guard record.Guard
}

// mostOwn is the maximum number of entries. A larger account is emptied.
const mostOwn = 100_000

// begin empties the account. open reports whether a stream will remove entries from now on.
func (a *account) begin(open bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open, a.own = open, map[ownWrite]struct{}{}
}

// take removes the entry of a change and reports whether there was one.
func (a *account) take(c record.Change) bool {
	own := ownWrite{c.Kind, c.Key, c.Guard}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, there := a.own[own]
	delete(a.own, own)
	return there
}

// note adds entries for the writes of a batch. It must run before the batch is sent, since the
// stream may deliver a write before Apply returns.
func (a *account) note(b record.Batch) (noted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Without a stream nothing would remove the entries.
	if !a.open || b.Repair {
		return false
	}
	for _, g := range b.Groups {
		for _, w := range writesOf(b, g) {
			a.own[w] = struct{}{}
		}
	}
	// The lost entries cost a comparison each and hide nothing.
	if len(a.own) > mostOwn {
		a.own = map[ownWrite]struct{}{}
	}
	return true
}

// drop removes the entries of groups that were not written.
func (a *account) drop(b record.Batch, written func(i int) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, g := range b.Groups {
		if written(i) {
			continue
		}
		for _, w := range writesOf(b, g) {
			delete(a.own, w)
		}
	}
}

// writesOf returns the entries for one group of a batch.
func writesOf(b record.Batch, g record.GroupWrite) (ws []ownWrite) {
	guard := record.Guard{Epoch: b.Epoch, Version: g.Version}
	for _, w := range g.Writes {
		if !b.Tokens[w.Kind].Fixed { // changes of fixed-name kinds show their writer
			ws = append(ws, ownWrite{w.Kind, w.Key, guard})
		}
	}
	return ws
}

// applyOwn is the target's Apply with its writes in the account.
func (e *Engine) applyOwn(ctx context.Context, b record.Batch) ([]record.Result, error) {
	noted := e.own.note(b)
	results, err := e.Target.Apply(ctx, b)
	if noted {
		// After an error the outcome of each write is unknown, so all entries go.
		e.own.drop(b, func(i int) bool { return err == nil && results[i].Outcome == record.Applied })
	}
	return results, err
}
