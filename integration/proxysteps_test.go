package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/upgradestate"
)

// leisurely is a switch that faults in each step do not end.
const leisurely = "{deadline: 5m, maxLag: 5s}"

// stepped is behind with a controller that stands still in each step of a switch.
type stepped struct {
	*behind
	controller *child
	started    int // controllers
}

// newStepped starts the controller. The other address for a controller stays unused.
func newStepped(ctx context.Context, t *testing.T, uris map[string]string) *stepped {
	t.Helper()
	s := &stepped{behind: newBehind(ctx, t, uris, nil, leisurely)}
	s.control(ctx)
	return s
}

// control starts a controller, also as the successor of one that was killed.
func (s *stepped) control(ctx context.Context) {
	s.t.Helper()
	s.started++
	id := fmt.Sprint("controller-", s.started)
	s.controller = s.adopt(spawn(s.t, id, command(s.t, roleController, nil, s.part(part{ID: id, Steps: true, API: s.apis[0]})))).ready(ctx)
}

// walk goes through a switch that has begun. In each step, strike does its work and has the switch go on.
func (s *stepped) walk(ctx context.Context, to string, strike func(step upgradestate.Step)) {
	s.t.Helper()
	met := map[upgradestate.Step]bool{}
	for step := s.nextStep(ctx, s.controller, to); step != ""; step = s.nextStep(ctx, s.controller, to) {
		met[upgradestate.Step(step)] = true
		strike(upgradestate.Step(step))
	}
	for _, step := range allSteps {
		if !met[step] {
			s.t.Errorf("the switch to %s has not met %s", to, step)
		}
	}
	s.listsAll(ctx, "at "+to)
	s.goesOn(ctx, "at "+to)
}

// faultsInEachStep goes there and back three times. In each step of a switch a proxy is killed, then in each of the
// next switch the other one. In the next two, connections of clients of one proxy break off. In the last two the
// controller is killed.
func faultsInEachStep(ctx context.Context, t *testing.T, uris map[string]string) {
	t.Helper()
	s := newStepped(ctx, t, uris)
	s.cuts, s.poll = &cuts{}, true
	s.start(ctx, true)
	defer s.stop()
	reads := s.readOn(ctx)
	s.goesOn(ctx, "at the start")
	for i, version := range []string{"v2", "v1"} {
		s.beginTo(ctx, version)
		s.walk(ctx, version, func(upgradestate.Step) {
			// The same proxy each time: a driver repeats a command once, at the other one.
			s.proxies[i].kill()
			s.startProxy(ctx, i)
			s.controller.order(orderStep)
		})
		t.Logf("a proxy was killed in each step of the switch to %s", version)
	}
	for i, version := range []string{"v2", "v1"} {
		before := s.cuts.made.Load()
		s.beginTo(ctx, version)
		s.walk(ctx, version, func(step upgradestate.Step) {
			s.cuts.strike(s.addresses[i])
			eventually(ctx, t, "a reply is cut in "+string(step), func() error {
				if !s.cuts.struck() {
					return errors.New("none came")
				}
				return nil
			})
			s.controller.order(orderStep)
		})
		t.Logf("%d connections were cut in the switch to %s", s.cuts.made.Load()-before, version)
	}
	for _, version := range []string{"v2", "v1"} {
		s.beginTo(ctx, version)
		s.walk(ctx, version, func(upgradestate.Step) {
			s.kill(s.controller)
			s.control(ctx) // it begins with the work of this step
		})
		t.Logf("the controller was killed in each step of the switch to %s", version)
	}
	s.stop()
	if err := reads(); err != nil {
		t.Error(err)
	}
	s.end(ctx)
}

// readOn reads all the time, so that replies come while a switch holds writes. The reads end with the returned
// function.
func (s *stepped) readOn(ctx context.Context) (end func() error) {
	s.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	if err != nil {
		s.t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		records := client.Database(s.db.Name()).Collection("records")
		var err error
		for n := 0; working.Err() == nil && err == nil; n++ {
			var found struct{ N int }
			if err = records.FindOne(ctx, byID(n%clientRecords)).Decode(&found); err == nil {
				err = want(int64(found.N), int64(n%clientRecords))
			}
		}
		ended <- errors.Join(err, client.Disconnect(context.WithoutCancel(ctx)))
	}()
	return func() error {
		stop()
		return <-ended
	}
}

// primaryInEachStep goes there and back three times on three nodes, and kills the primary in each step of each
// direction. Source and target lose it together.
func primaryInEachStep(ctx context.Context, t *testing.T, uris map[string]string, nodes *localmongo.Server) {
	t.Helper()
	s := newStepped(ctx, t, uris)
	s.start(ctx, true)
	defer s.stop()
	e := &elections{system: s.system, nodes: nodes, controller: s.controller}
	s.goesOn(ctx, "at the start")
	// Few in one switch, so that no write is held for longer than the proxy holds it.
	for round, steps := range [][]upgradestate.Step{
		{upgradestate.StepHold, upgradestate.StepSealTarget}, {upgradestate.StepHold, upgradestate.StepSealTarget},
		{upgradestate.StepFence, upgradestate.StepSealSource}, {upgradestate.StepFence, upgradestate.StepSealSource},
		{upgradestate.StepDrain}, {upgradestate.StepDrain},
	} {
		version := []string{"v2", "v1"}[round%2]
		e.do(ctx, "work before the switch to "+version, e.kill, func() {}, func() { s.goesOn(ctx, "without a node") })
		s.beginTo(ctx, version)
		if round == 0 { // it copies
			e.do(ctx, "copy", e.kill, func() {}, func() {})
		}
		s.walk(ctx, version, func(step upgradestate.Step) {
			goOn := func() { s.controller.order(orderStep) }
			if !slices.Contains(steps, step) {
				goOn()
				return
			}
			steps = slices.DeleteFunc(steps, func(one upgradestate.Step) bool { return one == step })
			e.do(ctx, fmt.Sprintf("%s to %s", step, version), e.kill, goOn, func() {})
		})
		if len(steps) > 0 {
			t.Errorf("the primary was not killed in %v of the switch to %s", steps, version)
		}
	}
	s.end(ctx)
}
