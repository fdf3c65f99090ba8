package bbs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/bbs/cell"
	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/internal/base/inprocess"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// scheduler is a stack with its reconciler and cells, in simulated time.
type scheduler struct {
	t     *testing.T
	store *sampletest.Store
	api
	cells map[string]*cell.Cell
	stops map[string]func()
	all   sync.WaitGroup
}

// schedule runs a test over one version's data.
func schedule(t *testing.T, kinds []string, stack func(vrunner.Store) http.Handler, controller func(vrunner.Store, time.Duration) vrunner.Controller, test func(s *scheduler)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scheduler{t: t, store: sampletest.New(t, kinds...), cells: map[string]*cell.Cell{}, stops: map[string]func(){}}
		s.api = apiOf(inprocess.Client(stack(s.store)), "http://bbs")
		ctx, cancel := context.WithCancel(t.Context())
		c := controller(s.store, time.Second)
		if !c.Leader {
			t.Error("every server runs it")
		}
		s.all.Go(func() {
			if err := c.Run(ctx); ctx.Err() == nil {
				t.Errorf("the reconciler has ended: %v", err)
			}
		})
		for _, id := range []string{"c1", "c2", "c3"} {
			s.startCell(id)
		}
		test(s)
		cancel()
		for _, stop := range s.stops {
			stop()
		}
		s.all.Wait()
	})
}

func v1Schedule(t *testing.T, test func(s *scheduler)) {
	schedule(t, kindsV1, func(s vrunner.Store) http.Handler { return StackV1(s, nil) }, ControllerV1, test)
}

func v2Schedule(t *testing.T, test func(s *scheduler)) {
	schedule(t, kindsV2, func(s vrunner.Store) http.Handler { return StackV2(s) }, ControllerV2, test)
}

func (s *scheduler) startCell(id string) {
	if s.cells[id] == nil {
		s.cells[id] = cell.New(cell.Config{ID: id, Instances: s.actualV1, Processes: s.v1, Every: time.Second, Room: 4})
	}
	c := s.cells[id]
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	s.stops[id] = func() { cancel(); <-ended }
	s.all.Go(func() { defer close(ended); c.Run(ctx) })
}

// crash ends a cell.
func (s *scheduler) crash(id string) {
	s.stops[id]()
	s.stops[id] = func() {}
}

func (s *scheduler) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// runs checks that so many instances of each process run, each once, and that there is nothing
// else. They run the definition whose log guid is given.
func (s *scheduler) runs(logGUID string, instances map[string]int) {
	s.t.Helper()
	census := cell.Census(slices.Collect(maps.Values(s.cells))...)
	total := 0
	for guid, n := range instances {
		total += n
		for i := range n {
			on := census[converge.IndexName(guid, i)]
			if len(on) != 1 || on[0].LogGUID != logGUID {
				s.t.Errorf("%s runs as %v, want once with %q", converge.IndexName(guid, i), on, logGUID)
			}
		}
	}
	if len(census) != total {
		s.t.Errorf("there run %v, want %v", census, instances)
	}
	res, err := s.actualV1.ListActualLRPGroups(s.t.Context(), connect.NewRequest(&bbsv1.ListActualLRPGroupsRequest{}))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range res.Msg.GetActualLrpGroups() {
		if on := census[converge.IndexName(g.ProcessGuid, int(g.Index))]; len(on) != 1 || on[0].GUID != g.GetInstance().GetInstanceGuid() || g.GetInstance().GetState() != "RUNNING" || g.Evacuating != nil {
			s.t.Errorf("%v is there, %v runs", g, on)
		}
	}
	if n := len(res.Msg.GetActualLrpGroups()); n != total {
		s.t.Errorf("%d instances are there, want %d", n, total)
	}
}

func (s *scheduler) process(guid string, instances int32) {
	s.t.Helper()
	p := lrpV1(guid, "cf")
	p.Instances, p.Definition.LogGuid = instances, "one"
	createV1(s.t, s.api, p)
}

