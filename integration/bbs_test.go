package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/bbs/cell"
	"dbcontroller.dev/examples/bbs/converge"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/gen/bbs/v2/bbsv2connect"
	"dbcontroller.dev/upgradestate"
)

// TestBBS moves the whole BBS from etcd to MongoDB and back, with its reconciler, while owners
// scale and make anew their processes and cells run them, all of them clients of v1. In each
// switch one cell crashes and another one is evacuated, and a client retires an instance; one of the cells that crash is lost for good. No write is lost, and when the owners rest each desired instance runs once.
func TestBBS(t *testing.T) {
	t.Parallel()
	raceProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[]", records: map[string]string{"v1": inEtcd(sharedEtcd.endpoints(t)[0], "")}})
	b := &scheduling{system: s, cells: map[string]*cell.Cell{}, crashes: map[string]func(){}, traffic: &traffic{
		system: s, processes: newLedger("process"), packages: newLedger("package"), alone: true,
	}}
	s.controller("controller", breakPoint{}).ready(ctx)
	for _, id := range []string{"a", "b"} {
		b.servers = append(b.servers, spawn(t, id, command(t, roleServer, nil, s.part(part{ID: id, Flags: []string{"--converge=500ms"}}))).ready(ctx))
	}
	b.run(ctx)
}

// scheduling is a BBS with cells, and the owners of its processes.
type scheduling struct {
	*system
	servers []*child
	traffic *traffic
	owners  []*bbsWriter
	cells   map[string]*cell.Cell
	crashes map[string]func()
}

func (b *scheduling) run(ctx context.Context) {
	t := b.t
	t.Helper()
	for _, id := range []string{"c1", "c2", "c3"} {
		b.startCell(ctx, id)
	}
	b.own(ctx)
	if _, err := b.api1().CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: &bbsv1.DesiredLRP{
		ProcessGuid: steady, Domain: "it", Instances: 1, Definition: &bbsv1.Definition{LogGuid: steady},
	}})); err != nil {
		t.Fatal(err)
	}
	b.traffic.await(ctx, "v1", 20, b.traffic.processes)
	b.await1(ctx, "instances run", func() error {
		if n := len(cell.Census(b.all()...)); n < len(b.owners) {
			return fmt.Errorf("only %d", n)
		}
		return nil
	})

	lost := b.switchTo(ctx, "v2")
	delete(b.cells, lost) // for good
	b.startCell(ctx, "c4")
	b.startCell(ctx, "c5")
	rolled := b.roll(ctx)
	b.traffic.await(ctx, "v2", 20, b.traffic.processes)
	b.startCell(ctx, b.switchTo(ctx, "v1"))
	b.traffic.await(ctx, "v1", b.traffic.processes.count("v1")+20, b.traffic.processes)

	d, err := b.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.traffic.finish()
	b.await1(ctx, "each desired instance runs once", func() error { return b.converged(ctx, rolled) })
	for _, guid := range []string{rolled, steady} {
		if _, err := b.api1().DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: guid})); err != nil {
			t.Error(err)
		}
	}
	x := &crossing{system: b.system, traffic: b.traffic}
	x.same(ctx)
	b.traffic.settle(ctx, d)
}

// await1 is eventually with the troubles of the cells.
func (b *scheduling) await1(ctx context.Context, what string, ok func() error) {
	b.t.Helper()
	eventually(ctx, b.t, what, func() error {
		err := ok()
		for id, c := range b.cells {
			if trouble := c.Trouble(); err != nil && trouble != nil {
				err = errors.Join(err, fmt.Errorf("cell %s: %w", id, trouble))
			}
		}
		return err
	})
}

func (b *scheduling) all() []*cell.Cell { return slices.Collect(maps.Values(b.cells)) }

func (b *scheduling) api1() bbsv1connect.DesiredLRPServiceClient { return b.traffic.client.v1[0] }

// startCell starts a cell, or one that has crashed.
func (b *scheduling) startCell(ctx context.Context, id string) {
	if b.cells[id] == nil {
		api, _ := b.servers[len(b.cells)%len(b.servers)].addresses()
		b.cells[id] = cell.New(cell.Config{
			ID: id, Every: 200 * time.Millisecond, Room: 24,
			Instances: bbsv1connect.NewActualLRPServiceClient(b.http, "http://"+api), Processes: bbsv1connect.NewDesiredLRPServiceClient(b.http, "http://"+api),
		})
	}
	c := b.cells[id]
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	b.crashes[id] = func() { cancel(); <-ended }
	b.t.Cleanup(b.crashes[id])
}

