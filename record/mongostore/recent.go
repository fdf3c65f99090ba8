package mongostore

import (
	"context"
	"sync"
	"time"
)

// recentFor is how long an answer about the server as a whole serves others. Those who prepare
// hundreds of kinds ask for each of them, and each answer costs collections that are made and
// dropped, and a lock of the whole server. What a kind is fenced by is kept for as long as it
// lives, so an answer that is older by seconds is no other one.
const recentFor = 10 * time.Second

// recent is an answer that serves all who ask for a while. One at a time finds it out; an error
// is nobody else's.
type recent[A any] struct {
	mu     sync.Mutex
	turn   chan struct{} // nil: nobody finds it out; closed when that is over
	at     time.Time     // when it was begun to be found out; zero: never
	answer A
}

func (r *recent[A]) ask(ctx context.Context, find func(context.Context) (A, error)) (A, error) {
	for {
		r.mu.Lock()
		if !r.at.IsZero() && time.Since(r.at) < recentFor {
			defer r.mu.Unlock()
			return r.answer, nil
		}
		others := r.turn
		if others == nil {
			r.turn = make(chan struct{})
			r.mu.Unlock()
			return r.find(ctx, find)
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			var none A
			return none, context.Cause(ctx)
		case <-others:
		}
	}
}

func (r *recent[A]) find(ctx context.Context, find func(context.Context) (A, error)) (A, error) {
	start := time.Now()
	answer, err := find(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.turn)
	r.turn = nil
	if err == nil {
		r.at, r.answer = start, answer
	}
	return answer, err
}