// TestCells: what clients of v1 and cells do is the same over either version's data.
func TestCells(t *testing.T) {
	t.Parallel()
	test := func(s *scheduler) {
		s.process("a", 3)
		s.process("b", 2)
		s.after(5 * time.Second)
		s.runs("one", map[string]int{"a": 3, "b": 2})

		updateV1(s.t, s.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "a", Instances: proto.Int32(1)})
		updateV1(s.t, s.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "b", Instances: proto.Int32(4)})
		s.after(5 * time.Second)
		s.runs("one", map[string]int{"a": 1, "b": 4})

		// A cell that is lost for good, and one that comes back.
		s.crash("c1")
		s.after(cellTimeout + 5*time.Second)
		s.runs("one", map[string]int{"a": 1, "b": 4})
		s.crash("c2")
		s.startCell("c2")
		s.after(10 * time.Second)
		s.runs("one", map[string]int{"a": 1, "b": 4})
		s.startCell("c1")

		before := cell.Census(s.cells["c1"], s.cells["c3"])
		if err := s.cells["c2"].Evacuate(s.t.Context()); err != nil {
			s.t.Error(err)
		}
		s.after(5 * time.Second)
		s.runs("one", map[string]int{"a": 1, "b": 4})
		for name, was := range before {
			if now := cell.Census(s.cells["c1"], s.cells["c3"])[name]; !slices.Equal(was, now) {
				s.t.Errorf("%s ran as %v elsewhere, and runs as %v", name, was, now)
			}
		}

		// An instance that a client has stopped is started anew.
		was := cell.Census(s.cells["c1"], s.cells["c3"])[converge.IndexName("b", 2)]
		if _, err := s.actualV1.RetireActualLRP(s.t.Context(), connect.NewRequest(&bbsv1.RetireActualLRPRequest{Name: converge.IndexName("b", 2)})); err != nil {
			s.t.Fatal(err)
		}
		s.after(5 * time.Second)
		s.runs("one", map[string]int{"a": 1, "b": 4})
		if now := cell.Census(s.cells["c1"], s.cells["c3"])[converge.IndexName("b", 2)]; slices.Equal(was, now) {
			s.t.Errorf("%v still runs", now)
		}

		// A process that is made anew has instances of its own.
		deleteV1(s.t, s.api, "a")
		p := lrpV1("a", "cf")
		p.Instances, p.Definition.LogGuid = 1, "one"
		createV1(s.t, s.api, p)
		was = cell.Census(s.cells["c1"], s.cells["c3"])[converge.IndexName("a", 0)]
		s.after(5 * time.Second)
		s.runs("one", map[string]int{"a": 1, "b": 4})
		if now := cell.Census(s.cells["c1"], s.cells["c3"])[converge.IndexName("a", 0)]; slices.Equal(was, now) {
			s.t.Errorf("%v runs, as before", now)
		}

		deleteV1(s.t, s.api, "a")
		deleteV1(s.t, s.api, "b")
		s.after(5 * time.Second)
		s.runs("one", nil)
	}
	t.Run("v1 data", func(t *testing.T) { v1Schedule(t, test) })
	t.Run("v2 data", func(t *testing.T) { v2Schedule(t, test) })
}

// TestDefinitions: an update adds a definition and activates it, instances are replaced one at a
// time, one that does not run in time is left again if the process is so configured, and what nothing
// names goes.
func TestDefinitions(t *testing.T) {
	v2Schedule(t, func(s *scheduler) {
		ctx := s.t.Context()
		definition := func(logGUID, path string) *bbsv2.Definition {
			return &bbsv2.Definition{LogGuid: logGUID, Action: &bbsv2.Action{Path: path}}
		}
		made := createV2(s.t, s.api, &bbsv2.LRPDeployment{
			ProcessGuid: "p", Domain: "cf", Instances: 3, ActiveDefinitionId: "one", FallBackAfterMs: 20_000,
			Definitions: map[string]*bbsv2.Definition{"one": definition("one", "/bin/serve"), "spare": definition("spare", "/bin/serve")},
		})
		if made.GetHealthyDefinitionId() != "" {
			s.t.Errorf("before an instance runs: %v", made)
		}
		want := func(active, healthy string, ids ...string) {
			s.t.Helper()
			p := getV2(s.t, s.api, "p")
			if have := slices.Sorted(maps.Keys(p.GetDefinitions())); p.GetActiveDefinitionId() != active || p.GetHealthyDefinitionId() != healthy || !slices.Equal(have, ids) {
				s.t.Errorf("active is %s and healthy %s of %v, want %s and %s of %v", p.GetActiveDefinitionId(), p.GetHealthyDefinitionId(), have, active, healthy, ids)
			}
		}
		s.after(5 * time.Second)
		s.runs("one", map[string]int{"p": 3})
		want("one", "one", "one", "spare")

		// Of three instances at least two run, whenever somebody looks.
		least := 3
		var mu sync.Mutex // cells and the reconciler write at the same time
		s.store.BeforeWrite(func([]record.Mutation) error {
			mu.Lock()
			defer mu.Unlock()
			least = min(least, len(cell.Census(slices.Collect(maps.Values(s.cells))...)))
			return nil
		})
		if _, err := s.v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p", DefinitionId: "two", Definition: definition("two", "/bin/serve")})); err != nil {
			s.t.Fatal(err)
		}
		if p := getV2(s.t, s.api, "p"); p.GetActiveDefinitionId() != "two" || p.GetHealthyDefinitionId() != "one" {
			s.t.Errorf("before an instance of it runs: %v", p)
		}
		s.after(20 * time.Second)
		s.runs("two", map[string]int{"p": 3})
		want("two", "two", "two") // "spare" was not chosen
		s.store.BeforeWrite(nil)
		mu.Lock()
		if least < 3 {
			s.t.Errorf("while they were replaced, only %d ran", least)
		}
		mu.Unlock()

		if _, err := s.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: "spare", Definition: definition("spare", "/bin/serve")})); err != nil {
			s.t.Fatal(err)
		}

		// It never runs.
		if _, err := s.v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p", DefinitionId: "three", Definition: definition("three", cell.FailingPath)})); err != nil {
			s.t.Fatal(err)
		}
		s.after(10 * time.Second)
		want("three", "two", "three", "two")
		if n := len(cell.Census(slices.Collect(maps.Values(s.cells))...)); n != 3 {
			s.t.Errorf("%d run, of what ran before", n)
		}
		s.after(20 * time.Second)
		s.runs("two", map[string]int{"p": 3})
		want("two", "two", "two")

		// What was added waits until somebody chooses.
		for _, id := range []string{"spare", "other"} {
			if _, err := s.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: id, Definition: definition(id, "/bin/serve")})); err != nil {
				s.t.Fatal(err)
			}
		}
		s.after(20 * time.Second)
		want("two", "two", "other", "spare", "two")
		if _, err := s.v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "p", DefinitionId: "spare"})); err != nil {
			s.t.Fatal(err)
		}
		s.after(20 * time.Second)
		s.runs("spare", map[string]int{"p": 3})
		want("spare", "spare", "spare")
	})
}

