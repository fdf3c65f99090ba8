package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
)

// faults are the panics of a proxy. Each one ends a connection, a cursor or a question, and not the process with the
// connections of all clients. All goroutines of the proxy run through it.
type faults struct {
	log *slog.Logger

	mu   sync.Mutex
	n    int64
	seen map[string]bool // where they were
}

// errFault is the result of work that a panic has ended.
var errFault = errors.New("a fault of the proxy has ended it; the log has the place")

// mostPlaces bounds the places of faults that are logged.
const mostPlaces = 100

// run runs work of the proxy. It returns errFault after a panic.
func (f *faults) run(what string, work func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			f.note(what, fault)
			err = errFault
		}
	}()
	work()
	return nil
}

// note counts a fault. It logs the first one at each place, with the stack.
func (f *faults) note(what string, fault any) {
	var at [32]uintptr
	place := fmt.Sprint(what, at[:runtime.Callers(3, at[:])])
	f.mu.Lock()
	f.n++
	known := f.seen[place]
	if !known && len(f.seen) < mostPlaces {
		if f.seen == nil {
			f.seen = map[string]bool{}
		}
		f.seen[place] = true
	}
	f.mu.Unlock()
	if known || f.log == nil {
		return
	}
	f.log.Error("a fault of the proxy; it goes on", slog.String("in", what), slog.String("fault", described(fault)), slog.String("stack", string(debug.Stack())))
}

// described returns a fault without the values of clients. Faults of the runtime have types and numbers only. Of
// others the stack tells the place.
func described(fault any) string {
	if e, ok := fault.(runtime.Error); ok {
		return e.Error()
	}
	return fmt.Sprintf("%T", fault)
}

func (f *faults) count() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// spawn runs work in a goroutine that Close waits for. then is called after a panic; nil: nothing is to be done.
func (p *Proxy) spawn(what string, work, then func()) {
	p.g.Go(func() {
		if p.faults.run(what, work) != nil && then != nil {
			_ = p.faults.run(what, then)
		}
	})
}
