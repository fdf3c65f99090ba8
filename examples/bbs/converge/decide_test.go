package converge_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/examples/bbs/converge"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// instance makes one that is wanted and in its state for some time.
func instance(state converge.State, ago time.Duration) *converge.Instance {
	in := &converge.Instance{Placement: "p", State: state, Epoch: "e", Wanted: now.Add(-ago), Since: now.Add(-ago)}
	if in.OnCell() {
		in.GUID, in.Cell = "guid", "cell"
	}
	return in
}

// slotsOf reads slots as tests write them: "old@0 running 5s", with "retire", "given-up", "lost",
// "former" (of the process before) and "crashed4" for four crashes in a row; an evacuating instance
// behind a slash; "-" for none.
func slotsOf(t *testing.T, texts ...string) map[converge.Key]converge.Slot {
	t.Helper()
	one := func(text string) *converge.Instance {
		words := strings.Fields(text)
		if len(words) == 0 || words[0] == "-" {
			return nil
		}
		state, crashes, _ := strings.Cut(words[0], "crashed")
		ago, in := time.Second, &converge.Instance{}
		if state == "" {
			state = "crashed"
		}
		for _, w := range words[1:] {
			if d, err := time.ParseDuration(w); err == nil {
				ago = d
			}
		}
		in = instance(converge.State(strings.ToUpper(state)), ago)
		if n, err := strconv.Atoi(crashes); err == nil {
			in.Crashes = int32(n)
		}
		for _, w := range words[1:] {
			switch w {
			case "retire":
				in.Retire = true
			case "given-up":
				in.GivenUp = true
			case "lost":
				in.Cell = "gone"
			case "former":
				in.Epoch = "e0"
			default:
				if _, err := time.ParseDuration(w); err != nil {
					t.Fatalf("%q in %q", w, text)
				}
			}
		}
		return in
	}
	out := map[converge.Key]converge.Slot{}
	for _, text := range texts {
		name, rest, _ := strings.Cut(text, " ")
		definition, index, _ := strings.Cut(name, "@")
		i, err := strconv.Atoi(index)
		if err != nil {
			t.Fatal(err)
		}
		instance, evacuating, _ := strings.Cut(rest, "/")
		out[converge.Key{Definition: definition, Index: i}] = converge.Slot{Instance: one(instance), Evacuating: one(evacuating)}
	}
	return out
}