// own has owners write their processes until the traffic is finished: they scale them, and make
// them anew. Their operations are numbered so that each asks for one to three instances.
func (b *scheduling) own(ctx context.Context) {
	tr := b.traffic
	tr.servers, tr.client = b.servers, newBBSClient(b.http, b.servers...)
	ctx, tr.stop = context.WithCancel(ctx)
	b.t.Cleanup(tr.finish)
	for i := range 4 {
		w := &bbsWriter{client: tr.client, ledger: tr.processes, rng: rand.New(rand.NewPCG(4, uint64(i))), number: i}
		b.owners = append(b.owners, w)
		tr.drive(ctx, func() {
			w.op = w.op - w.op%97 + 97 + int64(1+w.rng.IntN(3))
			switch dice := w.rng.IntN(20); {
			case len(w.live) == 0:
				w.create(ctx)
			case dice == 0:
				w.remove(ctx)
			case dice < 15:
				w.update(ctx)
			default:
				w.read(ctx)
			}
		})
	}
}

// steady is a process that its owner leaves as it is, so that there is a cell that runs it at any
// moment between its start and the cell's crash.
const steady = "steady"

// switchTo switches. Meanwhile the cell that runs the steady process crashes, which it returns,
// and of the others the one that runs most is evacuated.
func (b *scheduling) switchTo(ctx context.Context, version string) (crash string) {
	b.t.Helper()
	runsSteady := func(id string) bool {
		return slices.ContainsFunc(b.cells[id].Runs(), func(c cell.Container) bool { return c.Name == converge.IndexName(steady, 0) })
	}
	b.await1(ctx, "the steady process runs", func() error {
		for id := range b.cells {
			if runsSteady(id) {
				crash = id
				return nil
			}
		}
		return errors.New("on no cell")
	})
	others := slices.DeleteFunc(slices.Collect(maps.Keys(b.cells)), func(id string) bool { return id == crash })
	evacuate := slices.MaxFunc(others, func(x, y string) int { return len(b.cells[x].Runs()) - len(b.cells[y].Runs()) })
	b.beginTo(ctx, version)
	b.await(ctx, "SWITCHING", func(d upgradestate.Deployment) bool {
		return d.CurrentVersion == version || d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
	})
	if !runsSteady(crash) {
		b.t.Error("the steady process does not run on the cell that crashes")
	}
	b.crashes[crash]()
	b.say(ctx)
	var evacuation sync.WaitGroup
	evacuation.Go(func() {
		if err := b.cells[evacuate].Evacuate(ctx); err != nil {
			b.t.Error(err)
		}
	})
	b.await(ctx, "the flip to "+version, flipped(version))
	evacuation.Wait()
	b.crashes[evacuate]()
	delete(b.cells, evacuate)
	return crash
}

// say has a client say in the middle of a switch what cells do not say by themselves. The instance
// was RUNNING, on a cell that has just crashed: it is started anew, and nobody fails to take it.
func (b *scheduling) say(ctx context.Context) {
	b.t.Helper()
	api, _ := b.servers[0].addresses()
	client := bbsv1connect.NewActualLRPServiceClient(b.http, "http://"+api)
	name := converge.IndexName(steady, 0)
	if _, err := client.FailActualLRP(ctx, connect.NewRequest(&bbsv1.FailActualLRPRequest{Name: name, PlacementError: "no room"})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		b.t.Errorf("that nobody takes what runs is answered with %v", err)
	}
	res, err := client.RetireActualLRP(ctx, connect.NewRequest(&bbsv1.RetireActualLRPRequest{Name: name}))
	if err != nil || !res.Msg.GetInstance().GetRetire() {
		b.t.Errorf("to retire it is answered with %v, %v", res, err)
	}
}

