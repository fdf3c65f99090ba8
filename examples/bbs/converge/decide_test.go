package converge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/examples/bbs/converge"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// instance makes one of a state: "new running a", "old crashed", with the time since when it is
// so and is wanted.
func instance(state converge.State, definition string, ago time.Duration) *converge.Instance {
	in := &converge.Instance{Placement: "p", State: state, Definition: definition, Epoch: "e", Wanted: now.Add(-ago), Since: now.Add(-ago)}
	if in.OnCell() {
		in.GUID, in.Cell = "guid-"+definition, "cell"
	}
	return in
}

func running(definition string) *converge.Instance {
	return instance(converge.Running, definition, time.Second)
}

func on(cell string, in *converge.Instance) *converge.Instance {
	in.Cell = cell
	return in
}

func failed(why string) *converge.Instance {
	in := instance(converge.Unclaimed, "d", 0)
	in.PlacementError = why
	return in
}

func retiring(in *converge.Instance) *converge.Instance {
	in.Retire = true
	return in
}

// told prints actions as tests read them.
func told(actions []converge.Action) string {
	occupant := func(in *converge.Instance) string {
		switch {
		case in == nil:
			return "none"
		case in.Retire:
			return strings.ToLower(string(in.State)) + " " + in.Definition + " to retire"
		default:
			return strings.ToLower(string(in.State)) + " " + in.Definition
		}
	}
	var out []string
	for _, a := range actions {
		switch a.Op {
		case converge.Heal, converge.FallBack:
			out = append(out, fmt.Sprintf("%s %s", a.Op, a.Definition))
		case converge.Prune:
			out = append(out, fmt.Sprintf("%s %s", a.Op, strings.Join(a.Definitions, " ")))
		case converge.Delete:
			out = append(out, fmt.Sprintf("%s %d", a.Op, a.Index))
		default:
			out = append(out, fmt.Sprintf("%s %d: %s/%s", a.Op, a.Index, occupant(a.Slot.Instance), occupant(a.Slot.Evacuating)))
		}
	}
	return strings.Join(out, "; ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	slots := func(in ...*converge.Instance) map[int]converge.Slot {
		out := map[int]converge.Slot{}
		for i, in := range in {
			out[i] = converge.Slot{Instance: in}
		}
		return out
	}
	timeouts := map[string]time.Duration{"new": 10 * time.Second, "old": 0}
	for _, tc := range []struct {
		name string
		p    converge.Process
		want string
	}{
		{"nothing is there", converge.Process{Instances: 2, Active: "new"}, "place 0: unclaimed new/none; place 1: unclaimed new/none"},
		{"all is as it is to be", converge.Process{Instances: 2, Active: "new", Healthy: "new", Slots: slots(running("new"), running("new"))}, ""},
		{"a cell has it", converge.Process{Instances: 1, Active: "new", Slots: slots(instance(converge.Claimed, "new", 0))}, ""},
		{"the first one runs", converge.Process{Instances: 2, Active: "new", Slots: slots(running("new"), instance(converge.Unclaimed, "new", 0))}, "heal new"},
		{"one at a time", converge.Process{Instances: 2, Active: "new", Healthy: "old", Slots: slots(running("old"), running("old"))}, "replace 0: unclaimed new/running old"},
		{"the next waits", converge.Process{Instances: 2, Active: "new", Healthy: "old", Timeouts: timeouts,
			Slots: map[int]converge.Slot{0: {instance(converge.Claimed, "new", time.Second), running("old")}, 1: {running("old"), nil}}}, ""},
		{"the predecessor goes", converge.Process{Instances: 2, Active: "new", Healthy: "new",
			Slots: map[int]converge.Slot{0: {running("new"), running("old")}, 1: {running("old"), nil}}}, "retire 0: running new/running old to retire"},
		{"its cell stops it", converge.Process{Instances: 2, Active: "new", Healthy: "new",
			Slots: map[int]converge.Slot{0: {running("new"), retiring(running("old"))}, 1: {running("old"), nil}}}, ""},
		{"then the next one", converge.Process{Instances: 2, Active: "new", Healthy: "new", Slots: slots(running("new"), running("old"))}, "replace 1: unclaimed new/running old"},
		{"what does not run is replaced at once", converge.Process{Instances: 3, Active: "new", Healthy: "old",
			Slots: slots(instance(converge.Crashed, "old", time.Hour), instance(converge.Claimed, "old", 0), running("old"))}, "place 0: unclaimed new/none; place 1: unclaimed new/none"},
		{"of the process before", converge.Process{Instances: 1, Active: "new", Healthy: "new", Epoch: "e2", Slots: slots(running("new"))}, "replace 0: unclaimed new/running new"},
		{"in time", converge.Process{Instances: 1, Active: "new", Healthy: "old", Timeouts: timeouts, Slots: slots(instance(converge.Claimed, "new", 9*time.Second))}, ""},
		{"failed", converge.Process{Instances: 1, Active: "new", Healthy: "old", Timeouts: timeouts, Slots: slots(instance(converge.Claimed, "new", 10*time.Second))}, "fall back old"},
		{"failed, by the default", converge.Process{Instances: 1, Active: "old", Healthy: "new", Timeouts: timeouts, Slots: slots(instance(converge.Crashed, "old", time.Minute))}, "fall back new"},
		{"nothing to fall back to", converge.Process{Instances: 1, Active: "new", Timeouts: timeouts, Slots: slots(instance(converge.Claimed, "new", time.Hour))}, ""},
		{"one runs, so it did not fail", converge.Process{Instances: 2, Active: "new", Healthy: "old", Timeouts: timeouts,
			Slots: slots(running("new"), instance(converge.Unclaimed, "new", time.Hour))}, "heal new"},
		{"what failed is replaced", converge.Process{Instances: 2, Active: "old", Healthy: "old", Former: []string{"new"},
			Slots: map[int]converge.Slot{0: {instance(converge.Claimed, "new", time.Hour), running("old")}, 1: {running("old"), nil}}}, "place 0: unclaimed old/running old"},
		{"a crash", converge.Process{Instances: 1, Active: "new", Healthy: "new", Slots: slots(&converge.Instance{State: converge.Crashed, Definition: "new", Crashes: 3, Since: now})}, "restart 0: unclaimed new/none"},
		{"many crashes", converge.Process{Instances: 1, Active: "new", Healthy: "new", Slots: slots(&converge.Instance{State: converge.Crashed, Definition: "new", Crashes: 4, Since: now.Add(-29 * time.Second)})}, ""},
		{"after the pause", converge.Process{Instances: 1, Active: "new", Healthy: "new", Slots: slots(&converge.Instance{State: converge.Crashed, Definition: "new", Crashes: 4, Since: now.Add(-30 * time.Second)})}, "restart 0: unclaimed new/none"},
		{"a cell is lost", converge.Process{Instances: 2, Active: "new", Healthy: "new", Lost: map[string]bool{"gone": true},
			Slots: slots(on("gone", running("new")), running("new"))}, "place 0: unclaimed new/none"},
		{"one that was evacuated is lost", converge.Process{Instances: 1, Active: "new", Healthy: "new", Lost: map[string]bool{"gone": true},
			Slots: map[int]converge.Slot{0: {instance(converge.Unclaimed, "new", 0), on("gone", running("new"))}}}, "clear 0: unclaimed new/none"},
		{"asked to stop", converge.Process{Instances: 1, Active: "new", Healthy: "new", Slots: slots(retiring(running("new")))}, ""},
		{"surplus", converge.Process{Instances: 1, Active: "new", Healthy: "new",
			Slots: map[int]converge.Slot{0: {running("new"), nil}, 1: {running("new"), nil}, 2: {instance(converge.Unclaimed, "new", 0), nil}, 3: {}, 4: {retiring(running("new")), nil}}},
			"retire 1: running new to retire/none; delete 2; delete 3"},
		{"surplus, lost", converge.Process{Active: "new", Lost: map[string]bool{"gone": true},
			Slots: map[int]converge.Slot{0: {on("gone", running("new")), on("gone", retiring(running("old")))}, 1: {on("gone", running("new")), running("new")}}},
			"delete 0; retire 1: none/running new to retire"},
		{"deleted", converge.Process{Slots: slots(running("new"), nil)}, "retire 0: running new to retire/none; delete 1"},
		{"nobody names it", converge.Process{Instances: 2, Active: "new", Healthy: "fine", Former: []string{"fine", "runs", "evacuates", "gone", "new"}, Timeouts: timeouts,
			Slots: map[int]converge.Slot{0: {instance(converge.Claimed, "new", 0), running("evacuates")}, 1: {running("runs"), nil}}}, "prune gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.p.Epoch == "" {
				tc.p.Epoch = "e"
			}
			for _, s := range tc.p.Slots {
				if s.Instance != nil && s.Instance.Epoch == "" {
					s.Instance.Epoch = "e"
				}
			}
			if got := told(converge.Decide(tc.p, now)); got != tc.want {
				t.Errorf("decided %q, want %q", got, tc.want)
			}
		})
	}
}

