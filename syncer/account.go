package syncer

import (
	"context"
	"sync"

	"dbcontroller.dev/record"
)

// account holds the guards that this engine has written to managed kinds, and whose changes have
// not come from the target yet. A guard in a managed record proves nothing by itself: somebody
// who writes back a document that he has read writes its guard as well. Of all changes of one key
// with one guard, one is this engine's, so that the account lets one through.
//
// An entry stands for a change that will come. Whatever may come to nothing has none: a repair,
// which may find what it writes, and a write of which the outcome is not known. So nothing is
// left over that would hide somebody else's change; what is missing costs a comparison.
type account struct {
	mu   sync.Mutex
	open bool // a stream takes entries off
	own  map[ownWrite]struct{}
}

type ownWrite struct {
	kind  string
	key   record.Key
	guard record.Guard
}

// mostOwn bounds the account. With more it begins anew.
const mostOwn = 100_000

// begin empties the account, and says whether entries are taken off from now on.
func (a *account) begin(open bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open, a.own = open, map[ownWrite]struct{}{}
}

// take reports whether a change is the engine's own, and takes it off.
func (a *account) take(c record.Change) bool {
	own := ownWrite{c.Kind, c.Key, c.Guard}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, there := a.own[own]
	delete(a.own, own)
	return there
}

// note adds what a batch is about to write.
func (a *account) note(b record.Batch) (noted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open || b.Repair {
		return false
	}
	for _, g := range b.Groups {
		for _, w := range writesOf(b, g) {
			a.own[w] = struct{}{}
		}
	}
	if len(a.own) > mostOwn {
		a.own = map[ownWrite]struct{}{}
	}
	return true
}

// drop takes off what was not written.
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

func writesOf(b record.Batch, g record.GroupWrite) (ws []ownWrite) {
	guard := record.Guard{Epoch: b.Epoch, Version: g.Version}
	for _, w := range g.Writes {
		if !b.Tokens[w.Kind].Fixed { // the others show in the database whose they are
			ws = append(ws, ownWrite{w.Kind, w.Key, guard})
		}
	}
	return ws
}

// applyOwn is the target's Apply, in the account.
func (e *Engine) applyOwn(ctx context.Context, b record.Batch) ([]record.Result, error) {
	noted := e.own.note(b)
	results, err := e.Target.Apply(ctx, b)
	if noted {
		e.own.drop(b, func(i int) bool { return err == nil && results[i].Outcome == record.Applied })
	}
	return results, err
}
