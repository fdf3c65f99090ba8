package adapt_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/adapt"
)

// TestSelect: what is named is shown, of all groups by one command if the store has it.
func TestSelect(t *testing.T) {
	t.Parallel()
	f := newFace(t, memstore.New(), swapped(t), "v2", "v1", adapt.Config{})
	for i := range 30 {
		put(t, f.stored, "items", bson.D{{Key: "_id", Value: fmt.Sprintf("%d/of-%d", i/10, i%10)}})
	}
	alone, err := adapt.New(single{f.stored}, f.show, f.keep, adapt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var sels []record.Selector
	for _, name := range []string{"of-3/0", "of-9/2", "of-9/7", "no group"} {
		sels = append(sels, record.Selector{Kind: "things", Key: record.StringKey(name)})
	}
	for label, a := range map[string]*adapt.Adapter{"together": f.adapter, "one by one": alone} {
		f.stored.mu.Lock()
		f.stored.asked = nil
		f.stored.mu.Unlock()
		recs, err := a.Select(t.Context(), sels, false)
		var names []string
		for _, rec := range recs {
			name, _ := rec.Key.Name()
			names = append(names, rec.Kind+" "+name)
		}
		slices.Sort(names)
		if got := strings.Join(names, ", "); err != nil || got != "things of-3/0, things of-9/2" {
			t.Errorf("%s: got %s, %v", label, got, err)
		}
		if a == f.adapter && !slices.Equal(f.stored.asked, []string{"select"}) {
			t.Errorf("the store was asked to %v", f.stored.asked)
		}
	}
	_, err = f.adapter.Select(t.Context(), []record.Selector{{Kind: "things", Key: record.StringKey("of-3/"), Prefix: true}}, false)
	if unsupported := new(record.UnsupportedError); !errors.As(err, &unsupported) {
		t.Errorf("a prefix of several groups: %v", err)
	}
	if _, err := f.adapter.Select(t.Context(), []record.Selector{{Kind: "nothing", Key: record.StringKey("x")}}, false); err == nil {
		t.Error("an unknown kind is selected")
	}
}

// TestSelectOfGroup: of a group that shows several records, only what is selected.
func TestSelectOfGroup(t *testing.T) {
	t.Parallel()
	f := newFace(t, memstore.New(), split(t), "v1", "v2", adapt.Config{})
	for _, name := range []string{"a", "b"} {
		put(t, f.stored, "wholes", bson.D{{Key: "_id", Value: name}, {Key: "n", Value: 1}, {Key: "body", Value: "x"}})
	}
	for want, sels := range map[string][]record.Selector{
		"heads a":                        {{Kind: "heads", Key: record.StringKey("a")}},
		"parts a/main":                   {{Kind: "parts", Key: record.StringKey("a/"), Prefix: true}},
		"heads a, heads b, parts b/main": {{Kind: "heads", Key: record.StringKey("a")}, {Kind: "parts", Key: record.StringKey("b/"), Prefix: true}, {Kind: "heads", Key: record.StringKey("b")}},
		"":                               {{Kind: "parts", Key: record.StringKey("a/other")}, {Kind: "parts", Key: record.StringKey("of no group")}},
	} {
		recs, err := f.adapter.Select(t.Context(), sels, false)
		var got []string
		for _, rec := range recs {
			name, _ := rec.Key.Name()
			got = append(got, rec.Kind+" "+name)
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); err != nil || text != want {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
	}
}