// TestTimeoutsAreNotKnown: who has read no definitions learns that they are needed.
func TestTimeoutsAreNotKnown(t *testing.T) {
	t.Parallel()
	p := converge.Process{Instances: 1, Epoch: "e", Active: "new", Healthy: "old", Slots: map[int]converge.Slot{0: {Instance: instance(converge.Claimed, "new", 0)}}}
	if got := told(converge.Decide(p, now)); got != "fall back old" {
		t.Errorf("decided %q", got)
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		s    converge.Slot
		say  func(*converge.Slot) error
		want string // state of both, or "refused"
	}{
		{"claim", converge.Slot{Instance: instance(converge.Unclaimed, "d", 0)}, func(s *converge.Slot) error { return s.Claim("g", "c", now) }, "CLAIMED g c/-"},
		{"claim again", converge.Slot{Instance: instance(converge.Claimed, "d", 0)}, func(s *converge.Slot) error { return s.Claim("guid-d", "cell", now) }, "CLAIMED guid-d cell/-"},
		{"claim another's", converge.Slot{Instance: instance(converge.Claimed, "d", 0)}, func(s *converge.Slot) error { return s.Claim("guid-d", "other", now) }, "refused"},
		{"claim a crashed one", converge.Slot{Instance: instance(converge.Crashed, "d", 0)}, func(s *converge.Slot) error { return s.Claim("g", "c", now) }, "refused"},
		{"claim none", converge.Slot{}, func(s *converge.Slot) error { return s.Claim("g", "c", now) }, "refused"},
		{"start", converge.Slot{Instance: instance(converge.Claimed, "d", 0)}, func(s *converge.Slot) error { return s.Start("guid-d", "cell", now) }, "RUNNING guid-d cell/-"},
		{"start unclaimed", converge.Slot{Instance: instance(converge.Unclaimed, "d", 0)}, func(s *converge.Slot) error { return s.Start("g", "c", now) }, "RUNNING g c/-"},
		{"start another's", converge.Slot{Instance: running("d")}, func(s *converge.Slot) error { return s.Start("g", "cell", now) }, "refused"},
		{"crash", converge.Slot{Instance: running("d")}, func(s *converge.Slot) error { return s.Crash("guid-d", "cell", "oom", now) }, "CRASHED   for oom/-"},
		{"crash of one that has moved on", converge.Slot{Instance: running("d")}, func(s *converge.Slot) error { return s.Crash("before", "cell", "oom", now) }, "refused"},
		{"crash of one to stop", converge.Slot{Instance: retiring(running("d"))}, func(s *converge.Slot) error { return s.Crash("guid-d", "cell", "oom", now) }, "-/-"},
		{"crash while evacuating", converge.Slot{Instance: instance(converge.Unclaimed, "d", 0), Evacuating: running("d")}, func(s *converge.Slot) error { return s.Crash("guid-d", "cell", "oom", now) }, "UNCLAIMED  /-"},
		{"fail", converge.Slot{Instance: instance(converge.Unclaimed, "d", 0)}, func(s *converge.Slot) error { return s.Fail("no room") }, "UNCLAIMED   for no room/-"},
		{"claim one that failed", converge.Slot{Instance: failed("no room")}, func(s *converge.Slot) error { return s.Claim("g", "c", now) }, "CLAIMED g c/-"},
		{"fail one that runs", converge.Slot{Instance: running("d")}, func(s *converge.Slot) error { return s.Fail("no room") }, "refused"},
		{"remove", converge.Slot{Instance: running("d")}, func(s *converge.Slot) error { s.Remove("guid-d", "cell"); return nil }, "-/-"},
		{"remove the other", converge.Slot{Instance: running("new"), Evacuating: running("old")}, func(s *converge.Slot) error { s.Remove("guid-old", "cell"); return nil }, "RUNNING guid-new cell/-"},
		{"remove again", converge.Slot{Instance: running("d")}, func(s *converge.Slot) error { s.Remove("before", "cell"); return nil }, "RUNNING guid-d cell/-"},
		{"evacuate", converge.Slot{Instance: running("d")}, func(s *converge.Slot) error { return s.Evacuate("guid-d", "cell", now) }, "UNCLAIMED  /RUNNING guid-d cell"},
		{"evacuate again", converge.Slot{Instance: instance(converge.Unclaimed, "d", 0), Evacuating: running("d")}, func(s *converge.Slot) error { return s.Evacuate("guid-d", "cell", now) }, "UNCLAIMED  /RUNNING guid-d cell"},
		{"evacuate before it runs", converge.Slot{Instance: instance(converge.Claimed, "d", 0)}, func(s *converge.Slot) error { return s.Evacuate("guid-d", "cell", now) }, "UNCLAIMED  /-"},
		{"evacuate next to another", converge.Slot{Instance: running("new"), Evacuating: running("old")}, func(s *converge.Slot) error { return s.Evacuate("guid-new", "cell", now) }, "refused"},
		{"retire", converge.Slot{Instance: running("d")}, func(s *converge.Slot) error { s.RetireInstance(); return nil }, "RUNNING guid-d cell to retire/-"},
		{"retire one that nobody has", converge.Slot{Instance: instance(converge.Crashed, "d", 0)}, func(s *converge.Slot) error { s.RetireInstance(); return nil }, "-/-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := tc.s
			kept := []converge.Instance{}
			for _, in := range []*converge.Instance{before.Instance, before.Evacuating} {
				if in != nil {
					kept = append(kept, *in)
				}
			}
			got := "refused"
			if err := tc.say(&tc.s); err == nil {
				got = shown(tc.s.Instance) + "/" + shown(tc.s.Evacuating)
			} else if !before.Equal(tc.s) {
				t.Error("it was refused, and done")
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			for _, in := range []*converge.Instance{before.Instance, before.Evacuating} {
				if in != nil && *in != kept[0] {
					t.Error("what was there was written to")
				}
				if in != nil {
					kept = kept[1:]
				}
			}
		})
	}
}

