package mongostore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// roundLimit bounds one round, which no caller's context does. A write that waits in vain for
// its majority says so before.
const roundLimit = concernWait + time.Second

var errRound = errors.New("the server has not answered in time what several asked together")

// rounds answers calls together: those that come while one is under way share the next one,
// which begins after each of them came. So hundreds of kinds that are fenced at once cost a
// few commands, and one that is fenced alone waits for nobody.
//
// A caller that leaves does not take back what it asked for: to the server it is a command
// that arrives late.
type rounds[Q, A any] struct {
	do   func(ctx context.Context, asked []Q) (A, error) // one round; all who asked get what it returns
	most int                                             // asked in one round; 0: any number

	mu      sync.Mutex
	waiting []*round[Q, A]
	busy    bool
}

type round[Q, A any] struct {
	asked  []Q
	done   chan struct{} // closed when the rest is set
	answer A
	err    error
}

func (rs *rounds[Q, A]) ask(ctx context.Context, q Q) (A, error) {
	rs.mu.Lock()
	var r *round[Q, A]
	if last := len(rs.waiting) - 1; last >= 0 && (rs.most == 0 || len(rs.waiting[last].asked) < rs.most) {
		r = rs.waiting[last]
	} else {
		r = &round[Q, A]{done: make(chan struct{})}
		rs.waiting = append(rs.waiting, r)
	}
	r.asked = append(r.asked, q)
	if !rs.busy {
		rs.busy = true
		go rs.run(context.WithoutCancel(ctx))
	}
	rs.mu.Unlock()
	select {
	case <-ctx.Done():
		var none A
		return none, context.Cause(ctx)
	case <-r.done:
		return r.answer, r.err
	}
}

// run makes rounds while anybody waits for one.
func (rs *rounds[Q, A]) run(ctx context.Context) {
	for {
		rs.mu.Lock()
		if len(rs.waiting) == 0 {
			rs.busy = false
			rs.mu.Unlock()
			return
		}
		r := rs.waiting[0]
		rs.waiting = slices.Delete(rs.waiting, 0, 1)
		rs.mu.Unlock()
		limited, cancel := context.WithTimeoutCause(ctx, roundLimit, errRound)
		r.answer, r.err = rs.do(limited, r.asked)
		if r.err != nil && limited.Err() != nil {
			r.err = errRound // not the caller's own deadline, and must not look like it
		}
		cancel()
		close(r.done)
	}
}
