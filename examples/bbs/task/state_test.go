package task

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.UnixMilli(1_700_000_000_000).UTC()

// TestStates: every call in every state, with what it makes of the task.
func TestStates(t *testing.T) {
	t.Parallel()
	done := Outcome{Result: "42"}
	in := map[State]Task{
		Pending: {State: Pending}, Running: {State: Running, Cell: "c"}, Completed: {State: Completed, Cell: "c", Outcome: done, Done: t0}, Resolving: {State: Resolving, Cell: "c", Outcome: done, Done: t0},
	}
	calls := map[string]func(*Task) error{
		"start":           func(t *Task) error { _, err := t.Start("c", t0); return err },
		"start elsewhere": func(t *Task) error { _, err := t.Start("d", t0); return err },
		"complete":        func(t *Task) error { return t.Complete("c", done, t0) },
		"complete again":  func(t *Task) error { return t.Complete("c", Outcome{Result: "43"}, t0) },
		"not its cell":    func(t *Task) error { return t.Complete("d", done, t0) },
		"fail":            func(t *Task) error { return t.Fail("why", t0) },
		"cancel":          func(t *Task) error { return t.Cancel(t0) },
		"reject":          func(t *Task) error { return t.Reject("no room", t0) },
		"resolve":         func(t *Task) error { return t.Resolve(t0) },
		"post":            func(t *Task) error { return t.post(t0) },
		"release":         func(t *Task) error { return t.release(t0) },
		"delete":          (*Task).deletable,
	}
	want := map[string]map[State]string{
		"start": {Pending: "RUNNING c", Running: "RUNNING c"}, "start elsewhere": {Pending: "RUNNING d"},
		"complete": {Running: "COMPLETED c 42", Completed: "COMPLETED c 42"}, "complete again": {Running: "COMPLETED c 43"}, "not its cell": {},
		"fail": {Pending: "COMPLETED  failed: why", Running: "COMPLETED c failed: why"}, "cancel": {Pending: "COMPLETED  failed: " + Cancelled, Running: "COMPLETED c failed: " + Cancelled},
		"reject": {Pending: "PENDING "}, "resolve": {Completed: "RESOLVING c 42"}, "post": {Completed: "RESOLVING c 42"}, "release": {Resolving: "COMPLETED c 42"}, "delete": {Resolving: "RESOLVING c 42"},
	}
	for name, call := range calls {
		for state, task := range in {
			before := task
			err := call(&task)
			text := fmt.Sprintf("%s %s", task.State, task.Cell)
			switch {
			case task.Outcome.Failed:
				text += " failed: " + task.Outcome.Reason
			case task.Outcome.Result != "":
				text += " " + task.Outcome.Result
			}
			expected, allowed := want[name][state]
			switch {
			case allowed && (err != nil || text != expected):
				t.Errorf("%s in %s: %q, %v, want %q", name, state, text, err, expected)
			case !allowed && (!errors.Is(err, ErrRefused) || task != before):
				t.Errorf("%s in %s: %v, and the task is %v, was %v", name, state, err, task, before)
			}
		}
	}
}

func TestStartTwice(t *testing.T) {
	t.Parallel()
	task := Task{State: Pending}
	for i, want := range []bool{true, false, false} {
		if started, err := task.Start("c", t0); started != want || err != nil {
			t.Errorf("start %d: %v, %v", i, started, err)
		}
	}
}

func TestRejectedTooOften(t *testing.T) {
	t.Parallel()
	task := Task{State: Pending}
	for i := range maxRejected {
		if task.State != Pending {
			t.Fatalf("after %d rejections it is %v", i, task)
		}
		if err := task.Reject(fmt.Sprint("no room ", i), t0); err != nil {
			t.Fatal(err)
		}
	}
	if task.State != Completed || task.Outcome != (Outcome{Failed: true, Reason: "no room 9"}) || task.Rejections != maxRejected {
		t.Errorf("in the end it is %v", task)
	}
}