func shown(in *converge.Instance) string {
	if in == nil {
		return "-"
	}
	out := fmt.Sprintf("%s %s %s", in.State, in.GUID, in.Cell)
	if in.Retire {
		out += " to retire"
	}
	if why := in.CrashReason + in.PlacementError; why != "" {
		out += " for " + why
	}
	return out
}

// TestCrashesInARow: one that ran for long crashes for the first time.
func TestCrashesInARow(t *testing.T) {
	t.Parallel()
	in := running("d")
	in.Crashes = 7
	for ran, want := range map[time.Duration]int32{4 * time.Minute: 8, 5 * time.Minute: 1} {
		s := converge.Slot{Instance: in}
		if err := s.Crash("guid-d", "cell", "", in.Since.Add(ran)); err != nil || s.Instance.Crashes != want {
			t.Errorf("after %s: %v, %v", ran, s.Instance, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	if guid, index, err := converge.SplitName(converge.Name("a-1", 12)); guid != "a-1" || index != 12 || err != nil {
		t.Error(guid, index, err)
	}
	for _, name := range []string{"", "processes/a", "processes//instances/1", "processes/a/instances/01", "processes/a/instances/-1", "processes/a/instances/1/2", "x/a/instances/1"} {
		if _, _, err := converge.SplitName(name); err == nil {
			t.Errorf("%q is the name of an instance", name)
		}
	}
}
