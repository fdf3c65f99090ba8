package proxy

import (
	"context"
	"sync"
	"time"

	"dbcontroller.dev/appclient"
)

// latest asks the controllers where the data is, for many callers at once. A caller needs an answer that
// is not older than its call, so it shares the next question and never one that is under way.
type latest struct {
	mu            sync.Mutex
	asking, after *question // the question under way and the next one; nil: none
}

type question struct {
	answered chan struct{} // closed when the fields below are set
	answer   appclient.Answer
	err      error
}

// ask asks the controllers.
func (p *Proxy) ask(ctx context.Context, d *deployed) (appclient.Answer, error) {
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
		return q.answer, q.err
	case <-ctx.Done():
		return appclient.Answer{}, ctx.Err()
	}
}

// answerAll asks until no question is left.
func (p *Proxy) answerAll(d *deployed) {
	l := &d.latest
	l.mu.Lock()
	q := l.asking
	l.mu.Unlock()
	for q != nil {
		if err := p.faults.run("a question to controllers", func() { q.answer, q.err = d.app.Ask(p.life) }); err != nil {
			q.err = err
		}
		close(q.answered)
		l.mu.Lock()
		q, l.after = l.after, nil
		l.asking = q
		l.mu.Unlock()
	}
}

// lasts reports whether a switch keeps a write that passed a weak fence, or that may have passed one. Such a fence lets
// deletes pass, also after the last change was carried over, and the reverse sync then undoes them. The caller asks
// while the write counts as one in flight: no fence comes before controllers have waited for it, so that an answer
// without a doubt comes from the hold already. false: it is not known yet.
func (p *Proxy) lasts(ctx context.Context, d *deployed, at place) bool {
	ctx, cancel := context.WithTimeout(ctx, askedTimeout)
	defer cancel()
	now, err := p.ask(ctx, d)
	return err == nil && now.Kept && now.Epoch == at.epoch
}

// settleTimeout bounds the wait for the end of a switch after a write that its fence may have let pass.
const settleTimeout = 10 * time.Second

// stayed is lasts for a write that is in flight no longer. It waits for the end of a switch. The write counts if the
// data is still there: no fence comes before controllers announce it.
func (p *Proxy) stayed(ctx context.Context, d *deployed, at place) bool {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		// Take the channel first, so that no change after the answer is missed.
		_, changed := d.app.Holding()
		now, err := p.ask(ctx, d)
		if err == nil && now.Kept {
			return now.Epoch == at.epoch
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
	now, err := p.ask(ctx, d)
	// Without controllers the proxy goes on at the last known place.
	return err != nil || !now.Open || now.Epoch == at.epoch
}

// askedTimeout bounds the question after a read. Without an answer the read has the one of the database.
const askedTimeout = 2 * time.Second

// moving reports whether the data leaves a place, or has left it. It explains some errors of a read there.
func (p *Proxy) moving(ctx context.Context, d *deployed, at place) bool {
	ctx, cancel := context.WithTimeout(ctx, askedTimeout)
	defer cancel()
	now, err := p.ask(ctx, d)
	return err == nil && (!now.Open || now.Epoch != at.epoch)
}
