package workload

import "testing"

// TestGoneBack: a place goes back to a moment. What was acknowledged since is undone, and what is
// written afterwards counts. A write that was under way when it went back may be there or not.
func TestGoneBack(t *testing.T) {
	l := New[thing]("thing")
	write := func(key string, n int) {
		l.Begin(key, thing{n: n})
		l.Ack(key)
	}
	write("kept", 1)
	write("undone", 2)
	write("deleted", 3)
	write("again", 4)
	write("late", 5)
	l.Begin("under way", thing{n: 6})
	then := l.Now()
	l.Ack("under way")
	write("undone", 7)
	write("deleted", 0)
	write("new", 8)
	l.Begin("late", thing{n: 9})
	l.GoneBack(then)
	l.Ack("late")
	write("again", 10)

	check := func(want string, seen map[string]string) {
		t.Helper()
		in := Seen{}
		for key, print := range seen {
			in.Add(key, print)
		}
		got := ""
		for _, f := range l.Check("here", in, number) {
			got += string(f.Kind) + " " + f.Record + "; "
		}
		if got != want {
			t.Errorf("%v: %s, want %s", seen, got, want)
		}
	}
	check("", map[string]string{"kept": "1", "undone": "2", "deleted": "3", "again": "10", "late": "5"})
	check("", map[string]string{"kept": "1", "undone": "2", "deleted": "3", "again": "10", "late": "9", "under way": "6"})
	check("lost thing again; lost thing deleted; lost thing late; resurrected thing new; lost thing undone; ",
		map[string]string{"kept": "1", "undone": "7", "again": "4", "late": "7", "new": "8"})
	write("late", 11) // its client knows again
	check("lost thing late; ", map[string]string{"kept": "1", "undone": "2", "deleted": "3", "again": "10", "late": "9"})
}
