package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// thing is a state. The place that the tests look at shows its number only.
type thing struct {
	n    int
	note string
}

func number(s thing) string { return fmt.Sprint(s.n) }

// told is a ledger of records in every situation that clients can leave them in.
func told() *Ledger[thing] {
	l := New[thing]("thing")
	write := func(key string, n int) {
		l.Begin(key, thing{n: n})
		l.Ack(key)
	}
	begin := func(key string, n int, end func(string)) {
		l.Begin(key, thing{n: n})
		end(key)
	}
	underWay := func(string) {}
	l.Load("loaded")
	l.Put("put", thing{n: 1})
	write("written", 2)
	write("updated", 3)
	write("updated", 4)
	write("deleted", 5)
	write("deleted", 0)
	write("open", 6)
	begin("open", 7, l.Unknown)
	begin("open", 8, l.Refuse)
	write("dying", 9)
	begin("dying", 0, underWay)
	begin("rising", 10, underWay)
	begin("barred", 11, l.Refuse)
	write("kept", 12)
	begin("kept", 0, l.Refuse)
	write("overtaken", 13)
	begin("overtaken", 14, l.Refuse)
	begin("overtaken", 15, l.Unknown)
	write("overtaken", 16)
	l.Load("rewritten")
	write("rewritten", 17)
	l.Load("changing")
	begin("changing", 0, l.Unknown)
	return l
}

// intact is what a place shows when all is well.
func intact() map[string]string {
	return map[string]string{
		"loaded": "anything", "put": "1", "written": "2", "updated": "4", "open": "6", "dying": "9", "kept": "12",
		"overtaken": "16", "rewritten": "17", "changing": "anything",
	}
}

func seenIn(prints map[string]string) Seen {
	seen := Seen{}
	for key, print := range prints {
		seen.Add(key, print)
	}
	return seen
}

func TestCheckFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	gone := ""
	for _, tc := range []struct {
		name  string
		plant map[string]string // instead of, or besides what is intact
		want  []string          // kinds and keys
	}{
		{"nothing", nil, nil},
		{"unknown outcomes may have happened", map[string]string{"open": "7", "dying": gone, "rising": "10", "changing": gone}, nil},
		{"acknowledged create is missing", map[string]string{"written": gone}, []string{"lost written"}},
		{"what was put is missing", map[string]string{"put": gone}, []string{"lost put"}},
		{"loaded record is missing", map[string]string{"loaded": gone}, []string{"lost loaded"}},
		{"loaded record is as before its update", map[string]string{"rewritten": "anything"}, []string{"lost rewritten"}},
		{"state before the acknowledged one", map[string]string{"updated": "3"}, []string{"lost updated"}},
		{"value that nobody wrote", map[string]string{"written": "99"}, []string{"lost written"}},
		{"acknowledged delete is undone", map[string]string{"deleted": "5"}, []string{"resurrected deleted"}},
		{"record that nobody wrote", map[string]string{"unheard": "1"}, []string{"foreign unheard"}},
		{"refused create is there", map[string]string{"barred": "11"}, []string{"refused barred"}},
		{"refused update is there", map[string]string{"open": "8"}, []string{"refused open"}},
		{"refused delete was done", map[string]string{"kept": gone}, []string{"refused kept"}},
		{"unknown outcome does not excuse a third state", map[string]string{"open": "99", "rising": "99"}, []string{"lost open", "lost rising"}},
		{"unknown update does not excuse absence", map[string]string{"open": gone}, []string{"lost open"}},
		{"acknowledged write ends what was possible", map[string]string{"overtaken": "15"}, []string{"lost overtaken"}},
		{"all at once, in order", map[string]string{"written": gone, "deleted": "5", "barred": "11", "unheard": "1"},
			[]string{"refused barred", "resurrected deleted", "foreign unheard", "lost written"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			prints := intact()
			for key, print := range tc.plant {
				if prints[key] = print; print == gone {
					delete(prints, key)
				}
			}
			found := told().Check("a test", seenIn(prints), number)
			if diff := cmp.Diff(tc.want, kindsAndKeys(found)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := found.Err(); (err != nil) != (tc.want != nil) {
				t.Errorf("as an error: %v", err)
			}
		})
	}
}

func kindsAndKeys(found Findings) (out []string) {
	for _, f := range found {
		out = append(out, string(f.Kind)+strings.TrimPrefix(f.Record, "thing"))
	}
	return out
}

