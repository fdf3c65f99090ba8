package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	dbv1 "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/upgradestate"
)

// upgraded is what was seen of the upgrade.
type upgraded struct {
	record   upgradestate.Deployment // after the switch
	start    time.Time               // of SWITCHING
	copyRate int
	phases   Phases
	parked   int
}

// upgrade drives traffic, moves the deployment to the new version meanwhile, and stops
// the traffic some time after that.
func (r *run) upgrade(ctx context.Context, t *traffic) (u upgraded, err error) {
	store, err := r.openEtcd(ctx)
	if err != nil {
		return u, err
	}
	line := newTimeline(r.note)
	stop := make(chan struct{})
	// Clients work until stop; what watches them, and the processes, until they are done.
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	g, gctx := errgroup.WithContext(watching)
	for _, c := range r.children() {
		g.Go(func() error { return watch(gctx, c) })
	}
	g.Go(func() error { line.follow(gctx, store); return nil })
	g.Go(func() error { return t.app.follow(gctx) })
	g.Go(func() error { return t.app.renew(gctx) })
	work, wctx := errgroup.WithContext(gctx)
	t.drive(wctx, work, stop)
	g.Go(func() error {
		defer unwatch()
		defer func() { _ = work.Wait() }() // clients return no errors; they count them
		defer close(stop)
		u, err = r.move(gctx, t, line)
		if err != nil {
			unwatch() // nobody waits for calls that are held up
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return u, err
	}
	return u, r.measured(ctx, &u)
}

// move begins the upgrade and sees it through, and lets clients go on for a while.
func (r *run) move(ctx context.Context, t *traffic, line *timeline) (u upgraded, err error) {
	r.say("%d clients drive %d writes and %d reads a second", 4*r.Writers, r.Rate, r.Rate)
	if err := sleep(ctx, r.Warm); err != nil {
		return u, err
	}
	api := r.apis()[0]
	begin, err := api.BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{TargetVersion: newVersion, TotalShardsCount: ringSize}))
	if err != nil {
		return u, fmt.Errorf("begin the upgrade: %w", err)
	}
	begun := time.Now()
	r.say("before it: %s", t.tally.latency())
	r.say("the upgrade to %s has begun", newVersion)
	progress := &progress{}
	g, gctx := errgroup.WithContext(ctx)
	flipped, arrived := context.WithCancel(gctx)
	g.Go(func() error {
		n, err := copyMeter(flipped, r.operators(), ringSize, progress.copied)
		if err != nil {
			if flipped.Err() != nil && gctx.Err() == nil {
				return nil // it has switched, so it was copied; only the rate is not known
			}
			return err
		}
		took := time.Since(begun)
		u.copyRate = int(float64(n.docs) / took.Seconds())
		r.say("all shards are copied: %d documents in %.2f s, %d a second", n.docs, took.Seconds(), u.copyRate)
		r.say("meanwhile: %s", t.tally.latency())
		return nil
	})
	g.Go(func() error { return r.show(flipped, api, progress) })
	g.Go(func() error {
		defer arrived()
		return line.awaitFlip(gctx, begin.Msg.GetRevision(), r.Patience, progress.moved)
	})
	if err := g.Wait(); err != nil {
		return u, err
	}
	arrived()
	if err := r.cool(ctx, t); err != nil {
		return u, err
	}
	var switches int
	u.start, switches, u.record = line.window()
	if switches != 1 {
		r.say("SWITCHING began %d times; the pause is that of the last", switches)
	}
	return u, nil
}

// cool lets clients go on after the switch, until every path has written there.
func (r *run) cool(ctx context.Context, t *traffic) error {
	r.say("since then: %s", t.tally.latency())
	r.say("driving on")
	if err := sleep(ctx, r.Cool); err != nil {
		return err
	}
	paths := []string{pathV1, pathV2, pathPackages}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(r.Patience)
	defer patience.Stop()
	for !t.tally.onNew(paths) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return errors.New("not every path has written on the new version")
		case <-tick.C:
		}
	}
	acked, failed := t.tally.progress()
	r.say("since the switch: %s", t.tally.latency())
	r.say("%d writes are acknowledged, %d failed; clients stop", acked, failed)
	return nil
}

func (r *run) operators() []string {
	var out []string
	for _, c := range r.controllers {
		out = append(out, c.operator)
	}
	return out
}

// measured asks for what the driver and the servers measured, and for what is parked.
// Servers publish the time of their restart after it, so it is waited for.
func (r *run) measured(ctx context.Context, u *upgraded) error {
	api := r.apis()[0]
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for {
		res, err := api.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			return fmt.Errorf("ask for the measured times: %w", err)
		}
		millis := res.Msg.GetLastSwitch().GetMillis()
		u.phases = Phases{Hold: int64(millis["hold"]), Fence: int64(millis["fence"]), Drain: int64(millis["drain"]), Flip: int64(millis["flip"])}
		restarted := 0
		for _, s := range res.Msg.GetServers() {
			u.phases.Restart = max(u.phases.Restart, int64(s.GetRestartMillis()))
			if !s.GetClient() && s.GetRestartMillis() > 0 {
				restarted++
			}
		}
		if restarted >= len(r.servers) {
			break
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the servers' restart times, %d of %d are known: %w", restarted, len(r.servers), err)
		}
	}
	res, err := api.ListParked(ctx, connect.NewRequest(&dbv1.ListParkedRequest{}))
	if err != nil {
		return fmt.Errorf("ask for what is parked: %w", err)
	}
	u.parked = len(res.Msg.GetParked())
	return nil
}

// fences is how late writers are kept out of what clients wrote before: the service's
// kinds, and the application's collection.
func fences(d upgradestate.Deployment) map[string]string {
	out := map[string]string{}
	ns, _ := d.Namespace(oldVersion)
	for _, k := range ns.Kinds {
		if k.Fixed {
			out[k.Kind] = k.Fence
		} else {
			out["bbs"] = k.Fence
		}
	}
	return out
}
