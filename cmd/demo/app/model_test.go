package app

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// told is a model of keys in every situation that clients can leave them in.
func told(t *testing.T) *model {
	t.Helper()
	m := newModel("thing")
	write := func(key string, s state) {
		m.begin(key, s)
		m.ack(key, s)
	}
	m.load("loaded")
	write("written", state{v1: "w1", v2: "w2"})
	write("updated", state{v1: "old1", v2: "old2"})
	write("updated", state{v1: "new1", v2: "new2"})
	write("deleted", state{v1: "d1", v2: "d2"})
	write("deleted", state{})
	write("open", state{v1: "a1", v2: "a2"})
	m.begin("open", state{v1: "b1", v2: "b2"}) // outcome unknown
	write("dying", state{v1: "x1", v2: "x2"})
	m.begin("dying", state{}) // delete of unknown outcome
	write("rising", state{})
	m.begin("rising", state{v1: "r1", v2: "r2"}) // create of unknown outcome
	return m
}

// intact is what a place shows when all is well.
func intact() map[string]sighting {
	return map[string]sighting{
		"loaded": {"anything", 1}, "written": {"w2", 1}, "updated": {"new2", 1}, "open": {"a2", 1}, "dying": {"x2", 1},
	}
}

func TestCheckFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                          string
		plant                         func(map[string]sighting)
		lost, duplicated, resurrected []string
	}{
		{name: "nothing", plant: func(map[string]sighting) {}},
		{name: "unknown outcomes may have happened", plant: func(s map[string]sighting) {
			s["open"], s["rising"] = sighting{"b2", 1}, sighting{"r2", 1}
			delete(s, "dying")
		}},
		{name: "acknowledged create is missing", plant: func(s map[string]sighting) { delete(s, "written") }, lost: []string{"thing written"}},
		{name: "loaded record is missing", plant: func(s map[string]sighting) { delete(s, "loaded") }, lost: []string{"thing loaded"}},
		{name: "state before the acknowledged one", plant: func(s map[string]sighting) { s["updated"] = sighting{"old2", 1} }, lost: []string{"thing updated"}},
		{name: "acknowledged delete is undone", plant: func(s map[string]sighting) { s["deleted"] = sighting{"d2", 1} }, resurrected: []string{"thing deleted"}},
		{name: "record twice", plant: func(s map[string]sighting) { s["written"] = sighting{"w2", 2} }, duplicated: []string{"thing written"}},
		{name: "record that nobody wrote", plant: func(s map[string]sighting) { s["stray"] = sighting{"s", 1} }, duplicated: []string{"thing stray"}},
		{name: "unknown outcome does not excuse a third state", plant: func(s map[string]sighting) { s["open"] = sighting{"c2", 1} }, lost: []string{"thing open"}},
		{name: "unknown update does not excuse absence", plant: func(s map[string]sighting) { delete(s, "open") }, lost: []string{"thing open"}},
		{name: "all at once", plant: func(s map[string]sighting) {
			delete(s, "written")
			s["deleted"], s["updated"] = sighting{"d2", 1}, sighting{"new2", 3}
		}, lost: []string{"thing written"}, duplicated: []string{"thing updated"}, resurrected: []string{"thing deleted"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seen := intact()
			tc.plant(seen)
			f := newFindings(func(string) {})
			told(t).check(seen, formOf(newVersion), "a test", f)
			for _, part := range []struct {
				what string
				have map[string]bool
				want []string
			}{{"lost", f.lost, tc.lost}, {"duplicated", f.duplicated, tc.duplicated}, {"resurrected", f.resurrected, tc.resurrected}} {
				if diff := cmp.Diff(part.want, slices.Sorted(maps.Keys(part.have))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", part.what, diff)
				}
			}
		})
	}
}

func TestAKeyCountsOnceHoweverOftenItIsFound(t *testing.T) {
	t.Parallel()
	m, f := told(t), newFindings(func(string) {})
	seen := intact()
	delete(seen, "written")
	m.check(seen, formOf(newVersion), "one place", f)
	m.check(seen, formOf(newVersion), "another", f)
	if len(f.lost) != 1 {
		t.Errorf("%d keys lost, want 1", len(f.lost))
	}
}

func TestKnownIsCertainOnly(t *testing.T) {
	t.Parallel()
	m := told(t)
	for key, want := range map[string]bool{"loaded": false, "written": true, "open": false, "deleted": true, "never": true} {
		if _, certain := m.known(key); certain != want {
			t.Errorf("%s: certain is %t, want %t", key, certain, want)
		}
	}
	if s, _ := m.known("updated"); s.v1 != "new1" {
		t.Errorf("updated holds %q", s.v1)
	}
}
