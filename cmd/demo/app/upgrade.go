package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/sample/bbs"
	"dbcontroller.dev/upgradestate"
)

// upgraded is what was seen of the upgrade, and of the ways back and forth after it.
type upgraded struct {
	record   upgradestate.Deployment // after the last switch
	copyRate int
	switches []switched
	parked   int
}

// switched is what was seen of one switch.
type switched struct {
	from, to string
	start    time.Time // of SWITCHING
	phases   Phases
}

// upgrade drives traffic, moves the deployment to the new version meanwhile, and back and
// forth as often as is asked for, and stops the traffic some time after that.
func (r *run) upgrade(ctx context.Context, t *traffic) (u upgraded, err error) {
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), callPatience)
		defer cancel()
		err = errors.Join(err, t.app.Close(ended))
	}()
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
	work, wctx := errgroup.WithContext(gctx)
	t.drive(wctx, work, stop)
	g.Go(func() error {
		defer unwatch()
		defer func() { _ = work.Wait() }() // clients return no errors; they count them
		defer close(stop)
		u, err = r.moves(gctx, t, line)
		if err != nil {
			unwatch() // nobody waits for calls that are held up
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return u, err
	}
	res, err := r.apis()[0].ListParked(ctx, connect.NewRequest(&dbv1.ListParkedRequest{}))
	if err != nil {
		return u, fmt.Errorf("ask for what is parked: %w", err)
	}
	u.parked = len(res.Msg.GetParked())
	return u, nil
}

// moves switches as often as is asked for.
func (r *run) moves(ctx context.Context, t *traffic, line *timeline) (u upgraded, err error) {
	r.say("%d clients drive %d writes and %d reads a second", 5*r.Writers, r.Rate, r.Rate)
	if err := sleep(ctx, r.Warm); err != nil {
		return u, err
	}
	from, to := oldVersion, newVersion
	for i := range r.Switches {
		rate, s, err := r.move(ctx, t, line, from, to)
		if err != nil {
			return u, fmt.Errorf("switch %d, to %s: %w", i+1, to, err)
		}
		if i == 0 {
			u.copyRate = rate
		}
		u.switches = append(u.switches, s)
		from, to = to, from
	}
	_, _, u.record = line.window()
	return u, nil
}

// move begins an upgrade and sees it through, and lets clients go on for a while.
func (r *run) move(ctx context.Context, t *traffic, line *timeline, from, to string) (copyRate int, s switched, err error) {
	if to == newVersion {
		t.service.newAPI.open()
	} else {
		t.service.newAPI.close()
	}
	_, before, _ := line.window()
	api := r.apis()[0]
	begin, err := r.begin(ctx, api, to)
	if err != nil {
		return 0, s, err
	}
	begun := time.Now()
	r.say("before it: %s", t.tally.latency())
	r.say("the upgrade to %s has begun", to)
	progress := &progress{}
	g, gctx := errgroup.WithContext(ctx)
	flipped, arrived := context.WithCancel(gctx)
	defer arrived()
	if before == 0 {
		g.Go(func() error {
			n, err := copyMeter(flipped, r.operators(), ringSize, progress.copied)
			if err != nil {
				if flipped.Err() != nil && gctx.Err() == nil {
					return nil // it has switched, so it was copied; only the rate is not known
				}
				return err
			}
			took := time.Since(begun)
			copyRate = int(float64(n.docs) / took.Seconds())
			r.say("all shards are copied: %d documents in %.2f s, %d a second", n.docs, took.Seconds(), copyRate)
			r.say("meanwhile: %s", t.tally.latency())
			return nil
		})
	}
	g.Go(func() error { return r.show(flipped, api, progress) })
	g.Go(func() error {
		defer arrived()
		return line.awaitFlip(gctx, to, begin.GetRevision(), r.Patience, progress.moved)
	})
	if err := g.Wait(); err != nil {
		return copyRate, s, err
	}
	if err := r.cool(ctx, t, to, time.Now()); err != nil {
		return copyRate, s, err
	}
	start, switches, _ := line.window()
	if switches != before+1 {
		r.say("SWITCHING began %d times; the pause is that of the last", switches-before)
	}
	s = switched{from: from, to: to, start: start}
	s.phases, err = r.measured(ctx, to)
	return copyRate, s, err
}

// begin begins an upgrade as soon as the controllers offer it: after a switch they have to
// see it first.
func (r *run) begin(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, to string) (*dbv1.Deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for {
		res, err := api.BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{TargetVersion: to, TotalShardsCount: ringSize}))
		if err == nil {
			return res.Msg, nil
		}
		if connect.CodeOf(err) != connect.CodeFailedPrecondition || sleep(ctx, 50*time.Millisecond) != nil {
			return nil, fmt.Errorf("begin the upgrade: %w", err)
		}
	}
}

// cool lets clients go on after a switch, until every path has written on the version that
// is active now.
func (r *run) cool(ctx context.Context, t *traffic, version string, flipped time.Time) error {
	r.say("since then: %s", t.tally.latency())
	r.say("driving on")
	if err := sleep(ctx, r.Cool); err != nil {
		return err
	}
	paths := []string{pathV1, pathPackages}
	if version == newVersion {
		paths = append(paths, pathV2)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(r.Patience)
	defer patience.Stop()
	for !t.tally.wroteOn(version, flipped, paths) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return fmt.Errorf("not every path has written on %s", version)
		case <-tick.C:
		}
	}
	acked, failed := t.tally.progress()
	r.say("since the switch: %s", t.tally.latency())
	r.say("%d writes are acknowledged, %d failed", acked, failed)
	return nil
}

func (r *run) operators() []string {
	var out []string
	for _, c := range r.controllers {
		out = append(out, c.operator)
	}
	return out
}

// measured asks for what the driver and the servers measured of the switch to a version.
// Servers publish the time of their restart after it, so it is waited for.
func (r *run) measured(ctx context.Context, to string) (Phases, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for {
		res, err := r.apis()[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			return Phases{}, fmt.Errorf("ask for the measured times: %w", err)
		}
		millis := res.Msg.GetLastSwitch().GetMillis()
		p := Phases{Hold: int64(millis["hold"]), Fence: int64(millis["fence"]), Drain: int64(millis["drain"]), Flip: int64(millis["flip"])}
		restarted := 0
		for _, s := range res.Msg.GetServers() {
			if s.GetClient() || s.GetActiveVersion() != to || s.GetRestartMillis() == 0 {
				continue
			}
			p.Restart = max(p.Restart, int64(s.GetRestartMillis()))
			restarted++
		}
		if restarted >= len(r.servers) {
			return p, nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return p, fmt.Errorf("wait for the servers' restart times, %d of %d are known: %w", restarted, len(r.servers), err)
		}
	}
}

// fences is how late writers are kept out of what clients wrote in the old version: the
// services' kinds, and the application's collection.
func fences(d upgradestate.Deployment) map[string]string {
	out := map[string]string{}
	ns, _ := d.Namespace(oldVersion)
	for _, k := range ns.Kinds {
		if k.Kind == bbs.KindDesiredLRPs {
			out["bbs"] = k.Fence
		} else {
			out[k.Kind] = k.Fence
		}
	}
	return out
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
