package integration_test

import (
	"context"
	"testing"
	"time"

	"dbcontroller.dev/upgradestate"
)

// outage is how long a majority of etcd is away: five times what a lease lasts.
const outage = 5 * lease

// TestEtcdMembers kills the leader of three etcd members, and then takes their majority
// away, in the copy, in the tail and inside SWITCHING, under traffic. Servers go on: in the
// active version writes succeed for as long as etcd is away, and inside SWITCHING, when no
// version takes writes, reads do. No call fails, nothing is lost, and the switch goes on or
// is aborted and made again.
func TestEtcdMembers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	w := &withMembers{members: startMembers(ctx, t, nil)}
	w.system = newSystem(ctx, t, settings{etcd: w.endpoints(), toSwitch: "{deadline: 20s, maxLag: 3s}"})
	w.traffic = newTraffic(ctx, w.system, documents)
	w.controller = w.stepping("controller").ready(ctx)
	w.traffic.start(ctx, w.server("server", 0).ready(ctx))
	w.traffic.awaitWrites(ctx, "v1", 10)

	w.pace(ctx, 10) // minutes
	w.beginHolding(ctx, "v2")
	w.inTheCopy(ctx, documents)
	w.killLeader(ctx)
	w.inTheCopy(ctx, documents)
	w.loseMajority(ctx, func() { w.clientsWrite(ctx, 2*lease) })
	w.pace(ctx, 0)
	w.awaitSync(ctx)
	w.killLeader(ctx)
	w.loseMajority(ctx, func() { w.clientsWrite(ctx, outage) })
	w.awaitSync(ctx)

	w.goOn(ctx)
	w.awaitStep(ctx, upgradestate.StepHold)
	w.killLeader(ctx)
	w.controller.order(orderStep)
	w.awaitStep(ctx, upgradestate.StepFence)
	w.controller.order(orderStep)
	w.awaitStep(ctx, upgradestate.StepDrain)
	w.loseMajority(ctx, func() {
		w.controller.order(orderRun)
		w.clientsRead(ctx, outage)
	})
	d := w.awaitSwitch(ctx)
	w.traffic.awaitWrites(ctx, "v2", 10)
	w.traffic.settle(ctx, d)
	w.inSync(ctx, w.traffic, "v1")
}

// lease is how long the leases of controllers and servers last.
const lease = 3 * time.Second

// withMembers is a system on three etcd members of its own.
type withMembers struct {
	*system
	*members
	traffic    *traffic
	controller *child
}

// clientsWrite sees both paths write all the time, for a while.
func (w *withMembers) clientsWrite(ctx context.Context, while time.Duration) {
	w.system.t.Helper()
	for since := time.Now(); time.Since(since) < while; {
		for _, l := range []*ledger{w.traffic.processes, w.traffic.packages} {
			w.traffic.await(ctx, "v1", l.count("v1")+10, l)
		}
	}
}

// clientsRead sees a process through the API all the time, for a while.
func (w *withMembers) clientsRead(ctx context.Context, while time.Duration) {
	t := w.system.t
	t.Helper()
	reads := 0
	for since := time.Now(); time.Since(since) < while; reads++ {
		if _, _, err := w.traffic.client.list(ctx, 0); err != nil {
			t.Errorf("read %d, %s after etcd went away: %v", reads, time.Since(since).Round(time.Millisecond), err)
			return
		}
		if pauseFor(ctx, think) != nil {
			return
		}
	}
	t.Logf("%d lists while etcd was away inside SWITCHING", reads)
}

// awaitStep waits until the controller stands still in a step of the switch.
func (w *withMembers) awaitStep(ctx context.Context, step upgradestate.Step) {
	w.system.t.Helper()
	if place := w.controller.awaitReached(ctx); place != string(step) {
		w.system.t.Fatalf("the switch is in step %s, want %s", place, step)
	}
}

// awaitSwitch waits for the flip. A switch that was aborted is begun again if nobody does.
func (w *withMembers) awaitSwitch(ctx context.Context) upgradestate.Deployment {
	w.system.t.Helper()
	ended := func(d upgradestate.Deployment) bool {
		return d.Upgrade == nil && (flipped("v1")(d) || flipped("v2")(d))
	}
	d := w.await(ctx, "the end of the switch", ended)
	if d.CurrentVersion != "v2" {
		w.system.t.Logf("it was aborted: %+v", d.History)
		w.begin(ctx)
		d = w.await(ctx, "the flip", flipped("v2"))
	}
	return d
}
