package hooks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/upgradestate"
)

// life is a deployment whose record is written as the store writes it.
type life struct {
	t *testing.T
	d upgradestate.Deployment
	n int
}

func (l *life) note(change func(*upgradestate.Deployment)) {
	after := upgradestate.Clone(l.d)
	change(&after)
	l.n++
	l.d = upgradestate.Note(l.d, after, "test", fmt.Sprintf("2026-01-01T00:00:%02dZ", l.n))
	l.d.Revision++
}

func (l *life) begin(id string) {
	l.note(func(d *upgradestate.Deployment) {
		d.Upgrade = &upgradestate.Upgrade{ID: id, TargetVersion: "v2", State: upgradestate.InitialSyncing}
	})
}

func (l *life) ready() {
	l.note(func(d *upgradestate.Deployment) { d.Upgrade.ReadyShards = []int{0} })
}

func (l *life) retry() {
	l.note(func(d *upgradestate.Deployment) { d.Upgrade.Failures++; d.Upgrade.LastFailure = "too slow" })
}

func (l *life) flip() {
	l.note(func(d *upgradestate.Deployment) {
		d.LastSwitch = &upgradestate.Switch{ID: d.Upgrade.ID, From: d.CurrentVersion, To: d.Upgrade.TargetVersion, Millis: map[string]int64{"hold": 3}}
		d.CurrentVersion, d.Upgrade = d.Upgrade.TargetVersion, nil
	})
}

func (l *life) abort(why string) {
	l.note(func(d *upgradestate.Deployment) { d.Upgrade.AbortReason = why })
	l.note(func(d *upgradestate.Deployment) { d.Upgrade = nil })
}

func (l *life) breach() {
	l.note(func(d *upgradestate.Deployment) {
		d.History = append(d.History, upgradestate.Entry{What: "breach", From: "v1", ID: "users", Detail: "the view was dropped"})
	})
}

// fill has so many other things happen that the history forgets what was before.
func (l *life) fill() {
	for range 60 {
		l.note(func(d *upgradestate.Deployment) { d.Pace.MaxRate++ })
	}
}

func newLife(t *testing.T) *life {
	d := upgradestate.New("services/a/deployments/b", "v1", 1)
	d.Revision = 1
	return &life{t: t, d: d}
}

// told lists events in short.
func told(events []Event) (all []string) {
	for _, e := range events {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, e.Upgrade, e.Detail)))
	}
	return all
}

// TestEventsOfALife: whatever is seen of a record, each of its states or the last alone, the
// same events are made in the same order.
func TestEventsOfALife(t *testing.T) {
	t.Parallel()
	live := func(l *life, see func()) {
		for _, step := range []func(){
			func() { l.begin("u1") }, l.ready, l.retry, l.breach, func() { l.abort("a test") },
			func() { l.begin("u2") }, l.ready, l.retry, l.retry, l.flip,
			func() {
				l.note(func(d *upgradestate.Deployment) { d.Retire = &upgradestate.Retire{Version: "v1"} })
			},
			func() {
				l.note(func(d *upgradestate.Deployment) { d.Retire, d.Retired = nil, []string{"v1"} })
			},
		} {
			step()
			see()
		}
	}
	want := []string{
		"begin u1 switch when ready", "ready u1", "retry u1 attempt 1 at the switch failed: too slow", "fence-broken  the view was dropped", "aborted u1 a test",
		"begin u2 switch when ready", "ready u2", "retry u2 attempt 1 at the switch failed: too slow", "retry u2 attempt 2 at the switch failed: too slow",
		"switched u2", "completed  dropped",
	}
	for _, every := range []int{1, 2, 3, 5, 100} {
		l := newLife(t)
		var s State
		s.configure([]string{"a"})
		s.follow(l.d)
		n := 0
		live(l, func() {
			if n++; n%every == 0 {
				s.follow(l.d)
			}
		})
		s.follow(l.d)
		got := told(s.Queue)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("looking every %d times (-want +got):\n%s", every, diff)
		}
		ids := map[string]bool{}
		for i, e := range s.Queue {
			if ids[e.ID] || e.ID == "" || e.Sequence != int64(i+1) || e.Deployment != l.d.Name || e.At == "" {
				t.Errorf("event %d: %+v", i, e)
			}
			ids[e.ID] = true
		}
		before := len(s.Queue)
		again := l.d
		s.follow(again)
		again.Revision--
		s.follow(again)
		if len(s.Queue) != before || len(s.Open) != 0 {
			t.Errorf("the same record made more events: %v, open %v", told(s.Queue[before:]), s.Open)
		}
	}
}