// roll makes a process through v2 and gives it another definition, which replaces the first
// one's instances. v1 is shown it like any other.
func (b *scheduling) roll(ctx context.Context) (guid string) {
	b.t.Helper()
	api, _ := b.servers[1].addresses()
	v2 := bbsv2connect.NewLRPDeploymentServiceClient(b.http, "http://"+api)
	definition := func(log string) *bbsv2.Definition { return &bbsv2.Definition{LogGuid: log} }
	if _, err := v2.CreateLRPDeployment(ctx, connect.NewRequest(&bbsv2.CreateLRPDeploymentRequest{LrpDeployment: &bbsv2.LRPDeployment{
		ProcessGuid: "rolled", Domain: "it", Instances: 2, ActiveDefinitionId: "one", Definitions: map[string]*bbsv2.Definition{"one": definition("one")},
	}})); err != nil {
		b.t.Fatal(err)
	}
	healthy := func(id string) {
		b.t.Helper()
		b.await1(ctx, "definition "+id+" alone is left", func() error {
			res, err := v2.GetLRPDeployment(ctx, connect.NewRequest(&bbsv2.GetLRPDeploymentRequest{ProcessGuid: "rolled"}))
			if err != nil {
				return err
			}
			if p := res.Msg.GetLrpDeployment(); p.GetHealthyDefinitionId() != id || len(p.GetDefinitions()) != 1 {
				return fmt.Errorf("it is %v", p)
			}
			return nil
		})
	}
	healthy("one")
	if _, err := v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "rolled", DefinitionId: "two", Definition: definition("two")})); err != nil {
		b.t.Fatal(err)
	}
	healthy("two")
	return "rolled"
}

// converged compares what the cells run with what is desired, and with what the service has. The
// ledger judges what is desired: that of a write that was cut off by the end is not known.
func (b *scheduling) converged(ctx context.Context, rolled string) error {
	desired, err := b.api1().ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{PageSize: 1000}))
	if err != nil {
		return err
	}
	want := map[string]string{}
	for _, p := range desired.Msg.GetDesiredLrps() {
		for i := range int(p.Instances) {
			want[converge.IndexName(p.ProcessGuid, i)] = p.GetDefinition().GetLogGuid()
		}
	}
	if want[converge.IndexName(rolled, 1)] != "two" {
		return fmt.Errorf("%s is not what v2 has made of it: %v", rolled, want)
	}
	census := cell.Census(b.all()...)
	for name, log := range want {
		if on := census[name]; len(on) != 1 || on[0].LogGUID != log {
			return fmt.Errorf("%s of %s runs as %v", name, log, on)
		}
	}
	for name, on := range census {
		if want[name] == "" {
			api, _ := b.servers[0].addresses()
			res, err := bbsv1connect.NewActualLRPServiceClient(b.http, "http://"+api).GetActualLRPGroup(ctx, connect.NewRequest(&bbsv1.GetActualLRPGroupRequest{Name: name}))
			return errors.Join(fmt.Errorf("%s runs as %v and is not desired, the service has %v", name, on, res), err)
		}
	}
	for i, server := range b.servers {
		api, _ := server.addresses()
		res, err := bbsv1connect.NewActualLRPServiceClient(b.http, "http://"+api).ListActualLRPGroups(ctx, connect.NewRequest(&bbsv1.ListActualLRPGroupsRequest{PageSize: 1000}))
		if err != nil {
			return err
		}
		v2, err := bbsv2connect.NewActualLRPServiceClient(b.http, "http://"+api).ListActualLRPs(ctx, connect.NewRequest(&bbsv2.ListActualLRPsRequest{PageSize: 1000}))
		if err != nil {
			return err
		}
		if len(res.Msg.GetActualLrpGroups()) != len(want) || len(v2.Msg.GetActualLrps()) != len(want) {
			return fmt.Errorf("server %d has %d in v1 and %d in v2, %d are desired", i, len(res.Msg.GetActualLrpGroups()), len(v2.Msg.GetActualLrps()), len(want))
		}
		for _, g := range res.Msg.GetActualLrpGroups() {
			if on := census[converge.IndexName(g.ProcessGuid, int(g.Index))]; len(on) != 1 || on[0].GUID != g.Instance.GetInstanceGuid() || g.Instance.GetState() != string(converge.Running) || g.Evacuating != nil {
				return fmt.Errorf("%v runs as %v", g, on)
			}
		}
	}
	return nil
}
