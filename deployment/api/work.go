package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// Work is how far a long call is.
type Work struct {
	Doing       string // what it does now, for people
	Done, Total int64  // of that; no Total: it is not known
}

const (
	// workEvery is the least time between two messages of progress.
	workEvery = 500 * time.Millisecond
	// beatEvery is the most: who hears nothing for much longer knows that nobody works for him.
	beatEvery = 2 * time.Second
	// beatWithin is what is promised of it.
	beatWithin = 10 * time.Second
)

// reported does the work of a long call and sends how far it is, also while nothing moves, so
// that its caller can tell a long step from a controller that has gone. The work ends with its
// caller: when what is sent cannot be, or when the controller stops. send is called by one
// goroutine at a time, and not after the work has ended.
func (v *Service) reported(ctx context.Context, send func(*pb.WorkProgress) error, work func(ctx context.Context, say func(Work)) error) error {
	ctx, stop := v.untilStopped(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var now latest
	now.say(Work{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if now.stream(ctx, send) != nil {
			cancel() // nobody listens any longer
		}
	}()
	err := work(ctx, now.say)
	gone := ctx.Err() != nil
	cancel()
	<-ended
	switch {
	case gone:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return now.rest(send)
}

// latest is what was said last, and what was said before it and not sent yet: nothing that a
// call does is left out, however short it is.
type latest struct {
	mu     sync.Mutex
	work   Work
	since  time.Time // when it began with what it does now
	news   bool
	unsent []Work
}

// mostUnsent bounds what waits to be sent.
const mostUnsent = 100

func (l *latest) say(w Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.Doing != l.work.Doing && l.news && l.work.Doing != "" && len(l.unsent) < mostUnsent {
		l.unsent = append(l.unsent, l.work)
	}
	if w.Doing != l.work.Doing || w.Done < l.work.Done || l.since.IsZero() {
		l.since = time.Now()
	}
	l.work, l.news = w, true
}

// stream sends what is new, not more often than workEvery, and something each beatEvery.
func (l *latest) stream(ctx context.Context, send func(*pb.WorkProgress) error) error {
	tick := time.NewTicker(workEvery)
	defer tick.Stop()
	var sent time.Time
	for {
		ms, news := l.messages()
		if !news && time.Since(sent) < beatEvery {
			ms = nil
		}
		for _, m := range ms {
			if err := send(m); err != nil {
				return err
			}
			sent = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// rest sends what is new when the work has ended.
func (l *latest) rest(send func(*pb.WorkProgress) error) error {
	ms, news := l.messages()
	if !news {
		return nil
	}
	for _, m := range ms {
		if err := send(m); err != nil {
			return err
		}
	}
	return nil
}

// messages are those that are to be sent, the last of them the present one.
func (l *latest) messages() (ms []*pb.WorkProgress, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range append(l.unsent, l.work) {
		ms = append(ms, &pb.WorkProgress{Doing: w.Doing, Done: w.Done, Total: w.Total, NextWithinMillis: int32(beatWithin.Milliseconds())})
	}
	if left, ok := timeLeft(l.work.Done, l.work.Total, time.Since(l.since)); ok {
		seconds := int64(left.Seconds()) + 1
		ms[len(ms)-1].EtaSeconds = &seconds
	}
	news, l.news, l.unsent = l.news, false, nil
	return ms, news
}

// timeLeft is how long the rest takes if it goes on as it did. What has just begun says little
// of that.
func timeLeft(done, total int64, took time.Duration) (time.Duration, bool) {
	if done <= 0 || total <= done || took < time.Second {
		return 0, false
	}
	return time.Duration(float64(took) / float64(done) * float64(total-done)), true
}

// workText is how far a call is in one line, for callers that know no WorkProgress.
func workText(w *pb.WorkProgress) string {
	if w.Total == 0 {
		return w.Doing
	}
	return fmt.Sprintf("%s, %d of %d", w.Doing, w.Done, w.Total)
}
