package conn

import (
	"context"
	"slices"
	"sync"
)

// lookups combines concurrent reads of single collections, for which the server has no command that
// reads many. It sends at most LooksAtOnce commands at a time. A caller shares a read of the same
// collection that waits for its turn, so its answer is never older than its question. Several
// checks of hundreds of collections, which all run while writes are held, then cost one read of
// each.
//
// Unlike rounds, one collection whose lock is taken delays no other one.
type lookups[A any] struct {
	Do func(ctx context.Context, name string) (A, error)

	mu      sync.Mutex
	queue   []*pendingRead[A] // waiting for their turn
	running int
}

type pendingRead[A any] struct {
	name   string
	asking int           // callers that wait for the answer
	done   chan struct{} // closed when answer and err are set
	answer A
	err    error
}

// Ask returns the answer for a collection. Callers share it and must not change it.
func (ls *lookups[A]) Ask(ctx context.Context, name string) (A, error) {
	l := ls.join(ctx, name)
	select {
	case <-ctx.Done():
		ls.leave(l)
		var none A
		return none, context.Cause(ctx)
	case <-l.done:
		return l.answer, l.err
	}
}

// join returns the waiting read of a collection, or a new one.
func (ls *lookups[A]) join(ctx context.Context, name string) *pendingRead[A] {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.queue {
		if l.name == name {
			l.asking++
			return l
		}
	}
	l := &pendingRead[A]{name: name, asking: 1, done: make(chan struct{})}
	ls.queue = append(ls.queue, l)
	if ls.running < LooksAtOnce {
		ls.running++
		// The worker serves others too, so it must not end with this caller's context.
		go ls.run(context.WithoutCancel(ctx))
	}
	return l
}

// leave removes a read that nobody waits for, if it has not begun. Otherwise the reads of a check that
// was given up would delay those of the abort after it.
func (ls *lookups[A]) leave(l *pendingRead[A]) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.asking--; l.asking == 0 {
		ls.queue = slices.DeleteFunc(ls.queue, func(queued *pendingRead[A]) bool { return queued == l })
	}
}

// run reads while collections are waiting.
func (ls *lookups[A]) run(ctx context.Context) {
	for {
		ls.mu.Lock()
		if len(ls.queue) == 0 {
			ls.running--
			ls.mu.Unlock()
			return
		}
		l := ls.queue[0]
		ls.queue = ls.queue[1:] // from here on nobody can join this read
		ls.mu.Unlock()
		limited, cancel := context.WithTimeoutCause(ctx, roundLimit, errRound)
		l.answer, l.err = ls.Do(limited, l.name)
		if l.err != nil && limited.Err() != nil {
			l.err = errRound // not the caller's deadline, and must not look like it
		}
		cancel()
		close(l.done)
	}
}

// LooksAtOnce bounds the collections that are checked at once. Writes are held meanwhile: hundreds
// of checks in sequence take too long, and so does opening hundreds of connections.
const LooksAtOnce = 16
