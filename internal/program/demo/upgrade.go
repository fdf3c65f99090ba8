package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/examples/bbs"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// upgraded is the result of all switches of a run.
type upgraded struct {
	copyRate int
	switches []switched
	parked   int
}

// switched is the result of one switch of both deployments.
type switched struct {
	from, to string
	start    map[*deployed]time.Time // of SWITCHING
	paths    map[*deployed][]string  // on which the deployment's clients write
	phases   Phases                  // the longer of both deployments'
}

// pause returns the write pause over the clients of both deployments.
func (s switched) pause(writes []write) Pause {
	var felt []time.Duration
	for d, paths := range s.paths {
		own := slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return !slices.Contains(paths, w.path) })
		felt = append(felt, underWay(own, s.start[d], s.to)...)
	}
	return pauseOf(felt)
}

// upgrade runs the traffic and, meanwhile, all switches that the options ask for. The traffic
// continues for a while after the last switch.
func (r *run) upgrade(ctx context.Context, t *traffic) (u upgraded, err error) {
	if err := r.openEtcd(ctx); err != nil {
		return u, err
	}
	stop := make(chan struct{})
	// Clients work until stop is closed. Processes and records are watched until the clients are
	// done, so that a process that ends under them is noticed.
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	g, gctx := errgroup.WithContext(watching)
	for _, c := range r.children() {
		g.Go(func() error { return watch(gctx, c) })
	}
	for _, d := range r.deployments() {
		g.Go(func() error { d.line.follow(gctx, d.record); return nil })
	}
	work, wctx := errgroup.WithContext(gctx)
	t.drive(wctx, work, stop)
	g.Go(func() error {
		defer unwatch()
		defer func() { _ = work.Wait() }() // clients return no errors; they count them
		defer close(stop)
		u, err = r.moves(gctx, t)
		if err != nil {
			unwatch() // do not wait for calls that are held
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return u, err
	}
	for _, d := range r.deployments() {
		req := &dbv1.ListParkedRequest{}
		for more := true; more; more = req.GetPageToken() != "" {
			res, err := d.apis(r.http)[0].ListParked(ctx, connect.NewRequest(req))
			if err != nil {
				return u, fmt.Errorf("list parked records: %w", err)
			}
			u.parked += len(res.Msg.GetParked())
			req = &dbv1.ListParkedRequest{PageToken: res.Msg.GetNextPageToken()}
		}
	}
	return u, nil
}

// moves makes the requested number of switches, back and forth.
func (r *run) moves(ctx context.Context, t *traffic) (u upgraded, err error) {
	r.say("%d clients drive %d writes and %d reads a second", 5*r.Writers, r.Rate, r.Rate)
	if err := sleep(ctx, r.Warm); err != nil {
		return u, err
	}
	from, to := oldVersion, newVersion
	for i := range r.Switches {
		rate, s, err := r.move(ctx, t, from, to)
		if err != nil {
			return u, fmt.Errorf("switch %d, to %s: %w", i+1, to, err)
		}
		// Only the first switch copies everything.
		if i == 0 {
			u.copyRate = rate
		}
		u.switches = append(u.switches, s)
		from, to = to, from
	}
	for _, d := range r.deployments() {
		_, _, d.after = d.line.window()
	}
	return u, nil
}

// move upgrades both deployments, waits for both flips, and lets clients continue for a while. A
// cell of the BBS crashes while the services switch.
func (r *run) move(ctx context.Context, t *traffic, from, to string) (copyRate int, s switched, err error) {
	// A switch back makes the v2 API read-only, so clients must leave it before.
	if to == newVersion {
		t.service.newAPI.open()
	} else {
		t.service.newAPI.close()
	}
	r.say("before it: %s", t.tally.latency())
	before, revision := map[*deployed]int{}, map[*deployed]int64{}
	// Note the count of switches before, so that crash and pause refer to this switch only.
	for _, d := range r.deployments() {
		_, before[d], _ = d.line.window()
		begin, err := r.begin(ctx, d, to)
		if err != nil {
			return 0, s, err
		}
		revision[d] = begin.GetRevision()
	}
	since := time.Now()
	r.say("the upgrades to %s have begun", to)
	progress := &progress{}
	var copying meter
	g, gctx := errgroup.WithContext(ctx)
	for _, d := range r.deployments() {
		until, flipped := context.WithCancel(gctx)
		defer flipped()
		g.Go(func() error {
			defer flipped()
			return d.line.awaitFlip(gctx, to, revision[d], r.Patience, progress.moved)
		})
		g.Go(func() error { return r.show(until, d, progress) })
		// Only the first switch copies. Later ones follow by reverse sync.
		if before[d] == 0 {
			g.Go(func() error {
				n, err := copyMeter(until, operators(d), ringSize, progress.copied)
				if err != nil && until.Err() != nil && gctx.Err() == nil {
					return nil // switched already, so copied; only the rate is unknown
				}
				copying.add(n.docs, time.Since(since))
				return err
			})
		}
		if d == r.services {
			g.Go(func() error { return t.cells.crash(until, d.line, before[d], r.say) })
		}
	}
	if err := g.Wait(); err != nil {
		return 0, s, err
	}
	if docs, took := copying.sum(); docs > 0 {
		copyRate = int(float64(docs) / took.Seconds())
		r.say("%d documents were copied in %.2f s, %d a second", docs, took.Seconds(), copyRate)
	}
	if err := r.cool(ctx, t, to, time.Now()); err != nil {
		return copyRate, s, err
	}
	s = switched{from: from, to: to, start: map[*deployed]time.Time{}, paths: map[*deployed][]string{
		r.services: {pathV1, pathV2}, r.application: {pathPackages},
	}}
	for _, d := range r.deployments() {
		start, switches, _ := d.line.window()
		if switches != before[d]+1 {
			r.say("%s: SWITCHING began %d times; the pause is that of the last", d.name, switches-before[d])
		}
		s.start[d] = start
		phases, err := r.measured(ctx, d, to)
		if err != nil {
			return copyRate, s, err
		}
		s.phases = s.phases.longer(phases)
	}
	return copyRate, s, nil
}

// begin begins an upgrade as soon as the controllers offer it. After a switch they need a moment to
// detect it.
func (r *run) begin(ctx context.Context, d *deployed, to string) (*dbv1.Deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	for {
		res, err := d.apis(r.http)[0].BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{TargetVersion: to, TotalShardsCount: ringSize}))
		if err == nil {
			return res.Msg, nil
		}
		// FailedPrecondition means that the upgrade is not available yet.
		if connect.CodeOf(err) != connect.CodeFailedPrecondition || sleep(ctx, 50*time.Millisecond) != nil {
			return nil, fmt.Errorf("begin the upgrade of the %s: %w", d.name, err)
		}
	}
}

