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

// now returns the latest observed Deployment record.
func (s *system) now() upgradestate.Deployment {
	if d := s.latest.Load(); d != nil {
		return *d
	}
	return upgradestate.Deployment{}
}

// begin starts the upgrade. With hold it stays ready and never switches.
func (s *system) begin(ctx context.Context, hold bool) error {
	_, err := s.store.Apply(ctx, upgradestate.Begin{ID: "bench", TargetVersion: "v2", Policy: upgradestate.Policy{Hold: hold}})
	return err
}

// poll calls ok until it returns true or an error. It fails early if a controller process ends.
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
		// Without this check a crashed controller would cost the whole deadline.
		for _, p := range s.processes {
			if !p.Running() {
				return s.failed(errors.New("a controller has ended"))
			}
		}
	}
}

// failed adds the last log line of each controller.
func (s *system) failed(err error) error {
	for _, log := range s.logs {
		err = fmt.Errorf("%w; %s", err, subprocess.Tail(log, 1))
	}
	return err
}

// awaitReady waits until each shard is copied and compared. For an upgrade it also waits for the
// end of the rollback proof, after which the controller can predict the pause.
func (s *system) awaitReady(ctx context.Context, upgrade bool) error {
	return s.poll(ctx, 20*time.Millisecond, func() (bool, error) {
		// Reports arrive one by one, so a missing shard is not ready.
		ps, err := s.store.Progress(ctx)
		if err != nil || len(ps) != ring || slices.ContainsFunc(ps, func(p syncer.Progress) bool { return p.State != "ready" }) {
			return false, err
		}
		if !upgrade {
			return true, nil
		}
		// The prediction exists only after the proof of the rollback.
		readiness, err := s.store.Readiness(ctx)
		return err == nil && readiness != nil && readiness.PredictedPauseMillis != nil, err
	})
}

// awaitCopied waits until the target has that many records. The counts come from collection
// metadata, so the poll does not disturb the copy.
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

// targets returns the collections of v2.
func (s *system) targets() (out []*mongo.Collection) {
	d := s.now()
	ns, _ := d.Namespace("v2")
	for _, k := range ns.Kinds {
		// A kind has no collection until a controller has created it.
		if k.Physical != "" {
			out = append(out, s.to.client.Database(s.target).Collection(k.Physical))
		}
	}
	return out
}

// processorTime returns the total of all controllers, and peakMemory the largest of any one.
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
