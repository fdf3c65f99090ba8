package adapt_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
)

func mutation(t *testing.T, kind string, d bson.D) record.Mutation {
	t.Helper()
	doc := raw(t, d)
	key, err := record.KeyOfDoc(doc)
	if err != nil {
		t.Fatal(err)
	}
	return record.Mutation{Kind: kind, Key: key, Doc: doc}
}

// TestWriteKeepsWhatIsNotShown: what the version shown does not know of survives its
// writes, and goes with its delete.
func TestWriteKeepsWhatIsNotShown(t *testing.T) {
	t.Parallel()
	f := wholesOverV2(t)
	put(t, f.adapter, "wholes", whole("p", 0, "old"))
	// v2 adds a definition and a field of its own.
	put(t, f.stored, "parts", bson.D{{Key: "_id", Value: "p/next"}, {Key: "body", Value: bson.D{{Key: "text", Value: "next"}}}})
	put(t, f.adapter, "wholes", whole("p", 1, "new"))
	rec, err := f.adapter.Get(t.Context(), "wholes", "p")
	if err != nil || rec.Doc.Lookup("body", "text").StringValue() != "new" || rec.Doc.Lookup("n").Int32() != 1 {
		t.Errorf("shown %s, %v", rec.Doc, err)
	}
	defs, err := f.stored.List(t.Context(), "parts", "", "", 0)
	if err != nil || names(defs) != "p/main p/next" || defs[0].Doc.Lookup("body", "text").StringValue() != "new" {
		t.Errorf("definitions %v, %v", defs, err)
	}
	if err := f.adapter.Write(t.Context(), []record.Mutation{{Kind: "wholes", Key: record.StringKey("p"), Exists: true}}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"parts", "heads"} {
		if recs, err := f.stored.List(t.Context(), kind, "", "", 0); err != nil || len(recs) != 0 {
			t.Errorf("%s: %s are left, %v", kind, names(recs), err)
		}
	}
}

// TestConditions speak of the record shown.
func TestConditions(t *testing.T) {
	t.Parallel()
	f := wholesOverV2(t)
	p := mutation(t, "wholes", whole("p", 1, "r"))
	with := func(m record.Mutation, change func(*record.Mutation)) record.Mutation { change(&m); return m }
	absent := with(p, func(m *record.Mutation) { m.Absent = true })
	exists := with(p, func(m *record.Mutation) { m.Exists = true })
	match := func(path string, v any) record.Mutation {
		return with(p, func(m *record.Mutation) {
			d := raw(t, bson.D{{Key: "v", Value: v}})
			m.Match = &record.Match{Path: path, Value: d.Lookup("v")}
		})
	}
	other := mutation(t, "wholes", whole("q", 1, "r"))
	remove := with(exists, func(m *record.Mutation) { m.Doc = nil })
	for i, step := range []struct {
		ms   []record.Mutation
		want error
	}{
		{[]record.Mutation{exists}, record.ErrNotFound},
		{[]record.Mutation{remove}, record.ErrNotFound},
		{[]record.Mutation{match("body.text", "r")}, record.ErrNotFound},
		{[]record.Mutation{other, exists}, record.ErrNotFound}, // all or none
		{[]record.Mutation{with(p, func(m *record.Mutation) { m.Doc = nil })}, nil},
		{[]record.Mutation{absent}, nil},
		{[]record.Mutation{absent}, record.ErrExists},
		{[]record.Mutation{match("body.text", "other")}, record.ErrMismatch},
		{[]record.Mutation{match("active", "main")}, record.ErrMismatch}, // v2's, not shown
		{[]record.Mutation{match("body.text", "r")}, nil},
		{[]record.Mutation{with(p, func(m *record.Mutation) { m.Match = record.MatchDoc(p.Doc) })}, nil},
		{[]record.Mutation{remove, absent}, nil}, // one after the other
		{[]record.Mutation{remove, other}, nil},
	} {
		if err := f.adapter.Write(t.Context(), step.ms); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
	}
	if recs, err := f.adapter.List(t.Context(), "wholes", "", "", 0); err != nil || names(recs) != "q" {
		t.Errorf("%s are there, %v", names(recs), err)
	}
}

