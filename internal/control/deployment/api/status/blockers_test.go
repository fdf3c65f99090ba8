package status_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/syncer"
	us "dbcontroller.dev/upgradestate"
)

// upgrading is a deployment whose upgrade may switch as far as the record knows: all shards are
// ready, the driver has looked, and every owner says that it waits for nothing.
func upgrading(t *testing.T) deployment.State {
	t.Helper()
	d := us.New(name, "v1", 4)
	d.Upgrade = &us.Upgrade{ID: "u1", TargetVersion: "v2", State: us.InitialSyncing, ReadyShards: []int{0, 1, 2, 3}}
	s := deployment.State{Record: d, Controllers: []string{"c"}, Readiness: &switchover.Readiness{ID: "u1"}}
	for shard := range 4 {
		s.Progress = append(s.Progress, syncer.Progress{Shard: shard, Owner: "c"})
	}
	return s
}

func codesOf(o *pb.SwitchReadiness) (codes []string) {
	for _, b := range o.GetBlockers() {
		codes = append(codes, b.Code)
	}
	return codes
}

// TestEveryCodeIsShown: each reason comes through from a driver, from a shard and from the process
// that is asked, with its place and with what resolves it.
func TestEveryCodeIsShown(t *testing.T) {
	t.Parallel()
	place := us.BlockPlace{Version: "v2", Kind: "orders", Controller: "c", Server: "s"}
	for code, what := range us.BlockCodes {
		if what.Act == "" {
			t.Errorf("%s: nothing is said to resolve it", code)
		}
		for from, put := range map[string]func(*deployment.State, *status.Process){
			"driver": func(s *deployment.State, _ *status.Process) {
				s.Readiness.Blockers = []us.Blocker{{Code: code, Text: "because", Place: place}}
			},
			"shard": func(s *deployment.State, _ *status.Process) {
				s.Progress[2].WaitsFor, s.Progress[2].Code, s.Progress[2].Version = "because", code, "v2"
			},
			"process": func(_ *deployment.State, p *status.Process) {
				p.Waits = []us.Blocker{{Code: code, Text: "because", Place: place}}
			},
		} {
			s, p := upgrading(t), status.Process{}
			if all := status.Of(s, p).Readiness.Blockers; len(all) > 0 {
				t.Fatalf("nothing keeps it: %v", all)
			}
			put(&s, &p)
			all := status.Of(s, p).Readiness
			if len(all.Blockers) != 1 || len(all.WaitsFor) != 1 {
				t.Errorf("%s from the %s: %v", code, from, all)
				continue
			}
			b := all.Blockers[0]
			placed := b.Version == "v2" && (from == "shard" && slices.Equal(b.Shards, []int32{2}) || b.Kind == "orders" && b.Controller == "c" && b.Server == "s")
			if b.Code != string(code) || b.Resolve != what.Act || !placed || !strings.Contains(b.Text, "because") {
				t.Errorf("%s from the %s: %v", code, from, b)
			}
		}
	}
}

// TestBlockersOfAState are those that follow from the state alone. Never is nothing said where the
// switch waits.
func TestBlockersOfAState(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	hold := w.Switching(t)
	fence := w.Apply(t, us.Held{ID: "u1"})
	for _, tc := range []struct {
		name  string
		state func() deployment.State
		codes []us.BlockCode
		text  string
	}{
		{"nothing", func() deployment.State { return upgrading(t) }, nil, ""},
		{"no driver has looked", func() deployment.State { s := upgrading(t); s.Readiness = nil; return s }, []us.BlockCode{us.BlockUndriven}, "a controller"},
		{"the driver speaks of another upgrade", func() deployment.State { s := upgrading(t); s.Readiness.ID = "u0"; return s }, []us.BlockCode{us.BlockUndriven}, "a controller"},
		{"no controller", func() deployment.State {
			s := upgrading(t)
			s.Controllers, s.Progress, s.Readiness = nil, nil, nil
			return s
		}, []us.BlockCode{us.BlockUnowned, us.BlockUnowned}, "all shards: a controller"},
		{"a shard without an owner", func() deployment.State { s := upgrading(t); s.Progress = s.Progress[1:]; return s }, []us.BlockCode{us.BlockUnowned}, "shard 0: a controller"},
		{"a report that is missing", func() deployment.State {
			s := upgrading(t)
			s.Record.Upgrade.ReadyShards = []int{0, 3}
			return s
		}, []us.BlockCode{us.BlockReport}, "shards 1, 2: the report of its owner"},
		{"shards that wait for the same, with other numbers", func() deployment.State {
			s := upgrading(t)
			s.Record.Upgrade.ReadyShards = nil
			s.Readiness.Blockers = []us.Blocker{{Code: us.BlockShards, Text: "4 of 4 shards"}}
			for i := range s.Progress {
				s.Progress[i].Code, s.Progress[i].WaitsFor = us.BlockCopy, "copy of "+strings.Repeat("1", i+1)+" ranges"
			}
			return s
		}, []us.BlockCode{us.BlockCopy}, "all shards: such as copy of 1 ranges"},
		{"how many shards, where none says more", func() deployment.State {
			s := upgrading(t)
			s.Readiness.Blockers = []us.Blocker{{Code: us.BlockShards, Text: "4 of 4 shards"}}
			return s
		}, []us.BlockCode{us.BlockShards}, "4 of 4"},
		{"a pause that the driver has not seen yet", func() deployment.State { s := upgrading(t); s.Record.Pace.Paused = true; return s }, []us.BlockCode{us.BlockPaused}, "resume"},
		{"a controller from before codes", func() deployment.State {
			s := upgrading(t)
			s.Progress[0].WaitsFor, s.Readiness.WaitsFor = "copy of 2 ranges", []string{"a proof"}
			return s
		}, []us.BlockCode{us.BlockUncoded, us.BlockUncoded}, "a proof"},
		{"hold", func() deployment.State {
			return deployment.State{Record: hold, Controllers: []string{"c"}, Servers: []us.ServerState{deploymenttest.Server("s1")}, Progress: switchingShards(hold)}
		}, []us.BlockCode{us.BlockHolding}, "s1"},
		{"fence", func() deployment.State {
			return deployment.State{Record: fence, Controllers: []string{"c"}, Progress: switchingShards(fence)}
		}, []us.BlockCode{us.BlockPending}, "packages"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := status.Of(tc.state(), status.Process{}).Readiness
			var want []string
			for _, c := range tc.codes {
				want = append(want, string(c))
			}
			if diff := cmp.Diff(want, codesOf(o)); diff != "" {
				t.Fatalf("codes (-want +got):\n%s", diff)
			}
			if !strings.Contains(strings.Join(o.GetWaitsFor(), "\n"), tc.text) {
				t.Errorf("waits for %q, want %q", o.GetWaitsFor(), tc.text)
			}
		})
	}
}

