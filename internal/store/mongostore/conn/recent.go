package conn

import (
	"context"
	"sync"
	"time"
)

// recentFor is how long an answer about the server as a whole is reused. Preparing hundreds of
// kinds asks for each of them. Each answer costs a collection that is created and dropped, and a
// lock of the whole server. A kind keeps its fence class for its lifetime, so an answer that is
// seconds old is as good.
const recentFor = 10 * time.Second

// Recent caches an answer for a while. One caller at a time computes it; the others wait. Errors
// are not cached.
type Recent[A any] struct {
	mu     sync.Mutex
	turn   chan struct{} // nil: nobody computes it; closed when that is over
	at     time.Time     // start of the computation; zero: never
	answer A
}

// Ask returns the recent answer, or finds a new one.
func (r *Recent[A]) Ask(ctx context.Context, find func(context.Context) (A, error)) (A, error) {
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
		// After an error of the other caller, compute the answer in its place.
		select {
		case <-ctx.Done():
			var none A
			return none, context.Cause(ctx)
		case <-others:
		}
	}
}

func (r *Recent[A]) find(ctx context.Context, find func(context.Context) (A, error)) (A, error) {
	start := time.Now()
	answer, err := find(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	// Wake the waiting callers also after an error, or they would wait forever.
	close(r.turn)
	r.turn = nil
	if err == nil {
		r.at, r.answer = start, answer
	}
	return answer, err
}
