package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/subprocess"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// now is the newest record that was seen.
func (s *system) now() upgradestate.Deployment {
	if d := s.latest.Load(); d != nil {
		return *d
	}
	return upgradestate.Deployment{}
}

// begin begins the upgrade; hold: it stays ready and is never switched.
func (s *system) begin(ctx context.Context, hold bool) error {
	_, err := s.store.Apply(ctx, upgradestate.Begin{ID: "bench", TargetVersion: "v2", Policy: upgradestate.Policy{Hold: hold}})
	return err
}

// poll asks ok until it is, or a controller has ended.
func (s *system) poll(ctx context.Context, every time.Duration, ok func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return s.failed(ctx.Err())
		case <-tick.C:
		}
		for _, p := range s.processes {
			if !p.Running() {
				return s.failed(errors.New("a controller has ended"))
			}
		}
	}
}

// failed adds what the controllers said last.
func (s *system) failed(err error) error {
	for _, log := range s.logs {
		err = fmt.Errorf("%w; %s", err, subprocess.Tail(log, 1))
	}
	return err
}

// awaitReady waits until every shard is copied and compared and, for an upgrade, the proof of the
// rollback is over, after which the pause can be predicted.
func (s *system) awaitReady(ctx context.Context, upgrade bool) error {
	return s.poll(ctx, 20*time.Millisecond, func() (bool, error) {
		ps, err := s.store.Progress(ctx)
		if err != nil || len(ps) != ring || slices.ContainsFunc(ps, func(p syncer.Progress) bool { return p.State != "ready" }) {
			return false, err
		}
		if !upgrade {
			return true, nil
		}
		readiness, err := s.store.Readiness(ctx)
		return err == nil && readiness != nil && readiness.PredictedPauseMillis != nil, err
	})
}

// awaitCopied waits until the target has so many records. Counts come from the collections'
// metadata and cost nothing.
func (s *system) awaitCopied(ctx context.Context, records int) error {
	return s.poll(ctx, 10*time.Millisecond, func() (bool, error) {
		n := 0
		for _, c := range s.targets() {
			has, err := c.EstimatedDocumentCount(ctx)
			if err != nil {
				return false, err
			}
			n += int(has)
		}
		return n >= records, nil
	})
}

// targets are the collections of v2.
func (s *system) targets() (out []*mongo.Collection) {
	d := s.now()
	ns, _ := d.Namespace("v2")
	for _, k := range ns.Kinds {
		if k.Physical != "" {
			out = append(out, s.to.client.Database(s.target).Collection(k.Physical))
		}
	}
	return out
}

// processorTime and peakMemory are those of all controllers, and of the one with most.
func (s *system) processorTime() (seconds float64) {
	for _, p := range s.processes {
		seconds += processorTime(p.Pid())
	}
	return seconds
}

func (s *system) peakMemory() (mb float64) {
	for _, p := range s.processes {
		mb = max(mb, peakMemory(p.Pid()))
	}
	return mb
}

func (s *system) spentNow() spent { return s.bench.spentNow(s.from, s.to, s.processorTime()) }
