package fanout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// Orders with lines, in every form that a list can take, maps and objects.
const (
	linesByOrder   = lenstest.LinesByOrder
	linesByIndex   = `fanOut: {field: lines, as: list, kind: lines, key: "{_key}/lines/{index}", value: line}`
	linesByID      = `fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{id}", id: sku}`
	linesByContent = `fanOut: {field: lines, as: list, kind: lines, key: "{id}", id: sku, parent: order, order: position}`
	notesAsMap     = `fanOut: {field: notes, as: map, kind: notes, key: "{_key}/{id}"}`
	planAsObject   = `fanOut: {field: plan, as: object, kind: plans, key: "{_key}", operations: [{rename: {from: tier, to: level}}, {add: {field: seats, default: 1}}]}`
)

func TestFanOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, lens string
		old        string
		now        []string
	}{
		{"ordered", lenstest.Orders(linesByOrder), `old {"_id":"o","lines":[{"sku":"b","n":1},{"sku":"a","n":2}],"x":1}`, []string{
			`new {"_id":"o","x":1}`, `lines {"_id":"o/b","order":"o","position":0,"sku":"b","n":1}`, `lines {"_id":"o/a","order":"o","position":1,"sku":"a","n":2}`,
		}},
		{"values by index", lenstest.Orders(linesByIndex), `old {"_id":"o","lines":["x",[1,2],null,{"a":1},"x","x","x","x","x","x","y"]}`, []string{
			`new {"_id":"o"}`, `lines {"_id":"o/lines/0","line":"x"}`, `lines {"_id":"o/lines/1","line":[1,2]}`, `lines {"_id":"o/lines/2","line":null}`, `lines {"_id":"o/lines/3","line":{"a":1}}`,
			`lines {"_id":"o/lines/4","line":"x"}`, `lines {"_id":"o/lines/5","line":"x"}`, `lines {"_id":"o/lines/6","line":"x"}`, `lines {"_id":"o/lines/7","line":"x"}`, `lines {"_id":"o/lines/8","line":"x"}`,
			`lines {"_id":"o/lines/9","line":"x"}`, `lines {"_id":"o/lines/10","line":"y"}`,
		}},
		{"sorted", lenstest.Orders(linesByID), `old {"_id":"o/p","lines":[{"sku":2},{"sku":10,"x":{}}]}`, []string{
			`new {"_id":"o/p"}`, `lines {"_id":"o/p/2","sku":2}`, `lines {"_id":"o/p/10","sku":10,"x":{}}`,
		}},
		{"by content", lenstest.Orders(linesByContent), `old {"_id":7,"lines":[{"sku":5,"n":1},{"sku":"a"}]}`, []string{
			`new {"_id":7}`, `lines {"_id":5,"order":7,"position":0,"sku":5,"n":1}`, `lines {"_id":"a","order":7,"position":1,"sku":"a"}`,
		}},
		{"own _id", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "{id}", id: _id, parent: order, order: at}`), `old {"_id":7,"lines":[{"n":1,"_id":{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"}}]}`, []string{
			`new {"_id":7}`, `lines {"_id":{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"},"order":7,"at":0,"n":1}`,
		}},
		{"map", lenstest.Orders(notesAsMap), `old {"_id":"o","notes":{"b":{"t":1},"a":{}}}`, []string{`new {"_id":"o"}`, `notes {"_id":"o/b","t":1}`, `notes {"_id":"o/a"}`}},
		{"map of values", lenstest.Orders(`fanOut: {field: notes, as: map, kind: notes, key: "{_key}/{item.v}", id: name, operations: []}`), `old {"_id":"o","notes":{"a/b":{"v":1}}}`, []string{`new {"_id":"o"}`, `notes {"_id":"o/1","name":"a/b","v":1}`}},
		{"object", lenstest.Orders(planAsObject), `old {"_id":"o","plan":{"tier":"gold"}}`, []string{`new {"_id":"o"}`, `plans {"_id":"o","level":"gold","seats":1}`}},
		{"empty object", lenstest.Orders(planAsObject), `old {"_id":"o","plan":{}}`, []string{`new {"_id":"o"}`, `plans {"_id":"o","seats":1}`}},
		{"ids of all types", lenstest.Orders(linesByOrder), `old {"_id":"o","lines":[{"sku":{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"}},{"sku":{"$numberLong":"-7"}},{"sku":0}]}`, []string{
			`new {"_id":"o"}`, `lines {"_id":"o/655f1e5e5e5e5e5e5e5e5e5e","order":"o","position":0,"sku":{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"}}`,
			`lines {"_id":"o/-7","order":"o","position":1,"sku":{"$numberLong":"-7"}}`, `lines {"_id":"o/0","order":"o","position":2,"sku":0}`,
		}},
		{"sorted objectIds", lenstest.Orders(linesByID), `old {"_id":"o","lines":[{"sku":{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"}},{"sku":{"$oid":"755f1e5e5e5e5e5e5e5e5e5e"}}]}`, []string{
			`new {"_id":"o"}`, `lines {"_id":"o/655f1e5e5e5e5e5e5e5e5e5e","sku":{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"}}`, `lines {"_id":"o/755f1e5e5e5e5e5e5e5e5e5e","sku":{"$oid":"755f1e5e5e5e5e5e5e5e5e5e"}}`,
		}},
		{"absent", lenstest.Orders(linesByOrder), `old {"_id":"o"}`, []string{`new {"_id":"o"}`}},
		{"null", lenstest.Orders(linesByOrder), `old {"_id":"o","lines":null,"x":1}`, []string{`new {"_id":"o","lines":null,"x":1}`}},
		{"empty", lenstest.Orders(linesByOrder), `old {"_id":"o","lines":[],"x":1}`, []string{`new {"_id":"o","lines":[],"x":1}`}},
		{"empty map", lenstest.Orders(notesAsMap), `old {"_id":"o","notes":{}}`, []string{`new {"_id":"o","notes":{}}`}},
		{"no entries, a name that is no string", lenstest.Orders(linesByOrder), `old {"_id":7,"lines":[]}`, []string{`new {"_id":7,"lines":[]}`}},
		{"nested field", lenstest.Orders(`fanOut: {field: o.lines, as: list, kind: lines, key: "{_key}/{index}"}`, "rename: {from: o, to: p}"), `old {"_id":"o","o":{"lines":[{"a":1}]}}`, []string{`new {"_id":"o","p":{}}`, `lines {"_id":"o/0","a":1}`}},
		{"1 to N to M", lenstest.Orders(linesByOrder, notesAsMap, planAsObject), `old {"_id":"o","lines":[{"sku":"a"}],"notes":{"n":{}},"plan":{"tier":1}}`, []string{
			`new {"_id":"o"}`, `lines {"_id":"o/a","order":"o","position":0,"sku":"a"}`, `notes {"_id":"o/n"}`, `plans {"_id":"o","level":1,"seats":1}`,
		}},
		{"special characters", lenstest.Orders(linesByOrder), `old {"_id":"ü/{x}/","lines":[{"sku":"é { } %"}]}`, []string{`new {"_id":"ü/{x}/"}`, `lines {"_id":"ü/{x}//é { } %","order":"ü/{x}/","position":0,"sku":"é { } %"}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Parse(t, tc.lens)
			s := l.Spec("old", "new")
			old, want := lenstest.FromJSON(t, tc.old), lenstest.FromJSON(t, tc.now...)
			now := lenstest.MustTake(t, s.Up, old, nil)
			if got := lenstest.Show(t, now); got != lenstest.Show(t, want) {
				t.Errorf("got\n%s\nwant\n%s", got, lenstest.Show(t, want))
			}
			if back := lenstest.MustTake(t, s.Down, now, old); lenstest.Show(t, back) != lenstest.Show(t, old) {
				t.Errorf("came back as\n%s", lenstest.Show(t, back))
			}
			// A lens in the other direction has gather where this one has fanOut.
			if again := lenstest.MustTake(t, s.Up, old, now); lenstest.Show(t, again) != lenstest.Show(t, now) {
				t.Errorf("over itself it became\n%s", lenstest.Show(t, again))
			}
		})
	}
}

func TestFanOutRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, lens string
		up         bool
		records    []string
		err        string
	}{
		{"a string", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":"x"}`}, "lines is of type string, not list"},
		{"a map", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":{"a":{}}}`}, "lines is of type object, not list"},
		{"items without fields", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"sku":"a"},5]}`}, "entry 1: it is of type int, not an object"},
		{"no id", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"n":5}]}`}, "an entry of lines has no sku"},
		{"duplicated id", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"sku":"a"},{"sku":"a"}]}`}, "two entries that would become the record o/a of lines"},
		{"ids alike in the key", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"sku":1},{"sku":"1"}]}`}, "two entries that would become the record o/1"},
		{"id with a slash", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"sku":"a/b"}]}`}, `{id} would be "a/b", which contains a slash`},
		{"empty id", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"sku":""}]}`}, "{id} would be empty"},
		{"id of no text", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"sku":1.5}]}`}, "cannot be part of a key"},
		{"not sorted", lenstest.Orders(linesByID), true, []string{`old {"_id":"o","lines":[{"sku":"b"},{"sku":"a"}]}`}, "does not come after"},
		{"ids of two types", lenstest.Orders(linesByID), true, []string{`old {"_id":"o","lines":[{"sku":"b"},{"sku":1}]}`}, "have no order"},
		{"a field of the child's", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"sku":"b","order":1}]}`}, "order is there already (int)"},
		{"an _id within", lenstest.Orders(linesByOrder), true, []string{`old {"_id":"o","lines":[{"sku":"b","_id":1}]}`}, "_id is there already (int)"},
		{"a name that is no string", lenstest.Orders(linesByOrder), true, []string{`old {"_id":7,"lines":[{"sku":"b"}]}`}, "the _id of the record cannot be part of a key of lines: it is of type int, not string"},
		{"empty map entry", lenstest.Orders(notesAsMap), true, []string{`old {"_id":"o","notes":{"":{}}}`}, "{id} would be empty"},
		{"orphan", lenstest.Orders(linesByOrder), false, []string{`lines {"_id":"o/b","order":"o","position":0,"sku":"b"}`}, "record o/b of lines belongs to a missing record of new"},
		{"other parent", lenstest.Orders(linesByOrder), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/b","order":"p","position":0,"sku":"b"}`}, `its order is "p", not o`},
		{"no place", lenstest.Orders(linesByOrder), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/b","order":"o","sku":"b"}`}, "it has no position"},
		{"place of another type", lenstest.Orders(linesByOrder), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/b","order":"o","sku":"b","position":0.5}`}, "not a place"},
		{"same place", lenstest.Orders(linesByOrder), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/a","order":"o","position":3,"sku":"a"}`, `lines {"_id":"o/b","order":"o","position":3,"sku":"b"}`}, "have the same position, 3"},
		{"a key of its own", lenstest.Orders(linesByOrder), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/b","order":"o","position":0,"sku":"a"}`}, "its position give the key o/a"},
		{"a gap", lenstest.Orders(linesByIndex), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/lines/1","line":1}`}, "its position give the key o/lines/0"},
		{"a leading zero", lenstest.Orders(linesByIndex), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/lines/00","line":1}`}, "its position give the key o/lines/0"},
		{"no number", lenstest.Orders(linesByIndex), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/lines/x","line":1}`}, "not a number"},
		{"more than the value", lenstest.Orders(linesByIndex), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/lines/0","line":1,"more":1}`}, "must have line and no other field"},
		{"both", lenstest.Orders(linesByOrder), false, []string{`new {"_id":"o","lines":[1]}`}, "lines is there already (list)"},
		{"no object to be in", lenstest.Orders(`fanOut: {field: o.lines, as: list, kind: lines, key: "{_key}/{index}"}`), false, []string{`new {"_id":"o"}`, `lines {"_id":"o/0"}`}, "o.lines has no object to be in"},
		{"two objects", lenstest.Orders(`fanOut: {field: plan, as: object, kind: plans, key: "{_key}/{item.n}"}`), false, []string{`new {"_id":"o"}`, `plans {"_id":"o/1","n":1}`, `plans {"_id":"o/2","n":2}`}, "2 records of plans are one object"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := lenstest.Parse(t, tc.lens).Spec("old", "new")
			f := s.Up
			if !tc.up {
				f = s.Down
			}
			out, err := lenstest.Take(f, lenstest.FromJSON(t, tc.records...), nil)
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error is %v, want %q\n%s", err, tc.err, lenstest.Show(t, out))
			}
		})
	}
}

// TestEntryTakenOut: where a child is deleted out of the middle, the others are as they
// were, and a new one goes between them.
func TestEntryTakenOut(t *testing.T) {
	t.Parallel()
	s := lenstest.Parse(t, lenstest.Orders(linesByOrder)).Spec("old", "new")
	now := lenstest.FromJSON(t, `new {"_id":"o"}`, `lines {"_id":"o/a","order":"o","position":0,"sku":"a"}`, `lines {"_id":"o/c","order":"o","position":{"$numberLong":"7"},"sku":"c"}`)
	old := lenstest.MustTake(t, s.Down, now, nil)
	if got := lenstest.Show(t, old); got != `old {"_id":"o","lines":[{"sku":"a"},{"sku":"c"}]}` {
		t.Fatal(got)
	}
	if again := lenstest.MustTake(t, s.Up, old, now); lenstest.Show(t, again) != lenstest.Show(t, now) {
		t.Errorf("became\n%s", lenstest.Show(t, again))
	}
	longer := lenstest.FromJSON(t, `old {"_id":"o","lines":[{"sku":"a"},{"sku":"b"},{"sku":"c"},{"sku":"d"}]}`)
	want := lenstest.FromJSON(t, `new {"_id":"o"}`, `lines {"_id":"o/a","order":"o","position":0,"sku":"a"}`, `lines {"_id":"o/b","order":"o","position":1,"sku":"b"}`,
		`lines {"_id":"o/c","order":"o","position":{"$numberLong":"7"},"sku":"c"}`, `lines {"_id":"o/d","order":"o","position":8,"sku":"d"}`)
	if got := lenstest.MustTake(t, s.Up, longer, now); lenstest.Show(t, got) != lenstest.Show(t, want) {
		t.Errorf("became\n%s", lenstest.Show(t, got))
	}
}

// TestEmptyFieldThatGotEntries: what stood for an empty list or map stays where records
// were added in addition to it, because the version that added them did not take it away,
// and goes when the other version takes the field away.
func TestEmptyFieldThatGotEntries(t *testing.T) {
	t.Parallel()
	copies := `fanOut: {field: copies, as: map, kind: copies, key: "{_key}/{id}"}`
	for _, tc := range []struct {
		lens           string
		now            []string
		old, gone, new string
	}{
		{lenstest.Orders(linesByOrder), []string{`new {"_id":"o","lines":[],"x":1}`, `lines {"_id":"o/a","order":"o","position":0,"sku":"a"}`},
			`old {"_id":"o","lines":[{"sku":"a"}],"x":1}`, `old {"_id":"o","x":1}`, `new {"_id":"o","x":1}`},
		{lenstest.Orders(copies), []string{`new {"_id":"o","copies":{},"x":1}`, `copies {"_id":"o/a","n":1}`},
			`old {"_id":"o","copies":{"a":{"n":1}},"x":1}`, `old {"_id":"o","x":1}`, `new {"_id":"o","x":1}`},
		{lenstest.Orders(copies), []string{`new {"_id":"o","copies":null}`, `copies {"_id":"o/a","n":1}`},
			`old {"_id":"o","copies":{"a":{"n":1}}}`, `old {"_id":"o"}`, `new {"_id":"o"}`},
		{lenstest.Orders(strings.Replace(copies, "copies", "o.copies", 1), "rename: {from: o, to: p}"), []string{`new {"_id":"o","p":{"copies":{},"x":1}}`, `copies {"_id":"o/a","n":1}`},
			`old {"_id":"o","o":{"copies":{"a":{"n":1}},"x":1}}`, `old {"_id":"o","o":{"x":1}}`, `new {"_id":"o","p":{"x":1}}`},
	} {
		l := lenstest.Parse(t, tc.lens)
		up, down := lenstest.Ways(t, l)
		s := l.Spec("old", "new")
		now := lenstest.FromJSON(t, tc.now...)
		id, _, _ := down.GroupOf("new", record.StringKey("o"))
		old, err := down.Transform(id, transform.Group{Name: id.Name, Records: now}, transform.Group{})
		if err != nil || lenstest.Show(t, old) != tc.old {
			t.Errorf("%s became %v, %v", tc.now, lenstest.Show(t, old), err)
			continue
		}
		if !up.NeedsHave(id) {
			t.Error("what the new version holds is not asked for")
		}
		if got := lenstest.MustTake(t, s.Up, old, now); lenstest.Show(t, got) != lenstest.Show(t, now) {
			t.Errorf("get-put: became\n%s", lenstest.Show(t, got))
		}
		// What was made for the empty field goes with the first entry, so that the other side
		// never depends on what a record once was.
		alone := slices.DeleteFunc(slices.Clone(now), func(r record.Record) bool { return r.Kind != "new" })
		if got, want := lenstest.MustTake(t, s.Up, old, alone), lenstest.MustTake(t, s.Up, old, nil); lenstest.Show(t, got) != lenstest.Show(t, want) {
			t.Errorf("over an empty field: became\n%s", lenstest.Show(t, got))
		}
		if got := lenstest.Show(t, lenstest.MustTake(t, s.Up, lenstest.FromJSON(t, tc.gone), now)); got != tc.new {
			t.Errorf("without the field: %s", got)
		}
	}
}

// TestChildrenKeepTheirOwn: fields that only the new version has survive an edit by the
// old one; those of an entry that was replaced do not go to another.
func TestChildrenKeepTheirOwn(t *testing.T) {
	t.Parallel()
	s := lenstest.Parse(t, lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{id}", id: sku, order: at, operations: [{add: {field: note, default: none}}, {remove: {field: legacy}}]}`)).Spec("old", "new")
	now := lenstest.FromJSON(t, `new {"_id":"o"}`, `lines {"_id":"o/a","at":0,"sku":"a","n":1,"note":"kept"}`, `lines {"_id":"o/b","at":1,"sku":"b","note":"gone"}`)
	old := lenstest.FromJSON(t, `old {"_id":"o","lines":[{"sku":"c"},{"sku":"a","n":2,"legacy":true}]}`)
	want := lenstest.FromJSON(t, `new {"_id":"o"}`, `lines {"_id":"o/c","at":0,"sku":"c","note":"none"}`, `lines {"_id":"o/a","at":1,"sku":"a","n":2,"note":"kept"}`)
	up := lenstest.MustTake(t, s.Up, old, now)
	if lenstest.Show(t, up) != lenstest.Show(t, want) {
		t.Errorf("became\n%s", lenstest.Show(t, up))
	}
	if down := lenstest.MustTake(t, s.Down, up, old); lenstest.Show(t, down) != lenstest.Show(t, old) {
		t.Errorf("came back as\n%s", lenstest.Show(t, down))
	}
}

// TestGather: records of several kinds of the old version become one of the new.
func TestGather(t *testing.T) {
	t.Parallel()
	s := lenstest.Parse(t, lenstest.Orders(
		`gather: {kind: settings, field: settings, as: object, key: "{_key}", operations: [{rename: {from: lang, to: language}}]}`,
		`gather: {kind: emails, field: emails, as: list, key: "{_key}/{id}", id: address, order: rank}`,
		`rename: {from: emails, to: mail}`)).Spec("old", "new")
	old := lenstest.FromJSON(t, `old {"_id":"ann","name":"Ann"}`, `settings {"_id":"ann","lang":"en"}`, `emails {"_id":"ann/b","rank":2,"address":"b"}`, `emails {"_id":"ann/a","rank":5,"address":"a"}`)
	now := lenstest.MustTake(t, s.Up, old, nil)
	if got, want := lenstest.Show(t, now), `new {"_id":"ann","name":"Ann","settings":{"language":"en"},"mail":[{"address":"b"},{"address":"a"}]}`; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	if back := lenstest.MustTake(t, s.Down, now, old); lenstest.Show(t, back) != lenstest.Show(t, old) {
		t.Errorf("came back as\n%s", lenstest.Show(t, back))
	}
	if _, err := lenstest.Take(s.Up, old[:2], nil); err == nil || !strings.Contains(err.Error(), "belongs to a missing record of old") {
		t.Errorf("orphans: %v", err)
	}
	// Without their children the record alone.
	if got := lenstest.Show(t, lenstest.MustTake(t, s.Up, lenstest.FromJSON(t, `old {"_id":"ann"}`), now)); got != `new {"_id":"ann"}` {
		t.Error(got)
	}
}

// TestLongLists: what is looked up by key or name is found among many.
func TestLongLists(t *testing.T) {
	t.Parallel()
	s := lenstest.Parse(t, lenstest.Orders(linesByOrder, notesAsMap)).Spec("old", "new")
	var items, notes []string
	for i := range 500 {
		items = append(items, fmt.Sprintf(`{"sku":"s%d"}`, i*7919%500))
		notes = append(notes, fmt.Sprintf(`"n%d":{"i":%d}`, i*7919%500, i))
	}
	old := lenstest.FromJSON(t, fmt.Sprintf(`old {"_id":"o","lines":[%s],"notes":{%s}}`, strings.Join(items, ","), strings.Join(notes, ",")))
	now := lenstest.MustTake(t, s.Up, old, nil)
	if len(now) != 1001 {
		t.Fatalf("%d records", len(now))
	}
	if again := lenstest.MustTake(t, s.Up, old, now); lenstest.Show(t, again) != lenstest.Show(t, now) {
		t.Error("it changed over itself")
	}
	if back := lenstest.MustTake(t, s.Down, now, old); lenstest.Show(t, back) != lenstest.Show(t, old) {
		t.Error("it did not come back")
	}
	items = append(items, items[0])
	if _, err := lenstest.Take(s.Up, lenstest.FromJSON(t, fmt.Sprintf(`old {"_id":"o","lines":[%s]}`, strings.Join(items, ","))), nil); err == nil || !strings.Contains(err.Error(), "two entries that would become the record o/s0") {
		t.Errorf("an entry twice: %v", err)
	}
}

func TestKindsOfASpec(t *testing.T) {
	t.Parallel()
	l := lenstest.Parse(t, "kinds: {from: orders, to: sales}\n"+lenstest.Orders(linesByOrder, "gather: {kind: payments, field: payment, as: object, key: '{_key}'}"))
	if old, now := l.Kinds("a", "b"); fmt.Sprint(old, now) != "[a payments] [b lines]" {
		t.Errorf("kinds %v and %v", old, now)
	}
	for _, options := range [][]lens.SpecOption{nil, {lens.Managed()}} {
		s := l.Spec("", "", options...)
		var got []string
		for _, k := range slices.Concat(s.Old.Kinds, s.New.Kinds) {
			got = append(got, k.Name)
			if k.Fixed != (options == nil) {
				t.Errorf("%s is fixed: %t", k.Name, k.Fixed)
			}
		}
		if s.Name != "orders" || fmt.Sprint(got) != "[orders payments sales lines]" {
			t.Errorf("spec %s of %v", s.Name, got)
		}
	}
}

// TestFanGroups: a delete of a child finds its group by its key alone.
func TestFanGroups(t *testing.T) {
	t.Parallel()
	l := lenstest.Parse(t, `
key: {from: "p/{p}", to: "r/{r}/p/{p}", with: {r: eu}}
operations:
  - fanOut: {field: lines, as: list, kind: lines, key: "r/eu/p/{p}/lines/{id}", id: sku}
  - fanOut: {field: notes, as: map, kind: notes, key: "{_key}/notes-{id}"}
  - gather: {kind: plans, field: plan, as: object, key: "plans/{p}"}
`)
	up, down := lenstest.Ways(t, l)
	id, _, err := up.GroupOf("old", record.StringKey("p/1"))
	if err != nil {
		t.Fatal(err)
	}
	for kind, key := range map[string]string{"new": "r/eu/p/1", "lines": "r/eu/p/1/lines/x", "notes": "r/eu/p/1/notes-x"} {
		got, _, err := down.GroupOf(kind, record.StringKey(key))
		if err != nil || got != id {
			t.Errorf("%s %s: group %v, %v", kind, key, got, err)
		}
	}
	if got, _, err := up.GroupOf("plans", record.StringKey("plans/1")); err != nil || got != id {
		t.Errorf("plans: group %v, %v", got, err)
	}
	var selected []string
	for _, s := range slices.Concat(up.SourceSelect(id), up.TargetSelect(id)) {
		selected = append(selected, fmt.Sprintf("%s %s %t", s.Kind, s.Key, s.Prefix))
	}
	want := []string{"old p/1 false", "plans plans/1 false", "new r/eu/p/1 false", "lines r/eu/p/1/lines/ true", "notes r/eu/p/1/notes- true"}
	if !slices.Equal(selected, want) {
		t.Errorf("selected %q", selected)
	}
	for kind, key := range map[string]string{"lines": "r/us/p/1/lines/x", "notes": "r/us/p/1/notes-x"} {
		if _, _, err := down.GroupOf(kind, record.StringKey(key)); err == nil {
			t.Errorf("%s %s has a group", kind, key)
		}
	}
}

func someSKUs(t *rapid.T) []string {
	return rapid.Permutation([]string{"a", "b", "c", "ü"}).Draw(t, "skus")[:rapid.IntRange(0, 4).Draw(t, "lines")]
}

func orderID(t *rapid.T) string { return rapid.SampledFrom([]string{"o", "o/p", "o/a"}).Draw(t, "id") }

// oldOrder draws a record of the old version.
func oldOrder(t *rapid.T, sorted bool) []record.Record {
	d := lenstest.Maybe(t, bson.D{{Key: "_id", Value: orderID(t)}}, "x", 1, nil)
	switch rapid.IntRange(0, 4).Draw(t, "lines are") {
	case 0:
	case 1:
		d = append(d, bson.E{Key: "lines"})
	default:
		lines := bson.A{}
		skus := someSKUs(t)
		if sorted {
			slices.Sort(skus)
		}
		for _, sku := range skus {
			lines = append(lines, lenstest.Line(t, sku))
		}
		d = append(d, bson.E{Key: "lines", Value: lines})
	}
	return []record.Record{lenstest.Record(t, "old", lenstest.Maybe(t, d, "y", "z"))}
}

// newOrder draws a group of the new version; controls are the fields that tie a line to
// its order.
func newOrder(t *rapid.T, controls func(order, sku string, at int) bson.D) []record.Record {
	id := orderID(t)
	d := lenstest.Maybe(t, bson.D{{Key: "_id", Value: id}}, "x", 1)
	skus := someSKUs(t)
	d = lenstest.Maybe(t, d, "lines", nil, bson.A{}) // also in addition to lines: these were added later
	out := []record.Record{lenstest.Record(t, "new", d)}
	at := 0
	for _, sku := range skus {
		at += rapid.IntRange(1, 3).Draw(t, "gap")
		out = append(out, lenstest.Record(t, "lines", append(controls(id, sku, at), lenstest.Line(t, sku)...)))
	}
	return out
}

func TestFanOutLaws(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, operation string
		sorted          bool
		controls        func(order, sku string, at int) bson.D
	}{
		{"ordered", linesByOrder, false, func(order, sku string, at int) bson.D {
			return bson.D{{Key: "_id", Value: order + "/" + sku}, {Key: "position", Value: at}, {Key: "order", Value: order}}
		}},
		{"sorted", linesByID, true, func(order, sku string, at int) bson.D {
			return bson.D{{Key: "_id", Value: order + "/" + sku}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			lenstest.Laws(t, lenstest.Parse(t, lenstest.Orders(tc.operation)), false, true, func(t *rapid.T) []record.Record { return oldOrder(t, tc.sorted) },
				func(t *rapid.T) []record.Record { return newOrder(t, tc.controls) })
		})
		t.Run("gather "+tc.name, func(t *testing.T) {
			t.Parallel()
			// The same with the versions exchanged.
			text := strings.Replace(lenstest.Orders(tc.operation), "fanOut", "gather", 1)
			rename := func(rs []record.Record, from, to string) []record.Record {
				for i := range rs {
					if rs[i].Kind == from {
						rs[i].Kind = to
					}
				}
				return rs
			}
			lenstest.Laws(t, lenstest.Parse(t, text), true, false,
				func(t *rapid.T) []record.Record { return rename(newOrder(t, tc.controls), "new", "old") },
				func(t *rapid.T) []record.Record { return rename(oldOrder(t, tc.sorted), "old", "new") })
		})
	}
}

// TestManyKindsLaws: two kinds become three, under other names.
func TestManyKindsLaws(t *testing.T) {
	t.Parallel()
	l := lenstest.Parse(t, `
key: {from: "orders/{order}", to: "regions/{region}/orders/{order}", with: {region: eu}}
operations:
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/lines/{index}", operations: [{add: {field: weight, default: 0}}]}
  - rename: {from: note, to: comment}
  - fanOut: {field: tags, as: map, kind: tags, key: "regions/eu/orders/{order}/tags/{id}", value: tag}
  - gather: {kind: payments, field: payment, as: object, key: "{_key}/payment", operations: [{rename: {from: sum, to: total}}]}
`)
	id := rapid.SampledFrom([]string{"1", "2", "ü"})
	lenstest.Laws(t, l, false, true, func(t *rapid.T) []record.Record {
		key := "orders/" + id.Draw(t, "id")
		d := bson.D{{Key: "_id", Value: key}}
		if rapid.Bool().Draw(t, "lines") {
			lines := bson.A{}
			for range rapid.IntRange(0, 3).Draw(t, "count") {
				lines = append(lines, lenstest.Line(t, 1))
			}
			d = append(d, bson.E{Key: "lines", Value: lines})
		}
		d = lenstest.Maybe(t, lenstest.Maybe(t, d, "tags", nil, bson.D{}, bson.D{{Key: "b", Value: 1}}, bson.D{{Key: "b", Value: "x"}, {Key: "a", Value: nil}}), "note", "n")
		out := []record.Record{lenstest.Record(t, "old", d)}
		if rapid.Bool().Draw(t, "paid") {
			out = append(out, lenstest.Record(t, "payments", lenstest.Maybe(t, bson.D{{Key: "_id", Value: key + "/payment"}}, "sum", 5, nil)))
		}
		return out
	}, func(t *rapid.T) []record.Record {
		key := "regions/eu/orders/" + id.Draw(t, "id")
		d := lenstest.Maybe(t, lenstest.Maybe(t, bson.D{{Key: "_id", Value: key}}, "comment", "n"), "payment", bson.D{}, bson.D{{Key: "total", Value: 5}}, nil)
		out := []record.Record{lenstest.Record(t, "new", d)}
		for i := range rapid.IntRange(0, 3).Draw(t, "lines") {
			out = append(out, lenstest.Record(t, "lines", append(lenstest.Maybe(t, bson.D{{Key: "_id", Value: fmt.Sprintf("%s/lines/%d", key, i)}}, "weight", 0, 7), lenstest.Line(t, 2)...)))
		}
		for _, tag := range []string{"a", "b"} {
			if rapid.Bool().Draw(t, tag) {
				out = append(out, lenstest.Record(t, "tags", bson.D{{Key: "_id", Value: key + "/tags/" + tag}, {Key: "tag", Value: 1}}))
			}
		}
		return out
	})
}

func TestContentLaws(t *testing.T) {
	t.Parallel()
	l := lenstest.Parse(t, lenstest.Orders(linesByContent))
	if s := l.Spec("old", "new"); s.New.Kinds[1].Content == nil || s.New.Kinds[1].GroupOf != nil {
		t.Fatal("a line does not name its order")
	}
	controls := func(order, sku string, at int) bson.D {
		return bson.D{{Key: "_id", Value: sku}, {Key: "order", Value: order}, {Key: "position", Value: at}}
	}
	lenstest.Laws(t, l, false, true, func(t *rapid.T) []record.Record { return oldOrder(t, false) },
		func(t *rapid.T) []record.Record { return newOrder(t, controls) })
}
