package proxy

import (
	"context"
	"sync"
	"time"
)

// latest asks the controllers where the data is, for many callers at once. A caller needs an answer that
// is not older than its call, so it shares the next question and never one that is under way.
type latest struct {
	mu            sync.Mutex
	asking, after *question // the question under way and the next one; nil: none
}

type question struct {
	answered chan struct{} // closed when the fields below are set
	epoch    int64
	open     bool
	err      error
}

// ask returns the epoch of the version that is open, and whether writes are allowed there.
func (p *Proxy) ask(ctx context.Context, d *deployed) (epoch int64, open bool, err error) {
	l := &d.latest
	l.mu.Lock()
	q := l.after
	if q == nil {
		q = &question{answered: make(chan struct{})}
		if l.asking == nil {
			l.asking = q
			p.spawn("questions to controllers", func() { p.answerAll(d) }, nil)
		} else {
			l.after = q
		}
	}
	l.mu.Unlock()
	select {
	case <-q.answered:
		return q.epoch, q.open, q.err
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
}

// answerAll asks until no question is left.
func (p *Proxy) answerAll(d *deployed) {
	l := &d.latest
	l.mu.Lock()
	q := l.asking
	l.mu.Unlock()
	for q != nil {
		if err := p.faults.run("a question to controllers", func() { q.epoch, q.open, q.err = d.app.Latest(p.life) }); err != nil {
			q.err = err
		}
		close(q.answered)
		l.mu.Lock()
		q, l.after = l.after, nil
		l.asking = q
		l.mu.Unlock()
	}
}

// settleTimeout bounds the wait for the end of a switch after a write that its fence may have let pass.
const settleTimeout = 10 * time.Second

// stayed reports whether a write that passed a weak fence counts. Such a fence lets deletes pass, also
// after the last change was carried over, and the reverse sync then undoes them. The write counts if the
// data is still there: no fence comes before controllers announce it.
func (p *Proxy) stayed(ctx context.Context, d *deployed, at place) bool {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		// Take the channel first, so that no change after the answer is missed.
		_, changed := d.app.Holding()
		epoch, open, err := p.ask(ctx, d)
		if err == nil && open {
			return epoch == at.epoch
		}
		retry := time.NewTimer(settleRetry)
		select {
		case <-ctx.Done():
			retry.Stop()
			return false
		case <-changed:
		case <-retry.C:
		}
		retry.Stop()
	}
}

// settleRetry is the pause between two questions without an answer that decides.
const settleRetry = 100 * time.Millisecond

// current reports whether a read at a place has seen everything that was acknowledged before it began.
// While this proxy holds writes, another one may write at the next place already.
func (p *Proxy) current(ctx context.Context, d *deployed, at place) bool {
	if held, _ := d.app.Holding(); !held {
		return d.app.Epoch() == at.epoch
	}
	ctx, cancel := context.WithTimeout(ctx, askedTimeout)
	defer cancel()
	epoch, open, err := p.ask(ctx, d)
	// Without controllers the proxy goes on at the last known place.
	return err != nil || !open || epoch == at.epoch
}

// askedTimeout bounds the question after a read. Without an answer the read has the one of the database.
const askedTimeout = 2 * time.Second

// moving reports whether the data leaves a place, or has left it. It explains some errors of a read there.
func (p *Proxy) moving(ctx context.Context, d *deployed, at place) bool {
	ctx, cancel := context.WithTimeout(ctx, askedTimeout)
	defer cancel()
	epoch, open, err := p.ask(ctx, d)
	return err == nil && (!open || epoch != at.epoch)
}