// TestReconcilerGoesOn: what somebody else has changed, or made, meanwhile is decided anew.
func TestReconcilerGoesOn(t *testing.T) {
	v2Schedule(t, func(s *scheduler) {
		n := 0
		var mu sync.Mutex
		s.store.BeforeWrite(func(ms []record.Mutation) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range ms {
				if name, _ := m.Key.Name(); m.Kind == KindActualLRPs && strings.HasPrefix(name, converge.NamesOf("p")) {
					if n++; n%3 == 1 {
						return fmt.Errorf("by another one: %w", record.ErrMismatch)
					}
				}
			}
			return nil
		})
		s.process("p", 2)
		s.after(10 * time.Second)
		s.runs("one", map[string]int{"p": 2})
	})
}

// TestDecidedOnWhatIsThere: what was decided of definitions is not done to a process whose client
// has chosen otherwise since, nor to another one of the same guid.
func TestDecidedOnWhatIsThere(t *testing.T) {
	t.Parallel()
	process := func() *bbsv2.LRPDeployment {
		return &bbsv2.LRPDeployment{
			ProcessGuid: "p", ActiveDefinitionId: "b", HealthyDefinitionId: "a", FormerDefinitionIds: []string{"a", "z"},
			ModificationTag: &bbsv2.ModificationTag{Epoch: "e", Index: 3},
			Definitions:     map[string]*bbsv2.Definition{"a": {}, "b": {}, "c": {}, "z": {}},
		}
	}
	was := converge.Process{Epoch: "e", Active: "b", Healthy: "a"}
	for _, a := range []converge.Action{
		{Op: converge.FallBack, Definition: "a"}, {Op: converge.Heal, Definition: "b"}, {Op: converge.Prune, Definitions: []string{"z"}},
	} {
		p := process()
		if err := decided(p, was, a); err != nil || proto.Equal(p, process()) {
			t.Errorf("%s: %v, %v", a.Op, p, err)
		}
		for label, change := range map[string]func(*bbsv2.LRPDeployment) error{
			"activated":   func(p *bbsv2.LRPDeployment) error { return activate(p, "c") },
			"activated z": func(p *bbsv2.LRPDeployment) error { return activate(p, "z") },
			"healthy":     func(p *bbsv2.LRPDeployment) error { p.HealthyDefinitionId = "z"; return nil },
			"made again":  func(p *bbsv2.LRPDeployment) error { p.ModificationTag.Epoch = "f"; return nil },
		} {
			p := process()
			if err := change(p); err != nil {
				t.Fatal(err)
			}
			if err := decided(p, was, a); !errors.Is(err, errOvertaken) {
				t.Errorf("%s, and then %s: %v", label, a.Op, err)
			}
		}
	}
}

// TestUnreadable: a record that cannot be read holds up its own process, loudly, and no other.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store := sampletest.New(t, kindsV2...)
	a := apiOf(inprocess.Client(StackV2(store)), "http://bbs")
	for _, guid := range []string{"p", "q", "r"} {
		p := lrpV1(guid, "cf")
		p.Instances = 1
		createV1(t, a, p)
	}
	junk, err := bson.Marshal(bson.D{{Key: "_id", Value: converge.IndexName("p", 0)}, {Key: "instance", Value: "a string where there is a message"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Write(ctx, []record.Mutation{{Kind: KindActualLRPs, Key: record.StringKey(converge.IndexName("p", 0)), Doc: junk}}); err != nil {
		t.Fatal(err)
	}
	r := newReconciler(newInstancesV2(store), 0)
	if err := r.all(ctx); !errors.Is(err, apiversion.ErrStored) || !strings.Contains(err.Error(), converge.IndexName("p", 0)) {
		t.Errorf("nobody learns of it: %v", err)
	}
	for _, guid := range []string{"q", "r"} {
		if _, err := store.Get(ctx, KindActualLRPs, converge.IndexName(guid, 0)); err != nil {
			t.Errorf("the instance of %s: %v", guid, err)
		}
	}
}