// TestDecide: what is due, and when it is due otherwise.
func TestDecide(t *testing.T) {
	t.Parallel()
	cfg := Config{}.withDefaults()
	const url = "http://x"
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	for _, tc := range []struct {
		name string
		task Task
		now  time.Duration
		op   Op
		next time.Duration // 0: none
	}{
		{"pending", Task{State: Pending, Created: t0}, time.Minute, Nothing, 30 * time.Minute},
		{"pending too long", Task{State: Pending, Created: t0}, 30 * time.Minute, GiveUp, 0},
		{"running", Task{State: Running, Cell: "c"}, 24 * time.Hour, Nothing, 0},
		{"running on a lost cell", Task{State: Running, Cell: "lost"}, 0, Lose, 0},
		{"completed, no callback", Task{State: Completed, Done: t0, Updated: t0}, 0, Nothing, time.Hour},
		{"completed, expired", Task{State: Completed, Done: t0, Updated: at(time.Hour)}, time.Hour, Expire, 0},
		{"first post", Task{State: Completed, Done: t0, Updated: t0, URL: url}, 0, Post, 0},
		{"after one post", Task{State: Completed, Done: t0, Updated: t0, URL: url, Attempts: 1}, 0, Nothing, time.Second},
		{"second post", Task{State: Completed, Done: t0, Updated: t0, URL: url, Attempts: 1}, time.Second, Post, 0},
		{"after many posts", Task{State: Completed, Done: t0, Updated: t0, URL: url, Attempts: 1 << 30}, 0, Nothing, 2 * time.Minute},
		{"the expiry comes first", Task{State: Completed, Done: t0, Updated: at(time.Hour - time.Second), URL: url, Attempts: 9}, time.Hour - time.Second, Nothing, time.Hour},
		{"expired with a callback", Task{State: Completed, Done: t0, Updated: t0, URL: url}, time.Hour, Expire, 0},
		{"resolving", Task{State: Resolving, Done: t0, Updated: t0, URL: url}, time.Second, Nothing, 30 * time.Second},
		{"resolving too long", Task{State: Resolving, Done: t0, Updated: t0}, 30 * time.Second, Release, 0},
		{"resolving and expired", Task{State: Resolving, Done: t0, Updated: at(time.Hour)}, time.Hour, Nothing, time.Hour + 30*time.Second},
	} {
		op, next := Decide(tc.task, at(tc.now), map[string]bool{"lost": true}, cfg)
		want := time.Time{}
		if tc.next != 0 {
			want = at(tc.next)
		}
		if op != tc.op || !next.Equal(want) {
			t.Errorf("%s: %q at %v, want %q at %v", tc.name, op, next, tc.op, want)
		}
	}
	if got := (Config{CallbackTimeout: time.Minute}).withDefaults(); got.ResolveTimeout != 2*time.Minute {
		t.Errorf("a task is released while it is posted: %v", got)
	}
}

// TestCallsInAnyOrder: whatever clients, cells and controllers do, states change only along their order,
// a task has one outcome, and nothing is deleted that nobody has taken.
func TestCallsInAnyOrder(t *testing.T) {
	t.Parallel()
	order := map[State][]State{Pending: {Running, Completed}, Running: {Completed}, Completed: {Resolving}, Resolving: {Completed}}
	rapid.Check(t, func(rt *rapid.T) {
		task, now := Task{State: Pending, Created: t0, Updated: t0, URL: "http://x"}, t0
		for range rapid.IntRange(1, 30).Draw(rt, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(rt, "ms")) * time.Millisecond)
			cell := rapid.SampledFrom([]string{"c", "d"}).Draw(rt, "cell")
			before := task
			var err error
			switch rapid.IntRange(0, 8).Draw(rt, "call") {
			case 0:
				_, err = task.Start(cell, now)
			case 1:
				err = task.Complete(cell, Outcome{Failed: rapid.Bool().Draw(rt, "failed"), Reason: "r", Result: "s"}, now)
			case 2:
				err = task.Fail("f", now)
			case 3:
				err = task.Cancel(now)
			case 4:
				err = task.Reject("j", now)
			case 5:
				err = task.Resolve(now)
			case 6:
				err = task.post(now)
			case 7:
				err = task.release(now)
			case 8:
				if err = task.deletable(); err == nil && task.State != Resolving {
					rt.Fatalf("%v can be deleted", task)
				}
			}
			if err != nil && task != before {
				rt.Fatalf("refused, and it is %v, was %v", task, before)
			}
			if task.State != before.State && !slices.Contains(order[before.State], task.State) {
				rt.Fatalf("from %s to %s", before.State, task.State)
			}
			ended := before.State == Completed || before.State == Resolving
			if ended && (task.Outcome != before.Outcome || task.Done != before.Done || task.Cell != before.Cell) {
				rt.Fatalf("the outcome is %v, was %v", task, before)
			}
			if o := task.Outcome; o.Failed && o.Result != "" || !o.Failed && o.Reason != "" {
				rt.Fatalf("outcome %v", o)
			}
		}
	})
}
