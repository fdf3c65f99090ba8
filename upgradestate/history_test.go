package upgradestate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	us "dbcontroller.dev/upgradestate"
)

// told is a record whose every transition is noted, by a clock that counts.
type told struct {
	t    *testing.T
	d    us.Deployment
	tick int
}

func (r *told) apply(by string, e us.Event) {
	r.t.Helper()
	next, err := us.Apply(r.d, e)
	if err != nil {
		r.t.Fatalf("%T: %v", e, err)
	}
	r.tick++
	r.d = us.Note(r.d, next, by, fmt.Sprint(r.tick))
}

// switchOver drives the upgrade that runs to its flip.
func (r *told) switchOver() {
	r.t.Helper()
	for range 50 {
		if r.d.Upgrade == nil {
			return
		}
		for _, a := range us.Actions(r.d) {
			if w, ok := a.(us.AwaitReports); ok {
				r.apply("c-1", us.Report{ID: w.ID, State: w.State, Attempt: w.Attempt, Fences: w.Fences, Shards: w.Shards})
				break
			}
			if e := eventOf(a); e != nil {
				r.apply("c-1", e)
				break
			}
		}
	}
	r.t.Fatalf("no flip: %s", show(r.d))
}

func newTold(t *testing.T) *told {
	var d us.Deployment
	play(t, &d, `new v1 2
namespace v1 a:uuid
namespace v2 a:uuid`)
	return &told{t: t, d: d}
}

func phases(e us.Entry) string {
	var names []string
	for _, p := range e.Phases {
		names = append(names, p.Phase)
	}
	return strings.Join(names, " ")
}

func TestHistoryTellsAnUpgrade(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	r.apply("ann", us.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h", Policy: us.Policy{Hold: true}})
	r.apply("ann", us.AskSwitch{})
	r.switchOver()
	if len(r.d.History) != 2 {
		t.Fatalf("history: %+v", r.d.History)
	}
	e := r.d.History[0]
	want := "INITIAL_SYNCING READY HOLD FENCE DRAIN SEAL_TARGET SEAL_SOURCE"
	if e.By != "ann" || e.What != "upgrade" || e.From != "v1" || e.To != "v2" || e.Outcome != "switched" || e.Ended == "" || phases(e) != want {
		t.Errorf("upgrade: %+v", e)
	}
	if s := r.d.History[1]; s.What != "switch" || s.By != "ann" || s.ID != "u1" {
		t.Errorf("switch: %+v", s)
	}
	r.apply("bob", us.Begin{ID: "u2", TargetVersion: "v1", TransformHash: "h"})
	r.apply("bob", us.Abort{Reason: "too late"})
	if e := r.d.History[2]; e.By != "bob" || e.Outcome != "aborted: too late" || e.Ended == "" {
		t.Errorf("abort: %+v", e)
	}
}

func TestHistoryTellsVerbs(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	yes, no, why, rate := true, false, "backup", 100
	r.apply("ann", us.SetPace{Paused: &yes, Reason: &why})
	r.apply("ann", us.SetPace{Paused: &yes, Reason: &why})
	r.apply("bob", us.SetPace{Paused: &no})
	r.apply("bob", us.SetPace{MaxRate: &rate})
	r.apply("bob", us.Remark{What: "waive", Detail: "a/x"})
	r.apply("eve", us.BeginUpdate{Update: us.Update{ID: "d1", Name: "fill", Hash: "h", Version: "v1", Kind: "a"}})
	r.apply("c-1", us.UpdateDone{ID: "d1", Shard: 0, Count: us.UpdateCount{Seen: 3, Changed: 1}})
	r.apply("c-2", us.UpdateDone{ID: "d1", Shard: 1, Count: us.UpdateCount{Seen: 4, Changed: 2}})
	r.apply("ann", us.Complete{Version: "v2"})
	r.apply("c-1", us.Dropped{Version: "v2"})
	var got []string
	for _, e := range r.d.History {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.By, e.What, e.Detail, e.Outcome)))
		if e.At == "" {
			t.Errorf("%s has no time", e.What)
		}
	}
	want := []string{
		"ann pause backup", "bob resume", "bob pace at most 100 records a second, source load as configured, at any time", "bob waive a/x",
		"eve update fill over a done; 7 seen, 3 changed", "ann complete  dropped",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.d.History[5].Ended == "" {
		t.Error("nobody knows when the retirement ended")
	}
}

// TestHistoryIsBounded: it is written with every step of a switch.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	r := newTold(t)
	for i := range 200 {
		r.apply("ann", us.Remark{What: "waive", Detail: fmt.Sprint(i)})
	}
	if n := len(r.d.History); n != 50 || r.d.History[n-1].Detail != "199" {
		t.Errorf("%d entries, the last is %+v", n, r.d.History[n-1])
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		v, err := time.Parse("15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tc := range []struct {
		window, at string
		holds      bool
	}{
		{"", "12:00:00", true},
		{"09:00-17:00", "09:00:00", true},
		{"09:00-17:00", "16:59:59", true},
		{"09:00-17:00", "17:00:00", false},
		{"22:00-05:00", "23:30:00", true},
		{"22:00-05:00", "04:59:59", true},
		{"22:00-05:00", "05:00:00", false},
		{"22:00-05:00", "12:00:00", false},
	} {
		w, err := us.ParseWindow(tc.window)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Holds(at(tc.at)); got != tc.holds {
			t.Errorf("%s holds %s: %t", tc.window, tc.at, got)
		}
	}
	for _, bad := range []string{"22:00", "22-05", "24:00-05:00", "05:00-05:00", "a-b", "22:00-05:00-06:00"} {
		if _, err := us.ParseWindow(bad); err == nil || !strings.Contains(err.Error(), "HH:MM-HH:MM") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
