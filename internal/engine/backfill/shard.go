package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/upgradestate"
)

// shard is one period of ownership of a shard.
type shard struct {
	engine *Engine
	run    *run
	lock   shards.Lock
	cancel context.CancelFunc

	// Only work writes these, under Engine.mu.
	at     Checkpoint
	loaded bool

	// Only work uses this.
	saved time.Time // time of the last stored checkpoint
}

// work processes the rest of the shard and reports it. It returns early when ctx ends or the shard
// has another owner.
func (s *shard) work(ctx context.Context) {
	e := s.engine
	// Shards of one controller share the workers, so a wide ring does not overload the database.
	if e.workers.Acquire(ctx, 1) != nil {
		return
	}
	defer e.workers.Release(1)
	err := s.persist(ctx, s.load)
	for err == nil && !s.at.Done {
		// Save also when done: the report must not precede the checkpoint.
		if err = s.persist(ctx, s.page); err == nil && (s.at.Done || time.Since(s.saved) >= e.cfg.Every) {
			err = s.persist(ctx, s.save)
		}
	}
	if err == nil {
		err = s.persist(ctx, s.report)
	}
	switch {
	case err == nil, ctx.Err() != nil:
	// Another controller owns the shard, or the run is over. The stored checkpoint is enough for
	// it.
	case errors.Is(err, coord.ErrConflict), errors.Is(err, upgradestate.ErrOutdated):
		e.Log.Debug("another controller owns the shard", zap.Int("shard", s.lock.Shard), zap.Error(err))
	default:
		if e.isNews(err) {
			e.Log.Error("the data update released shards", zap.Int("such as", s.lock.Shard), zap.Error(err))
		}
	}
}

// persist repeats f with backoff until it succeeds, ctx ends, or the shard has another owner.
func (s *shard) persist(ctx context.Context, f func(context.Context) error) error {
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
	// Log only the first failure of a series, and only from one shard.
	failed := false
	err := backoff.Retry(func() error {
		err := f(ctx)
		var refused *upgradestate.RefusedError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return backoff.Permanent(ctx.Err())
		// Retries cannot change these: the lock is lost, or the Deployment has moved on.
		case errors.Is(err, coord.ErrConflict), errors.Is(err, upgradestate.ErrOutdated), errors.As(err, &refused):
			return backoff.Permanent(err)
		}
		if first := s.engine.setProblem(err.Error()); first && !failed {
			s.engine.Log.Warn("the data update continues after an error", zap.Int("such as shard", s.lock.Shard), zap.Error(err))
		}
		failed = true
		return err
	}, backoff.WithContext(policy, ctx))
	if failed && err == nil {
		s.engine.setProblem("")
	}
	return err
}

// setProblem records an error that the work retries. first is true if there was none, so that only
// one of many shards logs an outage.
func (e *Engine) setProblem(text string) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first = e.problem == ""
	e.problem = text
	return first
}

// isNews reports whether an error differs from the last one that ended a shard's part.
func (e *Engine) isNews(err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	is := e.gaveUp != err.Error()
	e.gaveUp = err.Error()
	return is
}

// mayTell reports whether the log may take one more failed record. All failures are counted, and
// each shard keeps some.
func (r *run) mayTell() bool { return r.told.Add(1) <= mostTold }

// mostTold bounds the logged failures of a run at one controller.
const mostTold = 20

func (s *shard) set(c Checkpoint) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.at, s.loaded = c, true
}

// load resumes from the former owner's checkpoint, or starts at the beginning.
func (s *shard) load(ctx context.Context) error {
	c, found, err := s.engine.Journal.LoadUpdateCheckpoint(ctx, s.run.update.Run(), s.lock.Shard)
	if err != nil {
		return err
	}
	ranges := s.run.plan.Ranges
	switch {
	case found:
	case s.lock.Shard < len(ranges):
		c.Rest = ranges[s.lock.Shard]
	// The ring has more shards than the plan has ranges.
	default:
		c.Done = true
	}
	s.saved = time.Now()
	s.set(c)
	return nil
}

func (s *shard) save(ctx context.Context) error {
	// The lock condition makes a former owner's late checkpoint fail.
	err := s.engine.Journal.SaveUpdateCheckpoint(ctx, s.run.update.Run(), s.lock.Shard, s.at, s.lock.Condition())
	if err == nil {
		s.saved = time.Now()
	}
	return err
}

func (s *shard) report(ctx context.Context) error {
	done := upgradestate.UpdateDone{ID: s.run.update.Run(), Shard: s.lock.Shard, Count: s.at.Count}
	if len(s.at.Examples) > 0 {
		done.Example = s.at.Examples[0].String()
	}
	_, err := s.engine.Deployments.Apply(ctx, done, s.lock.Condition())
	return err
}

// page sends the next page through the task.
func (s *shard) page(ctx context.Context) error {
	e := s.engine
	// Report only the records read since the last call, by any shard.
	if e.Pacer != nil {
		if err := e.Pacer.Wait(ctx, int(e.read.Swap(0))); err != nil {
			return err
		}
	}
	tok, err := e.awaitPlace(ctx, s.run.update.Kind)
	if err != nil {
		return err
	}
	page, err := s.run.ns.Scan(ctx, record.ScanRequest{Token: tok, Range: s.at.Rest, Limit: e.cfg.Page, NotBefore: s.run.plan.Start})
	if err != nil {
		return fmt.Errorf("scan %s: %w", tok.Kind, err)
	}
	e.read.Add(int64(len(page.Records)))
	ch := &changing{run: s.run, tok: tok}
	if err := ch.records(ctx, page.Records); err != nil {
		return err
	}
	// Advance only after every record of the page is written or counted.
	next := s.at
	next.Rest.From, next.Done = page.Next, page.Done
	next.Count.Seen += ch.count.Seen
	next.Count.Changed += ch.count.Changed
	next.Count.Failed += ch.count.Failed
	next.Examples = withExamples(next.Examples, ch.examples)
	for _, f := range ch.examples {
		if !s.run.mayTell() {
			break
		}
		e.Log.Warn("cannot update a record", zap.String("update", s.run.update.Name), zap.String("key", f.Key), zap.String("error", f.Error))
	}
	s.set(next)
	return nil
}

// withExamples adds examples up to their limit. It never writes to have, which Progress may read.
func withExamples(have, more []Failure) []Failure {
	out := append([]Failure(nil), have...)
	return append(out, more[:min(len(more), maxExamples-len(out))]...)
}

// awaitPlace returns the collection that the kind is written to, and waits while there is none.
func (e *Engine) awaitPlace(ctx context.Context, kind string) (record.Token, error) {
	for {
		// Take both together: news closes with the next record after this one.
		e.mu.Lock()
		d, news := e.record, e.news
		e.mu.Unlock()
		if tok, ok := token(d, kind); ok {
			return tok, nil
		}
		e.setProblem("waits for " + waitsForPlaces)
		select {
		case <-ctx.Done():
			return record.Token{}, ctx.Err()
		case <-news:
			e.setProblem("")
		}
	}
}

// token returns the collection that clients write a kind of the current version to. ok is false
// while they must not write.
func token(d upgradestate.Deployment, kind string) (tok record.Token, ok bool) {
	_, places := upgradestate.WritePlaces(d)
	for _, p := range places {
		if p.Kind == kind {
			return record.Token{Kind: kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}, true
		}
	}
	return record.Token{}, false
}
