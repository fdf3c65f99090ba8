package engines

import (
	"slices"
	"sync"
	"time"

	"dbcontroller.dev/syncer"
)

// running holds the running engine, or the reason why none runs.
type running struct {
	mu      sync.Mutex
	now     *syncer.Engine
	all     []*syncer.Engine // now, and engines of ended directions that watch for late deletes
	problem error
	stopped []syncer.Progress // progress of shards, as published when sync stopped with problem
}

// replace sets the running engine. The earlier engine may still watch for late deletes, and stops
// publishing.
func (e *running) replace(now *syncer.Engine) {
	e.mu.Lock()
	before := e.now
	e.now, e.problem, e.stopped = now, nil, nil
	e.all = append(e.all, now)
	e.mu.Unlock()
	// Not under e.mu, because HandOver takes the lock of an engine.
	if before != nil {
		before.HandOver()
	}
}

// late returns the late deletes of a shard that other engines than but have counted.
func (e *running) late(shard int, but *syncer.Engine) (n int64) {
	e.mu.Lock()
	all := slices.Clone(e.all)
	e.mu.Unlock()
	// Not under e.mu, because LateDeletes takes the lock of an engine.
	for _, x := range all {
		if x != but {
			n += x.LateDeletes(shard)
		}
	}
	return n
}

// end records that an engine has ended, and why. It ignores the reason of an engine that was
// replaced.
func (e *running) end(ended *syncer.Engine, problem error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = slices.DeleteFunc(e.all, func(x *syncer.Engine) bool { return x == ended })
	if e.now == ended {
		e.now, e.problem = nil, problem
	}
}

// fail records why no engine could start.
func (e *running) fail(problem error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problem = problem
}

func (e *running) ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

func (e *running) progress() []syncer.Progress {
	e.mu.Lock()
	now, stopped := e.now, e.stopped
	e.mu.Unlock()
	if now == nil {
		return stopped
	}
	return now.Progress()
}

// stages returns the time that the running engine has spent copying, by stage.
func (e *running) stages() map[syncer.Stage]time.Duration {
	e.mu.Lock()
	now := e.now
	e.mu.Unlock()
	if now == nil {
		return nil
	}
	return now.Stages()
}

// stop records the published progress of shards whose sync has stopped.
func (e *running) stop(stopped []syncer.Progress) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = stopped
}

func (e *running) anyStopped() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.stopped) > 0
}
