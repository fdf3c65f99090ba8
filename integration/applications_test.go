package integration_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// roundTrip takes an application of four processes forward, back and forward once more, and
// completes the old version behind views: one process sleeps through each switch, the rollback
// too, with a write in its hand that the fence refuses, one is killed,
// one does not cooperate, and a controller is killed. No acknowledged write is lost or there
// twice, and no read finds nothing where there is something.
func roundTrip(t *testing.T, fence record.FenceClass, start func(part applicationPart) *exec.Cmd) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{service: "shop", lens: applicationUsers, kinds: fmt.Sprintf(applicationKinds, fence)})
	s.write("orders.yaml", applicationOrders)
	a := applications{s: s, ledger: newLedger("record"), start: start, keep: fence == record.FenceValidator}
	a.fill(ctx)
	first, second := s.controller("first", breakPoint{}).ready(ctx), s.controller("second", breakPoint{}).ready(ctx)
	api1, _ := first.addresses()
	api2, _ := second.addresses()
	const nobody = "127.0.0.1:1"
	one, asleep := a.process("one", api1, nobody, api2), a.process("asleep", api2, api1)
	dies, alone := a.process("dies", nobody, api1, api2), a.process("alone")
	for _, p := range []*applicationProcess{one, asleep, dies, alone} {
		p.goesOn(ctx, "v1")
	}
	cooperate := []*applicationProcess{one, asleep, dies}
	var d upgradestate.Deployment
	for i, to := range []string{"v2", "v1", "v2"} {
		if to == "v1" {
			dies.kill()
			cooperate[2] = a.process("replaces", api1, api2)
			cooperate[2].goesOn(ctx, "v2")
			s.awaitClients(ctx, 3)
			s.kill(first)
		}
		asleep.fallsAsleep(ctx, []string{orderTransaction, orderUpdate, orderUpdate}[i])
		s.beginTo(ctx, to)
		d = s.await(ctx, fmt.Sprintf("flip %d, to %s", i+1, to), flipped(to))
		t.Logf("flip %d to %s: phases %v", i+1, to, d.LastSwitch.Millis)
		one.goesOn(ctx, to)
		asleep.wakes(ctx)
		for _, p := range cooperate {
			p.goesOn(ctx, to)
		}
		if to == "v1" {
			alone.goesOn(ctx, "v1")
		} else {
			alone.isTold(ctx, false)
		}
	}
	// Where names are free for a moment then, one that does not cooperate finds that.
	if fence == record.FenceView {
		s.complete(ctx, d, "v1", 0)
		s.await(ctx, "the end of v1", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, "v1") })
		alone.isTold(ctx, true)
	}
	for _, p := range append(cooperate, alone) {
		p.end(ctx)
	}
	servers, err := s.record.Servers(ctx)
	if err != nil || len(servers) > 0 {
		t.Errorf("after they ended %d are registered: %v, %v", len(servers), servers, err)
	}
	<-dies.heard
	a.check(ctx, "v2", one, asleep, dies, alone)
}

// check compares what processes were told with what there is.
func (a applications) check(ctx context.Context, version string, processes ...*applicationProcess) {
	t := a.s.t
	t.Helper()
	seen, err := a.look(ctx, version)
	if err != nil {
		t.Fatal(err)
	}
	a.s.report(a.ledger.check("MongoDB", seen))
	a.s.report(a.ledger.failures())
	reads := 0
	for _, p := range processes {
		if p.reads == 0 {
			t.Errorf("%s has read nothing", p.name)
		}
		reads += p.reads
	}
	t.Logf("%d records, %d reads", len(seen), reads)
}

// awaitClients waits until so many clients are registered.
func (s *system) awaitClients(ctx context.Context, n int) {
	s.t.Helper()
	eventually(ctx, s.t, "the end of a dead process's registration", func() error {
		servers, err := s.record.Servers(ctx)
		if err == nil && len(servers) != n {
			err = fmt.Errorf("%d are registered", len(servers))
		}
		return err
	})
}

// TestApplicationsBehindViews: processes in Go, with package appclient, and in JavaScript, with
// clients/node and the official driver. The one that sleeps is in Go.
func TestApplicationsBehindViews(t *testing.T) {
	t.Parallel()
	raceProcesses(t)
	roundTrip(t, record.FenceView, alternately(inNode(t), inGo(t)))
}

// TestApplicationsBehindValidators: the same with the languages exchanged, where the database refuses
// by validators.
func TestApplicationsBehindValidators(t *testing.T) {
	t.Parallel()
	roundTrip(t, record.FenceValidator, alternately(inGo(t), inNode(t)))
}

// TestApplicationsBehindAWriteBlock: the block stands for all of a cluster, so that each version
// has one of its own, and processes in both languages change their servers with each switch.
func TestApplicationsBehindAWriteBlock(t *testing.T) {
	t.Parallel()
	start := alternately(inNode(t), inGo(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	uris, own := map[string]string{}, map[string]string{}
	for _, v := range []string{"v1", "v2"} {
		uris[v] = authServer(ctx, t).URI()
		own[v] = withLogin(uris[v], "shop:"+secret)
	}
	s := newSystem(ctx, t, settings{service: "shop", lens: applicationUsers, kinds: fmt.Sprintf(applicationKinds, record.FenceWriteBlock), uris: uris})
	s.write("orders.yaml", applicationOrders)
	for _, v := range []string{"v1", "v2"} {
		roles := bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: s.db[v].Name()}}}
		if err := s.db[v].Client().Database("admin").RunCommand(ctx, bson.D{
			{Key: "createUser", Value: "shop"}, {Key: "pwd", Value: secret}, {Key: "roles", Value: roles},
		}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a := applications{s: s, ledger: newLedger("record"), start: start, uris: own}
	a.fill(ctx)
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	one, asleep, alone := a.process("one", api), a.process("asleep", api), a.process("alone")
	for _, p := range []*applicationProcess{one, asleep, alone} {
		p.goesOn(ctx, "v1")
	}
	for _, to := range []string{"v2", "v1"} {
		asleep.fallsAsleep(ctx, map[string]string{"v2": orderUpdate, "v1": orderTransaction}[to])
		s.beginTo(ctx, to)
		d := s.await(ctx, "the flip to "+to, flipped(to))
		t.Logf("flip to %s: phases %v", to, d.LastSwitch.Millis)
		one.goesOn(ctx, to)
		asleep.wakes(ctx)
		asleep.goesOn(ctx, to)
		if to == "v1" {
			alone.goesOn(ctx, "v1")
		} else {
			alone.isTold(ctx, false)
		}
	}
	for _, p := range []*applicationProcess{one, asleep, alone} {
		p.end(ctx)
	}
	a.check(ctx, "v1", one, asleep, alone)
}