// TestRace: what was read changes under way, and nothing of it is lost.
func TestRace(t *testing.T) {
	t.Parallel()
	f := wholesOverV2(t)
	put(t, f.adapter, "wholes", whole("p", 0, "r"))
	raced := 0
	f.stored.onWrite(func(ms []record.Mutation) error {
		if raced++; raced > 3 {
			return nil
		}
		rec, err := f.stored.Get(t.Context(), "heads", "p")
		if err != nil {
			return err
		}
		var d bson.D
		if err := bson.Unmarshal(rec.Doc, &d); err != nil {
			return err
		}
		d = append(d, bson.E{Key: fmt.Sprintf("future%d", raced), Value: true})
		return f.stored.client.Write(t.Context(), f.stored.tokens, []record.Mutation{{Kind: "heads", Key: rec.Key, Doc: raw(t, d)}})
	})
	m := mutation(t, "wholes", whole("p", 7, "r2"))
	m.Match = &record.Match{Path: "n", Value: bson.RawValue{Type: bson.TypeInt32, Value: []byte{0, 0, 0, 0}}}
	if err := f.adapter.Write(t.Context(), []record.Mutation{m}); err != nil || raced != 4 {
		t.Fatalf("after %d attempts: %v", raced, err)
	}
	rec, err := f.stored.Get(t.Context(), "heads", "p")
	if err != nil || rec.Doc.Lookup("n").Int32() != 7 {
		t.Errorf("%s, %v", rec.Doc, err)
	}
	t.Run("for ever", func(t *testing.T) {
		raced = -1000
		if err := f.adapter.Write(t.Context(), []record.Mutation{mutation(t, "wholes", whole("p", 8, "r2"))}); !errors.Is(err, record.ErrMismatch) {
			t.Errorf("%v, want it to give up", err)
		}
	})
}

// TestErrorsOfTheStore reach the caller, who knows them.
func TestErrorsOfTheStore(t *testing.T) {
	t.Parallel()
	f := wholesOverV2(t)
	for _, want := range []error{record.ErrFenced, record.ErrUnknown, record.ErrConflict} {
		f.stored.onWrite(func([]record.Mutation) error { return fmt.Errorf("write: %w", want) })
		if err := f.adapter.Write(t.Context(), []record.Mutation{mutation(t, "wholes", whole("p", 0, "r"))}); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if len(f.stored.writes) != 3 {
		t.Errorf("%d writes were tried", len(f.stored.writes))
	}
}

// TestLoss: a write is refused by the name of a field that has no place in the stored version.
func TestLoss(t *testing.T) {
	t.Parallel()
	d := bson.D{{Key: "_id", Value: "a/b"}, {Key: "n", Value: int32(1)}, {Key: "dropped", Value: bson.D{{Key: "x", Value: 1}}}}
	strict := newFace(t, memstore.New(), swapped(t), "v2", "v1", adapt.Config{})
	err := strict.adapter.Write(t.Context(), []record.Mutation{mutation(t, "things", d)})
	var loss *adapt.LossError
	if !errors.As(err, &loss) || loss.Field != "dropped" || loss.Version != "v2" || !strings.Contains(err.Error(), "things a/b: dropped") {
		t.Errorf("%v", err)
	}
	if recs, err := strict.stored.List(t.Context(), "items", "", "", 0); err != nil || len(recs) != 0 {
		t.Errorf("%s were written, %v", names(recs), err)
	}
}

// TestUnchangedIsUntouched: a write that changes nothing shown leaves what is stored, also
// what shows nothing.
func TestUnchangedIsUntouched(t *testing.T) {
	t.Parallel()
	f := newFace(t, memstore.New(), swapped(t), "v2", "v1", adapt.Config{})
	put(t, f.stored, "items", bson.D{{Key: "_id", Value: "b/a"}, {Key: "extra", Value: 5}})
	put(t, f.adapter, "things", bson.D{{Key: "_id", Value: "a/b"}})
	rec, err := f.stored.Get(t.Context(), "items", "b/a")
	if err != nil || rec.Doc.Lookup("extra").Int32() != 5 {
		t.Errorf("%s, %v", rec.Doc, err)
	}
	before := len(f.stored.writes)
	if err := f.adapter.Write(t.Context(), []record.Mutation{{Kind: "things", Key: record.StringKey("x/y")}}); err != nil || len(f.stored.writes) != before {
		t.Errorf("a delete of what is not there wrote %v, %v", f.stored.writes[before:], err)
	}
}

// TestRefused: what cannot be adapted is an error.
func TestRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := wholesOverV2(t)
	var unsupported *record.UnsupportedError
	if _, err := f.adapter.Get(ctx, "none", "a"); !errors.As(err, &unsupported) {
		t.Errorf("get of an unknown kind: %v", err)
	}
	if _, err := f.adapter.List(ctx, "none", "", "", 0); !errors.As(err, &unsupported) {
		t.Errorf("list of an unknown kind: %v", err)
	}
	if _, err := f.adapter.Get(ctx, "wholes", "a"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("get of nothing: %v", err)
	}
	put(t, f.stored, "heads", bson.D{{Key: "_id", Value: "broken"}})
	if _, err := f.adapter.Get(ctx, "wholes", "broken"); !errors.Is(err, adapt.ErrTransform) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a broken group: %v", err)
	}
	if _, err := f.adapter.List(ctx, "wholes", "", "", 0); !errors.Is(err, adapt.ErrTransform) {
		t.Errorf("a list with a broken group: %v", err)
	}
	for label, m := range map[string]record.Mutation{
		"no key": {Kind: "wholes"}, "two conditions": {Kind: "wholes", Key: record.StringKey("a"), Absent: true, Exists: true},
		"delete of the absent": {Kind: "wholes", Key: record.StringKey("a"), Absent: true},
		"another _id":          {Kind: "wholes", Key: record.StringKey("a"), Doc: raw(t, bson.D{{Key: "_id", Value: "b"}})},
		"no number of use":     {Kind: "wholes", Key: record.StringKey("a"), Doc: raw(t, bson.D{{Key: "_id", Value: "a"}})},
	} {
		if err := f.adapter.Write(ctx, []record.Mutation{m}); err == nil {
			t.Errorf("%s: written", label)
		}
	}
	if _, err := adapt.New(f.stored, f.show, f.show, adapt.Config{}); err == nil {
		t.Error("two directions that are no pair")
	}
	if _, err := adapt.New(f.stored, f.show, f.keep, adapt.Config{Names: map[string]transform.Mapping{"k": transform.Identity{}}}); err == nil {
		t.Error("names of nothing")
	}
}

