package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/coord"
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

	// Written by work alone, under Engine.mu.
	at     Checkpoint
	loaded bool

	// Used by work alone.
	saved time.Time // when at was stored
}

// work does what remains of the shard, and reports it. It returns early when ctx ends or the
// shard is somebody else's.
func (s *shard) work(ctx context.Context) {
	e := s.engine
	if e.workers.Acquire(ctx, 1) != nil {
		return
	}
	defer e.workers.Release(1)
	err := s.persist(ctx, s.load)
	for err == nil && !s.at.Done {
		if err = s.persist(ctx, s.page); err == nil && (s.at.Done || time.Since(s.saved) >= e.cfg.Every) {
			err = s.persist(ctx, s.save)
		}
	}
	if err == nil {
		err = s.persist(ctx, s.report)
	}
	switch {
	case err == nil, ctx.Err() != nil:
	case errors.Is(err, coord.ErrConflict), errors.Is(err, upgradestate.ErrOutdated):
		e.Log.Debug("shard is left to its owner", zap.Int("shard", s.lock.Shard), zap.Error(err))
	default:
		if e.isNews(err) {
			e.Log.Error("shards of the data update are given up", zap.Int("such as", s.lock.Shard), zap.Error(err))
		}
	}
}

// persist repeats f until it succeeds, ctx ends, or the shard turns out to be somebody
// else's.
func (s *shard) persist(ctx context.Context, f func(context.Context) error) error {
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
	failed := false
	err := backoff.Retry(func() error {
		err := f(ctx)
		var refused *upgradestate.RefusedError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return backoff.Permanent(ctx.Err())
		case errors.Is(err, coord.ErrConflict), errors.Is(err, upgradestate.ErrOutdated), errors.As(err, &refused):
			return backoff.Permanent(err)
		}
		if first := s.engine.setProblem(err.Error()); first && !failed {
			s.engine.Log.Warn("data update goes on after an error", zap.Int("such as shard", s.lock.Shard), zap.Error(err))
		}
		failed = true
		return err
	}, backoff.WithContext(policy, ctx))
	if failed && err == nil {
		s.engine.setProblem("")
	}
	return err
}

// setProblem notes an error that work goes on after; first: there was none. Of all shards that
// a database is away for one says so.
func (e *Engine) setProblem(text string) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first = e.problem == ""
	e.problem = text
	return first
}

// isNews reports whether an error is another one than the latest that ended a shard's part.
func (e *Engine) isNews(err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	is := e.gaveUp != err.Error()
	e.gaveUp = err.Error()
	return is
}

// mayTell reports whether one more record that is not updated may be logged; all of them are
// counted, and some of each shard kept.
func (r *run) mayTell() bool { return r.told.Add(1) <= mostTold }

// mostTold bounds the lines of a run at one controller.
const mostTold = 20

func (s *shard) set(c Checkpoint) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.at, s.loaded = c, true
}

// load goes on where the shard's former owner was, or begins.
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
	default:
		c.Done = true
	}
	s.saved = time.Now()
	s.set(c)
	return nil
}

func (s *shard) save(ctx context.Context) error {
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

// page brings the next page through the task.
func (s *shard) page(ctx context.Context) error {
	e := s.engine
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
		e.Log.Warn("record is not updated", zap.String("update", s.run.update.Name), zap.String("key", f.Key), zap.String("error", f.Error))
	}
	s.set(next)
	return nil
}

// withExamples adds examples up to their limit. It never writes to have.
func withExamples(have, more []Failure) []Failure {
	out := append([]Failure(nil), have...)
	return append(out, more[:min(len(more), maxExamples-len(out))]...)
}

// awaitPlace is where the kind can be written now, or as soon as it can be.
func (e *Engine) awaitPlace(ctx context.Context, kind string) (record.Token, error) {
	for {
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

// token is where clients write a kind of the current version; ok is false while they must
// not.
func token(d upgradestate.Deployment, kind string) (tok record.Token, ok bool) {
	_, places := upgradestate.WritePlaces(d)
	for _, p := range places {
		if p.Kind == kind {
			return record.Token{Kind: kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}, true
		}
	}
	return record.Token{}, false
}