// cool lets clients continue after a switch until every path has written on the active version.
func (r *run) cool(ctx context.Context, t *traffic, version string, flipped time.Time) error {
	r.say("since then: %s", t.tally.latency())
	r.say("driving on")
	if err := sleep(ctx, r.Cool); err != nil {
		return err
	}
	// While v1 is active, clients do not write through the v2 API.
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

// meter adds up the copies of several deployments that run at the same time.
type meter struct {
	mu   sync.Mutex
	docs int64
	took time.Duration // the longest
}

func (m *meter) add(docs int64, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.docs, m.took = m.docs+docs, max(m.took, took)
}

func (m *meter) sum() (int64, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.docs, m.took
}

func operators(d *deployed) []string {
	var out []string
	for _, c := range d.controllers {
		out = append(out, c.operator)
	}
	return out
}

// measured returns the durations that the driver and the servers measured for the switch to a
// version. It waits for all servers to publish the duration of their restart.
func (r *run) measured(ctx context.Context, d *deployed, to string) (Phases, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	servers := 0
	if d == r.services {
		servers = len(r.servers)
	}
	for {
		// Servers publish their restart after the flip, so ask until all have.
		res, err := d.apis(r.http)[0].GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
		if err != nil {
			return Phases{}, fmt.Errorf("ask for the measured times: %w", err)
		}
		millis := res.Msg.GetLastSwitch().GetMillis()
		p := Phases{Hold: int64(millis["hold"]), Fence: int64(millis["fence"]), Drain: int64(millis["drain"]), Flip: int64(millis["flip"])}
		restarted := 0
		for _, s := range res.Msg.GetServers() {
			// Skip applications, and servers that still report the switch before.
			if s.GetClient() || s.GetActiveVersion() != to || s.GetRestartMillis() == 0 {
				continue
			}
			p.Restart = max(p.Restart, int64(s.GetRestartMillis()))
			restarted++
		}
		if restarted >= servers {
			return p, nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return p, fmt.Errorf("wait for the servers' restart times, %d of %d are known: %w", restarted, servers, err)
		}
	}
}

// fences returns the fence class of the old version's collections, by service or kind.
func fences(d upgradestate.Deployment) map[string]string {
	out := map[string]string{}
	ns, _ := d.Namespace(oldVersion)
	for _, k := range ns.Kinds {
		switch k.Kind {
		case bbs.KindDesiredLRPs:
			out["bbs"] = k.Fence
		case bbs.KindActualLRPs, bbs.KindCells, bbs.KindTasks: // same as the processes
		default:
			out[k.Kind] = k.Fence
		}
	}
	return out
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
