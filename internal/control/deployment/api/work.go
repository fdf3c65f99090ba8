package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// Work describes the progress of a long call.
type Work struct {
	Doing       string // current step, in words
	Done, Total int64  // of the current step; Total 0: unknown
}

const (
	// workEvery is the least time between two progress messages.
	workEvery = 500 * time.Millisecond
	// beatEvery is the longest time between two messages. Longer silence shows a caller that the
	// controller is gone.
	beatEvery = 2 * time.Second
	// beatWithin is the longest silence that the API promises.
	beatWithin = 10 * time.Second
)

// reported runs the work of a long call and sends its progress, also while nothing moves. A caller
// can thus tell a long step from a dead controller. The work's context ends when sending fails or
// the controller stops. send is called by one goroutine at a time, and not after reported returns.
func (v *Service) reported(ctx context.Context, send func(*pb.WorkProgress) error, work func(ctx context.Context, say func(Work)) error) error {
	ctx, stop := v.untilStopped(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var now latest
	// Send an empty message first, so that the caller knows that the work has begun.
	now.say(Work{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if now.stream(ctx, send) != nil {
			cancel() // the caller is gone
		}
	}()
	err := work(ctx, now.say)
	// Read this before the cancel below, which would hide the reason.
	gone := ctx.Err() != nil
	cancel()
	// Wait for the goroutine: send must not be called concurrently with rest.
	<-ended
	switch {
	case gone:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	return now.rest(send)
}

// latest holds the current work, and earlier steps that are not sent yet. No step is left out,
// however short it was.
type latest struct {
	mu     sync.Mutex
	work   Work
	since  time.Time // begin of the current step
	news   bool
	unsent []Work
}

// mostUnsent bounds the steps that wait to be sent.
const mostUnsent = 100

func (l *latest) say(w Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Keep the last state of an earlier step, unless it was sent.
	if w.Doing != l.work.Doing && l.news && l.work.Doing != "" && len(l.unsent) < mostUnsent {
		l.unsent = append(l.unsent, l.work)
	}
	// A new step, or a restarted one, begins its own time.
	if w.Doing != l.work.Doing || w.Done < l.work.Done || l.since.IsZero() {
		l.since = time.Now()
	}
	l.work, l.news = w, true
}

// stream sends new progress, at most every workEvery, and at least one message every beatEvery.
func (l *latest) stream(ctx context.Context, send func(*pb.WorkProgress) error) error {
	tick := time.NewTicker(workEvery)
	defer tick.Stop()
	var sent time.Time
	for {
		ms, news := l.messages()
		// Without news, send only the beat.
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

// rest sends the remaining progress after the work has ended.
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

// messages returns the messages to send. The last one is the current work.
func (l *latest) messages() (ms []*pb.WorkProgress, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range append(l.unsent, l.work) {
		ms = append(ms, &pb.WorkProgress{Doing: w.Doing, Done: w.Done, Total: w.Total, NextWithinMillis: int32(beatWithin.Milliseconds())})
	}
	// An estimate belongs to the current step only.
	if left, ok := timeLeft(l.work.Done, l.work.Total, time.Since(l.since)); ok {
		seconds := int64(left.Seconds()) + 1
		ms[len(ms)-1].EtaSeconds = &seconds
	}
	news, l.news, l.unsent = l.news, false, nil
	return ms, news
}

// timeLeft estimates how long the rest takes at the same speed. It returns false for a step that
// has just begun, which shows too little.
func timeLeft(done, total int64, took time.Duration) (time.Duration, bool) {
	if done <= 0 || total <= done || took < time.Second {
		return 0, false
	}
	return time.Duration(float64(took) / float64(done) * float64(total-done)), true
}

// workText returns the progress as one line, for callers without WorkProgress.
func workText(w *pb.WorkProgress) string {
	if w.Total == 0 {
		return w.Doing
	}
	return fmt.Sprintf("%s, %d of %d", w.Doing, w.Done, w.Total)
}
