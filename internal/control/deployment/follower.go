package deployment

import (
	"context"
	"sync"
)

// follower is a watch that all its users in this process share. It runs while there are any. The zero
// value is ready.
type follower[T any] struct {
	mu  sync.Mutex
	now *following[T] // nil: there are no users
}

// following is one run of a follower.
type following[T any] struct {
	users int // follower.mu guards it
	stop  context.CancelFunc
	ended chan struct{}

	mu      sync.Mutex
	value   T
	live    bool          // the watch runs, and value is what it delivered last
	changed chan struct{} // closed at the next change of value
}

// join returns the run, and whether it was there before. For the first user it starts run, which delivers
// by set until its context ends. Each user calls leave.
func (f *follower[T]) join(run func(context.Context, *following[T])) (g *following[T], running bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil {
		f.now.users++
		return f.now, true
	}
	ctx, stop := context.WithCancel(context.Background()) // until the last user leaves
	g = &following[T]{users: 1, stop: stop, ended: make(chan struct{}), changed: make(chan struct{})}
	f.now = g
	go func() {
		defer close(g.ended)
		run(ctx, g)
	}()
	return g, false
}

// leave ends the run with its last user.
func (f *follower[T]) leave(g *following[T]) {
	f.mu.Lock()
	g.users--
	last := g.users == 0
	if last {
		f.now = nil
	}
	f.mu.Unlock()
	if last {
		g.stop()
		<-g.ended
	}
}

// newest returns what the present run has delivered last. live is false if there is none, or if changes
// may be missing.
func (f *follower[T]) newest() (value T, live bool) {
	f.mu.Lock()
	g := f.now
	f.mu.Unlock()
	if g == nil {
		return value, false
	}
	value, live, _ = g.newest()
	return value, live
}

func (g *following[T]) set(value T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.value, g.live = value, true
	close(g.changed)
	g.changed = make(chan struct{})
}

// lost notes that nothing watches at the moment.
func (g *following[T]) lost() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live = false
}

// newest returns the newest value that was delivered, whether the watch runs since, and a channel that
// closes when there is another one.
func (g *following[T]) newest() (value T, live bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.value, g.live, g.changed
}