// TestDiscontinued kinds are refused, not shown as empty.
func TestDiscontinued(t *testing.T) {
	t.Parallel()
	reg := split(t)
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "gone", Revision: "1", Discontinued: true, Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "gone"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := newFace(t, memstore.New(), reg, "v2", "v1", adapt.Config{})
	_, getErr := f.adapter.Get(t.Context(), "gone", "a")
	_, listErr := f.adapter.List(t.Context(), "gone", "", "", 0)
	writeErr := f.adapter.Write(t.Context(), []record.Mutation{{Kind: "gone", Key: record.StringKey("a")}})
	for _, err := range []error{getErr, listErr, writeErr} {
		var unsupported *record.UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "gone") {
			t.Errorf("%v", err)
		}
	}
}

// TestByContentIsRefused, in whatever is asked.
func TestByContentIsRefused(t *testing.T) {
	t.Parallel()
	none := func(transform.Group, transform.Group) ([]record.Record, error) { return nil, nil }
	reg := transform.NewRegistry("content")
	content := func(r record.Record) (string, error) { return r.Doc.Lookup("owner").StringValue(), nil }
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "owned", Revision: "1", Up: none, Down: none,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "things"}, Content: content}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "owners"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	show, err := reg.Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := reg.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	a, err := adapt.New(nil, show, keep, adapt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, getErr := a.Get(t.Context(), "things", "a")
	_, listErr := a.List(t.Context(), "things", "", "", 0)
	_, affectedErr := a.Affected("owners", "a")
	writeErr := a.Write(t.Context(), []record.Mutation{{Kind: "things", Key: record.StringKey("a")}})
	for _, err := range []error{getErr, listErr, affectedErr, writeErr} {
		var unsupported *record.UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "by content") {
			t.Errorf("%v", err)
		}
	}
}