func TestRecordThatIsThereTwice(t *testing.T) {
	t.Parallel()
	seen := seenIn(intact())
	seen.Add("written", "2")
	seen.Add("updated", "3") // and is not what it must be
	want := []string{"duplicated updated", "lost updated", "duplicated written"}
	if diff := cmp.Diff(want, kindsAndKeys(told().Check("a test", seen, number))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFindingsTellWhatIsWrong(t *testing.T) {
	t.Parallel()
	prints := intact()
	prints["updated"] = "3"
	delete(prints, "written")
	err := told().Check("the attic", seenIn(prints), number).Err()
	want := `2 findings
lost: thing updated: the attic holds "3", acknowledged is "4"
lost: thing written: it is not in the attic, acknowledged is "2"`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	var many Findings
	for range 100 {
		many = append(many, Finding{Kind: Lost})
	}
	if lines := strings.Count(many.Err().Error(), "\n"); lines != 10 {
		t.Errorf("100 findings are told in %d lines", lines)
	}
}

func TestReadsShowOnlyWhatIsPossible(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, key, print string
		meanwhile        func(l *Ledger[thing], key string)
		stale            bool
	}{
		{name: "acknowledged state", key: "updated", print: "4"},
		{name: "state before it", key: "updated", print: "3", stale: true},
		{name: "acknowledged write is not there", key: "written", print: "", stale: true},
		{name: "deleted record", key: "deleted", print: "5", stale: true},
		{name: "deleted record is absent", key: "deleted", print: ""},
		{name: "nobody has written it", key: "unheard", print: ""},
		{name: "it is there, and nobody has written it", key: "unheard", print: "1", stale: true},
		{name: "write of unknown outcome was done", key: "open", print: "7"},
		{name: "it was not", key: "open", print: "6"},
		{name: "refused write", key: "open", print: "8", stale: true},
		{name: "loaded", key: "loaded", print: "anything"},
		{name: "loaded, and absent", key: "loaded", print: "", stale: true},
		{name: "write under way", key: "rising", print: "torn"},
		{name: "write began", key: "updated", print: "torn", meanwhile: func(l *Ledger[thing], key string) { l.Begin(key, thing{n: 50}) }},
		{name: "write began and was acknowledged", key: "updated", print: "3", meanwhile: func(l *Ledger[thing], key string) {
			l.Begin(key, thing{n: 4})
			l.Ack(key)
		}},
		{name: "first write of a record", key: "unheard", print: "1", meanwhile: func(l *Ledger[thing], key string) { l.Put(key, thing{n: 2}) }},
		{name: "another record was written", key: "updated", print: "3", meanwhile: func(l *Ledger[thing], _ string) { l.Put("another", thing{n: 1}) }, stale: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := told()
			r := l.Read(tc.key)
			if tc.meanwhile != nil {
				tc.meanwhile(l, tc.key)
			}
			err := r.Check(tc.print, number)
			var f Finding
			if errors.As(err, &f) != tc.stale || tc.stale && (f.Kind != Stale || f.Record != "thing "+tc.key) {
				t.Errorf("found %v, want stale: %t", err, tc.stale)
			}
		})
	}
}

// What is not shown does not decide: two states that a place shows alike are alike there.
func TestStatesAreComparedAsThePlaceShowsThem(t *testing.T) {
	t.Parallel()
	l := New[thing]("thing")
	l.Put("a", thing{1, "hidden"})
	if err := l.Check("a test", seenIn(map[string]string{"a": "1"}), number).Err(); err != nil {
		t.Error(err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	l, rng := told(), rand.New(rand.NewPCG(1, 1))
	if some := l.Some(rng, 1000); len(some) != 1000 || !slices.Contains(some, "deleted") || !slices.Contains(some, "loaded") {
		t.Errorf("1000 keys: %v", some[:min(20, len(some))])
	}
	if some := New[thing]("none").Some(rng, 10); some != nil {
		t.Errorf("keys of nothing: %v", some)
	}
	if n := l.Len(); n != 13 {
		t.Errorf("%d keys", n)
	}
	for key, want := range map[string]bool{"loaded": false, "changing": true, "rewritten": true, "written": true, "unheard": true} {
		if l.Written(key) != want {
			t.Errorf("%s: written is %t", key, !want)
		}
	}
}