// TestEventsBegin: where hooks are new, what is over is not told, and what runs is.
func TestEventsBegin(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.begin("u1")
	l.ready()
	l.flip()
	var s State
	s.follow(l.d)
	if len(s.Queue) > 0 {
		t.Errorf("%v are old", told(s.Queue))
	}
	l = newLife(t)
	l.begin("u1")
	l.abort("")
	l.begin("u2")
	l.ready()
	s = State{}
	s.follow(l.d)
	if diff := cmp.Diff([]string{"begin u2 switch when ready", "ready u2"}, told(s.Queue)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEventsOfALongHistory: an end is told although the history has forgotten the begin, and
// a record that was made anew is no reason to tell everything again.
func TestEventsOfALongHistory(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"switched", "aborted"} {
		l := newLife(t)
		var s State
		s.follow(l.d)
		l.begin("u1")
		s.follow(l.d)
		l.fill()
		s.follow(l.d)
		if got := told(s.Queue); len(got) != 1 || len(s.Open) != 1 {
			t.Fatalf("%v, open %v", got, s.Open)
		}
		if ends == "switched" {
			l.flip()
		} else {
			l.abort("")
		}
		s.follow(l.d)
		if got := s.Queue[len(s.Queue)-1]; string(got.Type) != ends || got.Upgrade != "u1" || len(s.Queue) != 2 {
			t.Errorf("%v, want %s", told(s.Queue), ends)
		}
		l.d.History, l.d.HistoryDropped = l.d.History[48:], 0 // as recover writes it
		l.d.Revision++
		s.follow(l.d)
		l.begin("u2")
		s.follow(l.d)
		if got := told(s.Queue[2:]); len(got) != 1 || !strings.HasPrefix(got[0], "begin u2") {
			t.Errorf("after the record was made anew: %v", got)
		}
	}
}

// TestParkedEvents: one of the first, one of many more, and none of what comes and goes.
func TestParkedEvents(t *testing.T) {
	t.Parallel()
	d := upgradestate.New("services/a/deployments/b", "v1", 1)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s State
	for i, c := range []struct {
		after     time.Duration
		direction string
		count     int64
		want      int
	}{
		{0, "1", 0, 0},
		{0, "1", 1, 1},
		{time.Hour, "1", 9, 1},
		{0, "1", 10, 2},
		{time.Second, "1", 1000, 2}, // too soon
		{time.Minute, "1", 1000, 3},
		{time.Hour, "1", 0, 3},
		{time.Second, "1", 1, 4},
		{time.Second, "1", 0, 4},
		{time.Second, "1", 1, 4}, // too soon
		{time.Minute, "2", 1, 5},
		{time.Minute, "2", 1, 5},
	} {
		now = now.Add(c.after)
		s.park(d, c.direction, c.count, now)
		if len(s.Queue) != c.want {
			t.Fatalf("step %d: %d events, want %d", i, len(s.Queue), c.want)
		}
	}
	if e := s.Queue[2]; e.Parked != 1000 || e.Type != Parked || e.From != "v1" {
		t.Errorf("%+v", e)
	}
}

// TestStateIsBounded: a hook that is away for ever costs a bounded amount.
func TestStateIsBounded(t *testing.T) {
	t.Parallel()
	var s State
	s.configure([]string{"away", "there", "picky"})
	for range 10 * maxQueue {
		s.add(upgradestate.Deployment{}, Event{Type: Begin, Detail: strings.Repeat("ä", 10*maxDetail)})
		s.Done["there"] = s.Sequence
		s.skip("picky", func(t Type) bool { return t == Aborted })
		s.trim()
	}
	if len(s.Queue) != maxQueue || s.Queue[maxQueue-1].Sequence != 10*maxQueue || len(s.Queue[0].Detail) > maxDetail+3 || s.Done["picky"] != s.Sequence {
		t.Errorf("%d events, the last is %d, done %v", len(s.Queue), s.Queue[maxQueue-1].Sequence, s.Done)
	}
	s.configure([]string{"there", "new"})
	if len(s.Queue) != 0 || s.Done["new"] != s.Sequence || len(s.Done) != 2 {
		t.Errorf("%d events wait for nobody, done %v", len(s.Queue), s.Done)
	}
}
