package sink

import (
	"context"
	"slices"
	"time"

	"dbcontroller.dev/record"
)

// Status is the state of a Follower.
type Status struct {
	State
	// Level is the moment before which everything acknowledged is in the sink. Zero: the sink is not
	// complete, or it is not known yet.
	Level   time.Time
	Failed  int   // records without a document
	Problem error // why nothing is followed now; nil: it works
}

// Lag returns how far the sink is behind. ok is false if that is not known.
func (s Status) Lag(now time.Time) (lag time.Duration, ok bool) {
	return now.Sub(s.Level), !s.Level.IsZero()
}

// Status returns the present state.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{State: f.state.clone(), Level: f.level, Problem: f.problem}
	for _, names := range f.failed {
		s.Failed += len(names)
	}
	return s
}

// Wait waits until everything that was acknowledged before a moment is in the sink.
func (f *Follower) Wait(ctx context.Context, moment time.Time) error {
	for {
		f.mu.Lock()
		reached, news := !f.level.Before(moment) && !f.level.IsZero(), f.news
		if !reached && f.want.Before(moment) {
			f.want = moment
			f.notify()
			news = f.news
		}
		f.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Rebuild reads all records again. Until that has ended, the sink stays as level as before.
func (f *Follower) Rebuild() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rebuild = true
	if f.restart != nil {
		f.restart(errRestart)
	}
}

// notify wakes all waiters. The caller holds mu.
func (f *Follower) notify() {
	close(f.news)
	f.news = make(chan struct{})
}

// probes asks for the position of the database again and again: at each interval, and at once if
// somebody waits.
func (f *Follower) probes(ctx context.Context) error {
	every := time.NewTicker(f.cfg.Probe)
	defer every.Stop()
	for {
		now := time.Now()
		pos, err := f.source.Position(ctx)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.asked = append(f.asked, probe{pos.At, now})
		f.levelled() // the stream may be there already
		f.mu.Unlock()
		for due := false; !due; {
			f.mu.Lock()
			due = f.want.After(now) && !f.want.After(time.Now())
			news := f.news
			f.mu.Unlock()
			if due {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-every.C:
				due = true
			case <-news:
			}
		}
	}
}

// reached notes that the sink has all changes before a position.
func (f *Follower) reached(pos record.Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problem = nil
	// A write of the scan may have put an earlier position back.
	if pos.At.Compare(f.state.Position.At) > 0 {
		f.state.Position = pos
	}
	f.levelled()
}

// settle notes that the scan has ended.
func (f *Follower) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.levelled()
}

// levelled raises the level to the latest moment whose position the sink has. The caller holds mu.
func (f *Follower) levelled() {
	if !f.state.Complete() {
		// The moments stay: the scan may cover them when it ends. Only the latest one matters then.
		if n := len(f.asked); n > 64 {
			f.asked = slices.Delete(f.asked, 0, n/2)
		}
		return
	}
	for len(f.asked) > 0 && f.asked[0].at.Compare(f.state.Position.At) <= 0 {
		f.level = f.asked[0].asked
		f.asked = f.asked[1:]
		f.notify()
	}
}
