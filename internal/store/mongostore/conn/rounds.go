package conn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// roundLimit bounds one round, which no caller's context does. A write that waits in vain for its
// majority fails before that.
const roundLimit = ConcernWait + time.Second

var errRound = errors.New("the server has not answered several combined requests in time")

// Rounds combines concurrent calls. Calls that arrive during a round share the next round, which
// begins after they arrived. Fencing hundreds of kinds at once then takes a few commands, and a
// single call waits for nobody.
//
// A caller that stops waiting does not take its request back. To the server, the request is a late
// command.
type Rounds[Q, A any] struct {
	Do   func(ctx context.Context, asked []Q) (A, error) // one round; all its callers get the result
	Most int                                             // requests in one round; 0: any number
	// Patience is how long a round can delay the next one; 0: until it ends. Over a distance each
	// wait is a round trip. It is for rounds that only look, because their order does not matter.
	Patience time.Duration

	mu      sync.Mutex
	waiting []*round[Q, A]
	busy    bool
}

type round[Q, A any] struct {
	asked  []Q
	done   chan struct{} // closed when answer and err are set
	answer A
	err    error
}

// Ask puts a request into the next round and returns its answer.
func (rs *Rounds[Q, A]) Ask(ctx context.Context, q Q) (A, error) {
	rs.mu.Lock()
	var r *round[Q, A]
	// Join the last waiting round, unless it is full.
	if last := len(rs.waiting) - 1; last >= 0 && (rs.Most == 0 || len(rs.waiting[last].asked) < rs.Most) {
		r = rs.waiting[last]
	} else {
		r = &round[Q, A]{done: make(chan struct{})}
		rs.waiting = append(rs.waiting, r)
	}
	r.asked = append(r.asked, q)
	if !rs.busy {
		rs.busy = true
		// The round serves others too, so it must not end with this caller's context.
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

// run makes rounds while calls are waiting.
func (rs *Rounds[Q, A]) run(ctx context.Context) {
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
		if rs.Patience == 0 {
			rs.do(ctx, r)
			continue
		}
		go rs.do(ctx, r)
		patience := time.NewTimer(rs.Patience)
		select {
		case <-r.done:
		case <-patience.C:
		}
		patience.Stop()
	}
}

// do makes one round.
func (rs *Rounds[Q, A]) do(ctx context.Context, r *round[Q, A]) {
	limited, cancel := context.WithTimeoutCause(ctx, roundLimit, errRound)
	defer cancel()
	r.answer, r.err = rs.Do(limited, r.asked)
	if r.err != nil && limited.Err() != nil {
		r.err = errRound // not the caller's deadline, and must not look like it
	}
	close(r.done)
}

// Looking is the Patience of rounds that look. A near server answers sooner, so that calls still
// share rounds. More calls at once than rounds are not possible, so a server that hangs gets no
// more of them than without rounds.
const Looking = 20 * time.Millisecond

// Waiting returns how many questions each round has that has not begun.
func (rs *Rounds[Q, A]) Waiting() (asked []int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.waiting {
		asked = append(asked, len(r.asked))
	}
	return asked
}