func TestAffected(t *testing.T) {
	t.Parallel()
	down := wholesOverV2(t)
	sels, err := down.adapter.Affected("parts", "p/next")
	if err != nil || len(sels) != 1 || sels[0] != (record.Selector{Kind: "wholes", Key: record.StringKey("p")}) {
		t.Errorf("%v, %v", sels, err)
	}
	if sels, err = down.adapter.Affected("parts", "no group"); err != nil || len(sels) != 0 {
		t.Errorf("%v, %v", sels, err)
	}
	up := newFace(t, memstore.New(), split(t), "v1", "v2", adapt.Config{})
	sels, err = up.adapter.Affected("wholes", "p")
	if err != nil || len(sels) != 2 || sels[1] != (record.Selector{Kind: "parts", Key: record.StringKey("p/"), Prefix: true}) {
		t.Errorf("%v, %v", sels, err)
	}
}

// TestFollows: which stored kinds show in a kind, and of which kinds only beginnings of names
// are known.
func TestFollows(t *testing.T) {
	t.Parallel()
	down, up := wholesOverV2(t), newFace(t, memstore.New(), split(t), "v1", "v2", adapt.Config{})
	if got := strings.Join(down.adapter.Follows("wholes"), " "); got != "heads parts" || down.adapter.Several("wholes") {
		t.Errorf("wholes follow %q", got)
	}
	if got := down.adapter.Follows("none"); len(got) > 0 {
		t.Errorf("an unknown kind follows %q", got)
	}
	if got := strings.Join(up.adapter.Follows("parts"), " "); got != "wholes" || !up.adapter.Several("parts") || up.adapter.Several("heads") {
		t.Errorf("parts follow %q", got)
	}
}

// TestErrorsNameWhatIsShown: errors are about the records that the caller named, without kinds and
// keys that only the stored version has; what they are of can be recognised, and the reason can
// be logged.
func TestErrorsNameWhatIsShown(t *testing.T) {
	t.Parallel()
	w := ways["names that sort the same"]
	f := w.make(t, memstore.New())
	name := w.name(1)
	put(t, f.adapter, w.kind, w.doc(name))
	told := func(what string, err, want error, text string) {
		t.Helper()
		if !errors.Is(err, want) || err.Error() != text {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
	_, err := f.adapter.Get(t.Context(), w.kind, w.name(2))
	told("get", err, record.ErrNotFound, "secrets "+w.name(2)+": record not found")
	m := mutation(t, w.kind, w.doc(name))
	m.Absent = true
	told("create", f.adapter.Write(t.Context(), []record.Mutation{mutation(t, w.kind, w.doc(w.name(3))), m}), record.ErrExists, "secrets "+name+": record exists already")
	m.Absent, m.Match = false, &record.Match{Path: "owner", Value: m.Doc.Lookup("_id")}
	told("compare-and-set", f.adapter.Write(t.Context(), []record.Mutation{m}), record.ErrMismatch, "secrets "+name+": record has changed")
	other := w.doc(name)
	other[1].Value = "c/d"
	for _, cause := range []error{record.ErrConflict, record.ErrFenced, record.ErrUnknown} {
		f.stored.onWrite(func(ms []record.Mutation) error { return fmt.Errorf("%s %s: %w", ms[0].Kind, ms[0].Key, cause) })
		err := f.adapter.Write(t.Context(), []record.Mutation{mutation(t, w.kind, other)})
		told("write", err, cause, "secrets "+name+": "+cause.Error())
		if reason := adapt.Reason(err); !strings.Contains(reason, "regions/us-west2") {
			t.Errorf("the reason is %q", reason)
		}
	}
	f.stored.onWrite(nil)
	put(t, f.stored, w.kind, bson.D{{Key: "_id", Value: "projects/1/regions/us-west2/secrets/s1"}, {Key: "expire_time", Value: "no time"}})
	for what, err := range map[string]error{
		"get":   func() error { _, err := f.adapter.Get(t.Context(), w.kind, name); return err }(),
		"write": f.adapter.Write(t.Context(), []record.Mutation{mutation(t, w.kind, other)}),
	} {
		told(what+" of what cannot be shown", err, adapt.ErrTransform, "secrets "+name+": records cannot be transformed")
		if reason := adapt.Reason(err); !strings.Contains(reason, "expire_time") {
			t.Errorf("the reason is %q", reason)
		}
	}
	_, err = f.adapter.List(t.Context(), w.kind, "projects/", "", 0)
	told("list", err, adapt.ErrTransform, "secrets projects/: records cannot be transformed")
}