// switchingShards wait for the switch, which waits for others.
func switchingShards(d us.Deployment) (ps []syncer.Progress) {
	for shard := range d.RingSize {
		ps = append(ps, syncer.Progress{Shard: shard, Owner: "c", WaitsFor: syncer.ForSwitch})
	}
	return ps
}

// TestTotalOfAPause: the latest switch and the history say how long writes were held in all.
func TestTotalOfAPause(t *testing.T) {
	t.Parallel()
	d := us.New(name, "v2", 1)
	d.LastSwitch = &us.Switch{ID: "u2", From: "v1", To: "v2", Millis: map[string]int64{"hold": 10, "fence": 20, "drain": 30, "flip": 40}}
	phases := []us.PhaseTime{{Phase: "HOLD", At: "2026-01-01T00:00:00Z"}, {Phase: "ABORT", At: "2026-01-01T00:00:09Z"}, {Phase: "HOLD", At: "2026-01-01T00:01:00.1Z"}, {Phase: "FENCE", At: "2026-01-01T00:01:00.2Z"}}
	d.History = []us.Entry{
		{What: "upgrade", ID: "u1", Outcome: "switched", Ended: "2026-01-01T00:01:00.35Z", Phases: phases},
		{What: "upgrade", ID: "u0", Outcome: "aborted", Ended: "2026-01-01T00:01:00.35Z", Phases: phases},
		{What: "upgrade", ID: "u2", Outcome: "switched", Phases: phases},
		{What: "pause"},
	}
	got := status.Of(deployment.State{Record: d}, status.Process{})
	if got.LastSwitch.PauseMillis != 100 {
		t.Errorf("the latest switch held writes for %d ms", got.LastSwitch.PauseMillis)
	}
	for i, want := range []int64{250, 0, 100, 0} {
		if ms := got.History[i].PauseMillis; ms != want {
			t.Errorf("entry %d: %d ms, want %d", i, ms, want)
		}
	}
}

// TestFormerNames are shown for the latest switch, and for none before it.
func TestFormerNames(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t).WithVersions(t)
	l := deploymenttest.Lease(t, w.Coord)
	f := &deployment.FormerNames{ID: "u1", Uses: []deployment.NameUse{{Version: "v1", Kind: "packages", Writes: 3, Users: []deployment.NameUser{{Application: "shop"}}}}}
	if err := w.Store.PublishNames(t.Context(), f, l.ID()); err != nil {
		t.Fatal(err)
	}
	d := us.New(name, "v2", 1)
	for id, want := range map[string]int{"u1": 1, "u2": 0} {
		d.LastSwitch = &us.Switch{ID: id, From: "v1", To: "v2"}
		s, err := w.Store.State(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		got := status.Of(s, status.Process{}).FormerNames
		if len(got.GetUses()) != want || want > 0 && (got.Uses[0].Writes != 3 || got.Uses[0].Users[0].Application != "shop") {
			t.Errorf("after %s: %v", id, got)
		}
	}
	if err := w.Store.PublishNames(t.Context(), nil, l.ID()); err != nil {
		t.Fatal(err)
	}
	if f, err := w.Store.FormerNames(t.Context()); f != nil || err != nil {
		t.Errorf("%v, %v", f, err)
	}
}
