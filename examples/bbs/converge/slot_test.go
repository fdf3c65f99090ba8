package converge_test

import (
	"fmt"
	"testing"
	"time"

	"dbcontroller.dev/examples/bbs/converge"
)

func failed(why string) *converge.Instance {
	in := instance(converge.Unclaimed, 0)
	in.PlacementError = why
	return in
}

func running() *converge.Instance { return instance(converge.Running, time.Second) }

func named(guid string, in *converge.Instance) *converge.Instance {
	in.GUID = guid
	return in
}

func retiring(in *converge.Instance) *converge.Instance {
	in.Retire = true
	return in
}

func givenUp(in *converge.Instance) *converge.Instance {
	in.GivenUp = true
	return in
}

func TestSlots(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		s    converge.Slot
		say  func(*converge.Slot) error
		want string // state of both, or "refused"
	}{
		{"claim", converge.Slot{Instance: instance(converge.Unclaimed, 0)}, func(s *converge.Slot) error { return s.Claim("g", "c", now) }, "CLAIMED g c/-"},
		{"claim again", converge.Slot{Instance: instance(converge.Claimed, 0)}, func(s *converge.Slot) error { return s.Claim("guid", "cell", now) }, "CLAIMED guid cell/-"},
		{"claim another's", converge.Slot{Instance: instance(converge.Claimed, 0)}, func(s *converge.Slot) error { return s.Claim("guid", "other", now) }, "refused"},
		{"claim a crashed one", converge.Slot{Instance: instance(converge.Crashed, 0)}, func(s *converge.Slot) error { return s.Claim("g", "c", now) }, "refused"},
		{"claim none", converge.Slot{}, func(s *converge.Slot) error { return s.Claim("g", "c", now) }, "refused"},
		{"start", converge.Slot{Instance: instance(converge.Claimed, 0)}, func(s *converge.Slot) error { return s.Start("guid", "cell", now) }, "RUNNING guid cell/-"},
		{"start unclaimed", converge.Slot{Instance: instance(converge.Unclaimed, 0)}, func(s *converge.Slot) error { return s.Start("g", "c", now) }, "RUNNING g c/-"},
		{"start another's", converge.Slot{Instance: running()}, func(s *converge.Slot) error { return s.Start("g", "cell", now) }, "refused"},
		{"crash", converge.Slot{Instance: running()}, func(s *converge.Slot) error { return s.Crash("guid", "cell", "oom", now) }, "CRASHED   for oom/-"},
		{"crash of one that has moved on", converge.Slot{Instance: running()}, func(s *converge.Slot) error { return s.Crash("before", "cell", "oom", now) }, "refused"},
		{"crash of one to stop", converge.Slot{Instance: retiring(running())}, func(s *converge.Slot) error { return s.Crash("guid", "cell", "oom", now) }, "-/-"},
		{"crash while evacuating", converge.Slot{Instance: instance(converge.Unclaimed, 0), Evacuating: running()}, func(s *converge.Slot) error { return s.Crash("guid", "cell", "oom", now) }, "UNCLAIMED  /-"},
		{"fail", converge.Slot{Instance: instance(converge.Unclaimed, 0)}, func(s *converge.Slot) error { return s.Fail("no room") }, "UNCLAIMED   for no room/-"},
		{"claim one that failed", converge.Slot{Instance: failed("no room")}, func(s *converge.Slot) error { return s.Claim("g", "c", now) }, "CLAIMED g c/-"},
		{"fail one that runs", converge.Slot{Instance: running()}, func(s *converge.Slot) error { return s.Fail("no room") }, "refused"},
		{"remove", converge.Slot{Instance: running()}, func(s *converge.Slot) error { s.Remove("guid", "cell"); return nil }, "-/-"},
		{"remove the other", converge.Slot{Instance: named("new", running()), Evacuating: running()}, func(s *converge.Slot) error { s.Remove("guid", "cell"); return nil }, "RUNNING new cell/-"},
		{"remove again", converge.Slot{Instance: running()}, func(s *converge.Slot) error { s.Remove("before", "cell"); return nil }, "RUNNING guid cell/-"},
		{"evacuate", converge.Slot{Instance: running()}, func(s *converge.Slot) error { return s.Evacuate("guid", "cell", now) }, "-/RUNNING guid cell"},
		{"evacuate again", converge.Slot{Instance: instance(converge.Unclaimed, 0), Evacuating: running()}, func(s *converge.Slot) error { return s.Evacuate("guid", "cell", now) }, "UNCLAIMED  /RUNNING guid cell"},
		{"evacuate before it runs", converge.Slot{Instance: instance(converge.Claimed, 0)}, func(s *converge.Slot) error { return s.Evacuate("guid", "cell", now) }, "-/-"},
		{"evacuate one to stop", converge.Slot{Instance: retiring(running())}, func(s *converge.Slot) error { return s.Evacuate("guid", "cell", now) }, "-/-"},
		{"remove one that was given up", converge.Slot{Instance: givenUp(retiring(instance(converge.Claimed, 0)))}, func(s *converge.Slot) error { s.Remove("guid", "cell"); return nil }, "CRASHED   given up/-"},
		{"crash of one that was given up", converge.Slot{Instance: givenUp(retiring(instance(converge.Claimed, 0)))}, func(s *converge.Slot) error { return s.Crash("guid", "cell", "", now) }, "CRASHED   given up/-"},
		{"retire one that was given up", converge.Slot{Instance: givenUp(instance(converge.Crashed, 0))}, func(s *converge.Slot) error { s.RetireInstance(); return nil }, "-/-"},
		{"evacuate next to another", converge.Slot{Instance: named("new", running()), Evacuating: running()}, func(s *converge.Slot) error { return s.Evacuate("new", "cell", now) }, "refused"},
		{"retire", converge.Slot{Instance: running()}, func(s *converge.Slot) error { s.RetireInstance(); return nil }, "RUNNING guid cell to retire/-"},
		{"retire one that nobody has", converge.Slot{Instance: instance(converge.Crashed, 0)}, func(s *converge.Slot) error { s.RetireInstance(); return nil }, "-/-"},
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
	if in.GivenUp {
		out += " given up"
	}
	if why := in.CrashReason + in.PlacementError; why != "" {
		out += " for " + why
	}
	return out
}