// told prints actions as tests read them.
func told(actions []converge.Action) string {
	occupant := func(in *converge.Instance) string {
		if in == nil {
			return "-"
		}
		out := strings.ToLower(string(in.State))
		if in.GivenUp {
			out += " given-up"
		}
		if in.Retire {
			out += " retire"
		}
		return out
	}
	var out []string
	for _, a := range actions {
		switch a.Op {
		case converge.Heal, converge.FallBack:
			out = append(out, fmt.Sprintf("%s %s", a.Op, a.Definition))
		case converge.Prune:
			out = append(out, fmt.Sprintf("%s %s", a.Op, strings.Join(a.Definitions, " ")))
		case converge.Delete:
			out = append(out, fmt.Sprintf("%s %s@%d", a.Op, a.Key.Definition, a.Key.Index))
		default:
			text := fmt.Sprintf("%s %s@%d: %s", a.Op, a.Key.Definition, a.Key.Index, occupant(a.Slot.Instance))
			if a.Slot.Evacuating != nil {
				text += "/" + occupant(a.Slot.Evacuating)
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	type process = converge.Process
	for _, tc := range []struct {
		name  string
		p     process
		slots []string
		want  string
	}{
		{"nothing is there", process{Instances: 2, Active: "new"}, nil, "place new@0: unclaimed; place new@1: unclaimed"},
		{"all is as it is to be", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running", "new@1 running"}, ""},
		{"a cell has it", process{Instances: 1, Active: "new"}, []string{"new@0 claimed"}, ""},
		{"the first one runs", process{Instances: 2, Active: "new"}, []string{"new@0 running", "new@1 unclaimed"}, "heal new"},
		{"a client was faster than the first heal", process{Instances: 2, Active: "new", Former: []string{"older", "old"}}, []string{"older@1 running", "old@0 running"},
			"heal old; replace new@0: unclaimed"},

		// The rollout.
		{"one at a time", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "old@1 running"}, "replace new@0: unclaimed"},
		{"the next waits", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 claimed", "old@1 running"}, ""},
		{"the predecessor goes", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@0 running", "old@1 running"}, "retire old@0: running retire"},
		{"its cell stops it", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@0 running retire", "old@1 running"}, ""},
		{"it has stopped", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@0 -", "old@1 running"}, "delete old@0; replace new@1: unclaimed"},
		{"one that was evacuated still stops", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running/running retire", "old@1 running"}, ""},
		{"the healthy one waits for a cell", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 unclaimed", "old@1 running"}, ""},
		{"one is tried already", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "old@1 crashed9 60s", "new@1 crashed9 60s"}, ""},
		{"then the next one", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 running"}, "replace new@1: unclaimed"},

		// Restarts outside of the rollout.
		{"a crash during a rollout", process{Instances: 3, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 claimed", "old@1 crashed", "old@2 running"}, "restart old@1: unclaimed"},
		{"a crash at the index of the rollout", process{Instances: 1, Active: "new", Healthy: "old"}, []string{"old@0 crashed", "new@0 claimed"}, "restart old@0: unclaimed"},
		{"a crash of one before the healthy one", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 claimed", "older@1 crashed"}, "place old@1: unclaimed; delete older@1"},
		{"an evacuation during a rollout", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 claimed", "old@1 -/running"}, "place old@1: unclaimed/running"},
		{"an evacuation of one before the healthy one", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 claimed", "older@1 -/running"}, "place old@1: unclaimed"},
		{"its successor runs", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 claimed", "older@1 -/running", "old@1 running"}, "retire older@1: -/running retire"},
		{"a lost cell during a rollout", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 claimed", "old@1 running lost"}, "place old@1: unclaimed"},
		{"one more during a rollout", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 claimed"}, "place old@1: unclaimed"},
		{"proven by now", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 crashed"}, "place new@1: unclaimed; delete old@1"},
		{"nothing was proven", process{Instances: 1, Active: "new"}, []string{"old@0 crashed"}, "place new@0: unclaimed; delete old@0"},
		{"a crash", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 crashed3 0s"}, "restart new@0: unclaimed"},
		{"many crashes", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 crashed4 29s"}, ""},
		{"after the pause", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 crashed4 30s"}, "restart new@0: unclaimed"},
		{"a cell is lost", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running lost", "new@1 running"}, "place new@0: unclaimed"},
		{"one that was evacuated is lost", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 unclaimed/running lost"}, "clear new@0: unclaimed"},
		{"asked to stop", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 running retire"}, ""},

		// An index that holds the rollout up.
		{"within its timeout", process{Instances: 3, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 running", "new@1 crashed3 59s", "old@2 running"}, "restart new@1: unclaimed"},
		{"after its timeout", process{Instances: 3, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 running", "new@1 crashed9 60s", "old@2 running"}, "give up new@1: crashed given-up"},
		{"a timeout of its own", process{Instances: 3, Active: "new", Healthy: "new", RolloutTimeout: 7 * time.Second}, []string{"new@0 running", "old@1 running", "new@1 claimed 7s", "old@2 running"}, "give up new@1: claimed given-up retire"},
		{"a longer timeout", process{Instances: 3, Active: "new", Healthy: "new", RolloutTimeout: time.Hour}, []string{"new@0 running", "old@1 running", "new@1 unclaimed 59m", "old@2 running"}, ""},
		{"no cell takes it", process{Instances: 3, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 running", "new@1 unclaimed 60s", "old@2 running"}, "give up new@1: crashed given-up"},
		{"its cell still has it", process{Instances: 3, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 running", "new@1 claimed given-up retire", "old@2 running"}, ""},
		{"its cell is lost", process{Instances: 2, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 running", "new@1 claimed given-up retire lost"}, "clear new@1: crashed given-up"},
		{"the rollout goes on", process{Instances: 3, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 running", "new@1 crashed given-up", "old@2 running"}, "replace new@2: unclaimed"},
		{"it stays as it is", process{Instances: 3, Active: "new", Healthy: "new", Former: []string{"old"}}, []string{"new@0 running", "old@1 running", "new@1 crashed given-up 1000h", "new@2 running"}, ""},
		{"the other one crashes there", process{Instances: 3, Active: "new", Healthy: "new"}, []string{"new@0 running", "old@1 crashed", "new@1 crashed given-up", "new@2 running"}, "place new@1: unclaimed; delete old@1"},
		{"it crashes for ever after it ran", process{Instances: 3, Active: "new", Healthy: "new"}, []string{"new@0 running", "new@1 crashed9 60s", "old@2 running"}, "replace new@2: unclaimed"},
		{"it crashed after it ran", process{Instances: 3, Active: "new", Healthy: "new"}, []string{"new@0 running", "new@1 crashed9 59s", "old@2 running"}, ""},
		{"the healthy one crashes for ever", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 crashed9 60s", "old@1 crashed9 60s"}, "replace new@0: unclaimed"},
		{"the healthy one has crashed", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "old@1 crashed9 59s"}, ""},

		// A third definition.
		{"the second one waits", process{Instances: 3, Active: "third", Healthy: "new"}, []string{"new@0 running", "new@1 running", "old@2 running", "new@2 crashed"}, "replace third@0: unclaimed; delete new@2"},
		{"the second one starts", process{Instances: 3, Active: "third", Healthy: "new"}, []string{"new@0 running", "new@1 running", "old@2 running", "new@2 claimed"}, "retire new@2: claimed retire"},
		{"the second one was given up", process{Instances: 3, Active: "third", Healthy: "new"}, []string{"new@0 running", "old@1 running", "new@1 crashed given-up", "new@2 running"}, "replace third@0: unclaimed; delete new@1"},
		{"the second one never ran", process{Instances: 2, Active: "third", Healthy: "old", Former: []string{"old", "new"}}, []string{"old@0 running", "new@0 unclaimed", "old@1 running"}, "delete new@0; replace third@0: unclaimed"},
		{"it is replaced everywhere", process{Instances: 1, Active: "third", Healthy: "third", Former: []string{"old", "new"}}, []string{"third@0 running", "new@0 -"}, "delete new@0; prune old new"},

		// A definition that never starts.
		{"it is tried for ever", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 crashed9 1000h", "old@1 running"}, "restart new@0: unclaimed"},
		{"it never gets a cell", process{Instances: 2, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 unclaimed 1000h", "old@1 running"}, ""},
		{"a mark from before", process{Instances: 1, Active: "new", Healthy: "old"}, []string{"old@0 running", "new@0 crashed given-up"}, "delete new@0"},
		{"in time", process{Instances: 1, Active: "new", Healthy: "old", FallBackAfter: 10 * time.Second}, []string{"old@0 running", "new@0 claimed 9s"}, ""},
		{"it falls back", process{Instances: 1, Active: "new", Healthy: "old", FallBackAfter: 10 * time.Second}, []string{"old@0 running", "new@0 claimed 10s"}, "fall back old"},
		{"nothing to fall back to", process{Instances: 1, Active: "new", FallBackAfter: 1}, []string{"new@0 claimed 1h"}, ""},
		{"one runs, so it does not fall back", process{Instances: 2, Active: "new", Healthy: "old", FallBackAfter: 1}, []string{"new@0 running", "new@1 unclaimed 1h"}, "heal new"},
		{"what failed goes", process{Instances: 2, Active: "old", Healthy: "old", Former: []string{"new"}}, []string{"old@0 running", "new@0 claimed", "old@1 running"}, "retire new@0: claimed retire"},

		// What is not desired.
		{"of the process before", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 running former"}, "retire new@0: running retire"},
		{"of the process before, crashed", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 crashed former"}, "place new@0: unclaimed"},
		{"of the process before, lost", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 running former lost", "old@0 unclaimed given-up former"}, "place new@0: unclaimed; delete old@0"},
		{"surplus", process{Instances: 1, Active: "new", Healthy: "new"}, []string{"new@0 running", "new@1 running", "new@2 unclaimed", "new@3 -", "new@4 running retire"}, "retire new@1: running retire; delete new@2; delete new@3"},
		{"surplus, lost", process{Active: "new"}, []string{"new@0 running lost/running retire lost", "new@1 running lost/running"}, "delete new@0; retire new@1: -/running retire"},
		{"deleted", process{}, []string{"new@0 running", "new@1 -"}, "retire new@0: running retire; delete new@1"},
		{"deleted in a rollout", process{}, []string{"new@0 running", "old@0 running retire", "new@1 claimed", "old@1 running/running", "new@2 crashed given-up", "old@2 unclaimed"},
			"retire new@0: running retire; retire new@1: claimed retire; retire old@1: running retire/running retire; delete new@2; delete old@2"},
		{"nobody names it", process{Instances: 2, Active: "new", Healthy: "fine", Former: []string{"fine", "runs", "evacuates", "gone", "new"}}, []string{"new@0 claimed", "fine@0 unclaimed", "evacuates@0 -/running", "runs@1 running"}, "prune gone"},

		// Data with one definition.
		{"one definition", process{Instances: 2, Active: "new", Single: true}, []string{"new@0 running", "old@1 running"}, "replace new@1: unclaimed"},
		{"one definition, which crashes for ever", process{Instances: 3, Active: "new", Single: true}, []string{"new@0 running", "old@1 running", "new@1 crashed9 60s", "old@2 running"}, "give up new@1: crashed given-up"},
		{"one definition, which never starts", process{Instances: 2, Active: "new", Single: true}, []string{"old@0 running", "new@0 crashed3 60s", "old@1 running"}, "restart new@0: unclaimed"},
		{"one definition, and a crash", process{Instances: 1, Active: "new", Single: true}, []string{"old@0 crashed"}, "place new@0: unclaimed; delete old@0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.p.Slots, tc.p.Lost = slotsOf(t, tc.slots...), map[string]bool{"gone": true}
			if !strings.HasPrefix(tc.name, "deleted") {
				tc.p.Epoch = "e"
			}
			if got := told(converge.Decide(tc.p, now)); got != tc.want {
				t.Errorf("decided %q, want %q", got, tc.want)
			}
		})
	}
}