// TestCrashesInARow: one that ran for long crashes for the first time, and has a new timeout.
func TestCrashesInARow(t *testing.T) {
	t.Parallel()
	in := running()
	in.Crashes = 7
	for ran, want := range map[time.Duration]int32{4 * time.Minute: 8, 5 * time.Minute: 1} {
		s := converge.Slot{Instance: in}
		if err := s.Crash("guid", "cell", "", in.Since.Add(ran)); err != nil || s.Instance.Crashes != want || s.Instance.Wanted.Equal(in.Wanted) != (want > 1) {
			t.Errorf("after %s: %v, %v", ran, s.Instance, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ definition, name string }{
		{"a-1", "processes/a-1/instances/12"}, {"two", "processes/a-1/instances/12@two"}, {"x@y", "processes/a-1/instances/12@x@y"},
	} {
		key := converge.Key{Definition: tc.definition, Index: 12}
		if name := converge.Name("a-1", key); name != tc.name {
			t.Errorf("%v is named %s", key, name)
		}
		if guid, k, err := converge.SplitName(tc.name); guid != "a-1" || k != key || err != nil {
			t.Error(guid, k, err)
		}
		if guid, k, open, err := converge.ParseName(tc.name); guid != "a-1" || k != key || open != (tc.definition == "a-1") || err != nil {
			t.Error(guid, k, open, err)
		}
	}
	if _, k, open, err := converge.ParseName("processes/a/instances/1@a"); k != (converge.Key{Definition: "a", Index: 1}) || open || err != nil {
		t.Error(k, open, err)
	}
	for _, name := range []string{
		"", "processes/a", "processes//instances/1", "processes/a/instances/01", "processes/a/instances/-1", "processes/a/instances/+1", "processes/a/instances/1/2", "x/a/instances/1",
		"processes/a/instances/1@", "processes/a/instances/@x", "processes/a/instances/", "processes/a/instances/1@a",
	} {
		if _, _, err := converge.SplitName(name); err == nil {
			t.Errorf("%q is the name of an instance", name)
		}
	}
}
