package lawtest_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
)

// These tests are not in package transform. It has tests inside the package, so go test compiles it
// once more for them, and with it all that imports it here: the sample, resources, lenses.

// chain registers steps v1 to v2, v2 to v3 and so on.
func chain(t testing.TB, steps ...[]transform.Spec) *transform.Registry {
	t.Helper()
	r := transform.NewRegistry("test")
	for i, specs := range steps {
		if err := r.Add(fmt.Sprint("v", i+1), fmt.Sprint("v", i+2), specs...); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func direct(t testing.TB, r *transform.Registry, from, to string) transform.Direction {
	t.Helper()
	d, err := r.Direction(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func named(t interface{ Fatal(...any) }, kind, name string, fields ...bson.E) record.Record {
	doc, err := bson.Marshal(append(bson.D{{Key: "_id", Value: name}}, fields...))
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: record.StringKey(name), Doc: doc}
}

// put transforms the whole group of the first record over have.
func put(t testing.TB, d transform.Direction, src, have []record.Record) ([]record.Record, error) {
	t.Helper()
	id, ok, err := d.GroupOf(src[0].Kind, src[0].Key)
	if !ok || err != nil {
		t.Fatalf("group of %s %s: %t, %v", src[0].Kind, src[0].Key, ok, err)
	}
	return d.Transform(id, transform.Group{Name: id.Name, Records: src}, transform.Group{Name: id.Name, Records: have})
}

func mustPut(t testing.TB, d transform.Direction, src, have []record.Record) []record.Record {
	t.Helper()
	out, err := put(t, d, src, have)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func list(rs []record.Record) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Kind+" "+r.Key.String())
	}
	return strings.Join(out, ", ")
}

// renamed copies a record, with another kind, name and name of one field.
func renamed(t interface{ Fatal(...any) }, r record.Record, kind, name, from, to string) record.Record {
	var d bson.D
	if err := bson.Unmarshal(r.Doc, &d); err != nil {
		t.Fatal(err)
	}
	for i := range d {
		switch d[i].Key {
		case "_id":
			d[i].Value = name
		case from:
			d[i].Key = to
		}
	}
	doc, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: record.StringKey(name), Doc: doc}
}

// failure makes a panic of an error, where a transformer cannot go on.
type failure struct{}

func (failure) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// rekeyed is a transformer of single records whose key gets a prefix, and a field another
// name.
func rekeyed(name, from, to, prefix, oldField, newField string) transform.Spec {
	side := transform.Side{
		Anchor: func(g string) (string, record.Key) {
			n, _ := record.Key(g).Name()
			return to, record.StringKey(prefix + n)
		},
		Kinds: []transform.GroupedKind{{
			KindSpec: record.KindSpec{Name: to}, Single: true,
			GroupOf: func(k record.Key) (string, error) {
				n, _ := k.Name()
				rest, ok := strings.CutPrefix(n, prefix)
				if !ok {
					return "", errors.New("no " + prefix)
				}
				return string(record.StringKey(rest)), nil
			},
			Select: func(g string) record.Selector {
				n, _ := record.Key(g).Name()
				return record.Selector{Key: record.StringKey(prefix + n)}
			},
		}},
	}
	return transform.Spec{
		Name: name, Revision: "1", New: side, Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: from}}}},
		Up: func(src, _ transform.Group) (out []record.Record, _ error) {
			for _, r := range src.Records {
				n, _ := r.Key.Name()
				out = append(out, renamed(failure{}, r, to, prefix+n, oldField, newField))
			}
			return out, nil
		},
		Down: func(src, _ transform.Group) (out []record.Record, _ error) {
			for _, r := range src.Records {
				n, _ := r.Key.Name()
				out = append(out, renamed(failure{}, r, from, strings.TrimPrefix(n, prefix), newField, oldField))
			}
			return out, nil
		},
	}
}

// inverse is a transformer with its sides exchanged.
func inverse(s transform.Spec) transform.Spec {
	s.Old, s.New, s.Up, s.Down = s.New, s.Old, s.Down, s.Up
	s.UpNeedsHave, s.DownNeedsHave = s.DownNeedsHave, s.UpNeedsHave
	return s
}

// processes are those of the BBS without the instances of them.
func processes() transform.Spec {
	s := bbs.Specs()[0]
	s.Old.Kinds, s.New.Kinds = s.Old.Kinds[:1], s.New.Kinds[:2]
	return s
}

// rollouts is an invented step from the second version of the BBS to a third one: the
// kinds, the keys and a field of the deployments get other names.
func rollouts() transform.Spec {
	old := processes().New
	second := func(kind, from, to string, r record.Record) record.Record {
		n, _ := r.Key.Name()
		return renamed(failure{}, r, kind, strings.Replace(n, from, to, 1), "annotation", "note")
	}
	return transform.Spec{
		Name: "rollouts", Revision: "1", Old: old,
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: "rollouts"}},
			{
				KindSpec: record.KindSpec{Name: "templates"},
				GroupOf: func(k record.Key) (string, error) {
					n, _ := k.Name()
					guid, _, ok := strings.Cut(n, ":")
					if !ok {
						return "", errors.New("no colon")
					}
					return string(record.StringKey(guid)), nil
				},
				Select: func(g string) record.Selector {
					n, _ := record.Key(g).Name()
					return record.Selector{Key: record.StringKey(n + ":"), Prefix: true}
				},
			},
		}},
		Up: func(src, _ transform.Group) (out []record.Record, _ error) {
			for _, r := range src.Records {
				kind := "rollouts"
				if r.Kind == bbs.KindDefinitions {
					kind = "templates"
				}
				out = append(out, second(kind, "/", ":", r))
			}
			return out, nil
		},
		Down: func(src, _ transform.Group) (out []record.Record, _ error) {
			for _, r := range src.Records {
				kind := bbs.KindDeployments
				if r.Kind == "templates" {
					kind = bbs.KindDefinitions
				}
				n, _ := r.Key.Name()
				r = renamed(failure{}, r, kind, strings.Replace(n, ":", "/", 1), "note", "annotation")
				out = append(out, r)
			}
			return out, nil
		},
	}
}

var guids = []string{"g", "h"}

func lrps() *rapid.Generator[[]record.Record] {
	return rapid.Custom(func(t *rapid.T) []record.Record {
		return []record.Record{named(t, bbs.KindDesiredLRPs, rapid.SampledFrom(guids).Draw(t, "guid"),
			bson.E{Key: "annotation", Value: rapid.StringN(0, 3, -1).Draw(t, "annotation")},
			bson.E{Key: "modification_tag", Value: bson.D{{Key: "epoch", Value: rapid.SampledFrom([]string{"e", "f"}).Draw(t, "epoch")}}},
			bson.E{Key: "definition", Value: bson.D{{Key: "rootfs", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rootfs")}}},
			bson.E{Key: "unknown", Value: bson.A{nil, 1}})}
	})
}

func rolloutGroups() *rapid.Generator[[]record.Record] {
	return rapid.Custom(func(t *rapid.T) []record.Record {
		guid := rapid.SampledFrom(guids).Draw(t, "guid")
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"one", "two", guid}), 1, 3, rapid.ID).Draw(t, "ids")
		out := []record.Record{named(t, "rollouts", guid,
			bson.E{Key: "note", Value: rapid.StringN(0, 3, -1).Draw(t, "note")},
			bson.E{Key: "modification_tag", Value: bson.D{{Key: "epoch", Value: rapid.SampledFrom([]string{"e", "f"}).Draw(t, "epoch")}}},
			bson.E{Key: "active_definition_id", Value: ids[0]}, bson.E{Key: "healthy_definition_id", Value: rapid.SampledFrom(ids).Draw(t, "healthy")})}
		for _, id := range ids {
			out = append(out, named(t, "templates", guid+":"+id, bson.E{Key: "process_guid", Value: guid}, bson.E{Key: "definition_id", Value: id},
				bson.E{Key: "definition", Value: bson.D{{Key: "rootfs", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rootfs")}}}))
		}
		return out
	})
}

// The groups are tied by name: both steps call them by the process.
func TestChainOfTheBBS(t *testing.T) {
	t.Parallel()
	r := chain(t, []transform.Spec{processes()}, []transform.Spec{rollouts()})
	up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: lrps(), New: rolloutGroups(), LossyDown: true})

	id, _, err := up.GroupOf(bbs.KindDesiredLRPs, record.StringKey("g"))
	if err != nil || !up.Whole(bbs.KindDesiredLRPs) || down.Whole("rollouts") || !up.NeedsHave(id) || !down.NeedsHave(id) {
		t.Errorf("group %v %v: Whole and NeedsHave do not follow from the steps", id, err)
	}
	want := []record.Selector{{Kind: "rollouts", Key: record.StringKey("g")}, {Kind: "templates", Key: record.StringKey("g:"), Prefix: true}}
	if got := up.TargetSelect(id); !slices.Equal(got, want) {
		t.Errorf("target selectors %v, want %v", got, want)
	}
	if got := down.SourceSelect(id); !slices.Equal(got, want) {
		t.Errorf("source selectors %v, want %v", got, want)
	}
	if kind, key := up.Anchor(id); kind != "rollouts" || key != record.StringKey("g") {
		t.Errorf("anchor %s %s", kind, key)
	}
	if got, _, err := up.GroupOfTarget("templates", record.StringKey("g:two")); got != id || err != nil {
		t.Errorf("group of a template: %v %v", got, err)
	}
	if got := up.SourceKinds(); len(got) != 1 || len(up.TargetKinds()) != 2 {
		t.Errorf("kinds %v to %v", got, up.TargetKinds())
	}
}

// Records that are single all the way, their keys changed by any of the steps.
func TestChainOfChangedKeys(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		steps [][]transform.Spec
		old   string // a name of the old version, and what becomes of it
		new   string
	}{
		{"first", [][]transform.Spec{{rekeyed("p", "a", "b", "x/", "f", "g")}, {rekeyed("q", "b", "c", "", "g", "h")}}, "n", "x/n"},
		{"second", [][]transform.Spec{{rekeyed("p", "a", "b", "", "f", "g")}, {rekeyed("q", "b", "c", "y/", "g", "h")}}, "n", "y/n"},
		{"both", [][]transform.Spec{{rekeyed("p", "a", "b", "x/", "f", "g")}, {rekeyed("q", "b", "c", "y/", "g", "h")}}, "n", "y/x/n"},
		{"there and back", [][]transform.Spec{{inverse(rekeyed("p", "b", "a", "x/", "g", "f"))}, {rekeyed("q", "b", "c", "y/", "g", "h")}}, "x/n", "y/n"},
		{"three", [][]transform.Spec{{rekeyed("p", "a", "b", "x/", "f", "g")}, {rekeyed("q", "b", "c", "y/", "g", "h")}, {rekeyed("r", "c", "d", "z/", "h", "i")}}, "n", "z/y/x/n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := chain(t, tc.steps...)
			last := fmt.Sprint("v", len(tc.steps)+1)
			up, down := direct(t, r, "v1", last), direct(t, r, last, "v1")
			kind, field := up.TargetKinds()[0].Name, string(rune('f'+len(tc.steps)))
			x := []record.Record{named(t, "a", tc.old, bson.E{Key: "f", Value: 1})}
			y := mustPut(t, up, x, nil)
			if list(y) != kind+" "+tc.new || y[0].Doc.Lookup(field).AsInt64() != 1 {
				t.Fatalf("became %s %s", list(y), y[0].Doc)
			}
			if back := mustPut(t, down, y, nil); list(back) != "a "+tc.old || !bytes.Equal(back[0].Doc, x[0].Doc) {
				t.Errorf("came back as %s %s", list(back), back[0].Doc)
			}
			id, _, _ := up.GroupOf("a", x[0].Key)
			back, _, err := up.GroupOfTarget(kind, y[0].Key)
			if id != back || err != nil || !up.Whole("a") || !down.Whole(kind) || up.NeedsHave(id) {
				t.Errorf("groups %v and %v (%v), Whole %t and %t, NeedsHave %t", id, back, err, up.Whole("a"), down.Whole(kind), up.NeedsHave(id))
			}
			if got := up.TargetSelect(id); !slices.Equal(got, []record.Selector{{Kind: kind, Key: y[0].Key}}) {
				t.Errorf("target is found by %v", got)
			}
			if got := up.SourceSelect(id); !slices.Equal(got, []record.Selector{{Kind: "a", Key: x[0].Key}}) {
				t.Errorf("source is found by %v", got)
			}
			if k, key := up.Anchor(id); k != kind || key != y[0].Key {
				t.Errorf("anchor %s %s", k, key)
			}
			if k, key := down.Anchor(id); k != "a" || key != x[0].Key {
				t.Errorf("anchor in the reverse direction %s %s", k, key)
			}
		})
	}
}

// The second step has the bigger group: its name is the chain's, and the old version's
// records are found by the keys that the first step makes.
func TestChainIntoABiggerGroup(t *testing.T) {
	t.Parallel()
	merge := inverse(rollouts()) // rollouts and templates become deployments and definitions
	for _, tc := range []struct {
		name  string
		first []transform.Spec
		heads string
	}{
		{"keys unchanged", []transform.Spec{rekeyed("heads", "h", "rollouts", "", "note1", "note"), plain("parts", "p", "templates")}, "g"},
		{"one key changed", []transform.Spec{inverse(rekeyed("heads", "rollouts", "h", "x/", "note", "note1")), plain("parts", "p", "templates")}, "x/g"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := chain(t, tc.first, []transform.Spec{merge})
			up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
			src := []record.Record{named(t, "h", tc.heads, bson.E{Key: "note1", Value: "n"}), named(t, "p", "g:1"), named(t, "p", "g:2")}
			head, _, err1 := up.GroupOf("h", src[0].Key)
			part, _, err2 := up.GroupOf("p", src[1].Key)
			if head != part || err1 != nil || err2 != nil || up.Whole("h") || up.Whole("p") {
				t.Fatalf("groups %v %v, %v %v", head, part, err1, err2)
			}
			if got, want := up.SourceSelect(head), []record.Selector{{Kind: "h", Key: src[0].Key}, {Kind: "p", Key: record.StringKey("g:"), Prefix: true}}; !slices.Equal(got, want) {
				t.Errorf("source is found by %v, want %v", got, want)
			}
			out := mustPut(t, up, src, nil)
			if got := list(out); got != "definitions g/1, definitions g/2, lrp_deployments g" || out[2].Doc.Lookup("annotation").StringValue() != "n" {
				t.Errorf("became %s", got)
			}
			back := mustPut(t, down, out, nil)
			if got, want := list(back), "h "+tc.heads+", p g:1, p g:2"; got != want {
				t.Errorf("came back as %s, want %s", got, want)
			}
			if kind, key := down.Anchor(head); kind != "h" || key != src[0].Key {
				t.Errorf("anchor in the reverse direction is %s %s", kind, key)
			}
		})
	}
}

// plain is a transformer that keeps single records as they are.
func plain(name, from, to string) transform.Spec {
	s := rekeyed(name, from, to, "", "-", "-")
	s.New = transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: to}}}}
	return s
}

func TestStepsThatCannotBeJoined(t *testing.T) {
	t.Parallel()
	rekeyedParts := inverse(rekeyed("parts", "templates", "p", "x/", "-", "-"))
	for _, tc := range []struct {
		name, want    string
		first, second []transform.Spec
	}{
		{"made and not taken", "makes c of v2, which no transformer", []transform.Spec{plain("p", "a", "b"), plain("q", "x", "c")}, []transform.Spec{plain("p", "b", "d")}},
		{"found by a beginning that changes", "by the beginning of their keys in templates",
			[]transform.Spec{rekeyed("heads", "h", "rollouts", "", "-", "-"), rekeyedParts}, []transform.Spec{inverse(rollouts())}},
		{"crosswise", "share kinds of v2 with both",
			[]transform.Spec{rollouts1("p", "a", "m", "n"), rollouts1("q", "b", "k", "l")},
			[]transform.Spec{inverse(rollouts1("r", "c", "m", "k")), inverse(rollouts1("s", "d", "n", "l"))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := chain(t, tc.first, tc.second)
			for _, way := range [][2]string{{"v1", "v3"}, {"v3", "v1"}} {
				_, err := r.Direction(way[0], way[1])
				if !errors.Is(err, transform.ErrNoChain) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "upgrade from v1 to v2 first") {
					t.Errorf("%v: error is %v, want %q", way, err, tc.want)
				}
			}
			if _, err := r.Direction("v1", "v2"); err != nil {
				t.Errorf("the step alone: %v", err)
			}
		})
	}
}

// rollouts1 is a transformer of one kind into two of which each has one record in a group.
func rollouts1(name, from, a, b string) transform.Spec {
	s := plain(name, from, a)
	s.New.Kinds = append(s.New.Kinds, transform.GroupedKind{KindSpec: record.KindSpec{Name: b}})
	up := s.Up
	s.Up = func(src, have transform.Group) ([]record.Record, error) {
		out, err := up(src, have)
		for _, r := range out {
			r.Kind = b
			out = append(out, r)
		}
		return out, err
	}
	s.Down = func(src, _ transform.Group) ([]record.Record, error) {
		r := src.Records[0]
		r.Kind = from
		return []record.Record{r}, nil
	}
	return s
}

// Groups that only seem to have the same names are found record by record.
func TestChainParksGroupsOfOtherNames(t *testing.T) {
	t.Parallel()
	odd := rollouts()
	own := odd.Old.Kinds[1].GroupOf
	odd.Old.Kinds = slices.Clone(odd.Old.Kinds)
	odd.Old.Kinds[1].GroupOf = func(k record.Key) (string, error) {
		if name, _ := k.Name(); strings.HasSuffix(name, "/odd") {
			return string(record.StringKey("elsewhere")), nil
		}
		return own(k)
	}
	r := chain(t, []transform.Spec{processes()}, []transform.Spec{odd})
	up := direct(t, r, "v1", "v3")
	fine := lrps().Example(1)
	if _, err := put(t, up, fine, nil); err != nil {
		t.Fatalf("a group with the same name in both: %v", err)
	}
	x := []record.Record{named(t, bbs.KindDesiredLRPs, "odd", bson.E{Key: "definition", Value: bson.D{}})}
	out, err := put(t, up, x, nil)
	if err == nil || !strings.Contains(err.Error(), "definitions odd/odd of v2 is in group odd of transformer lrp and in group elsewhere of rollouts") {
		t.Errorf("%s, error %v", list(out), err)
	}
}

func TestHashOfAChainCoversItsSteps(t *testing.T) {
	t.Parallel()
	hash := func(change func(first, second *transform.Spec), from, to string) string {
		a, b := plain("p", "a", "b"), plain("p", "b", "c")
		change(&a, &b)
		return direct(t, chain(t, []transform.Spec{a}, []transform.Spec{b}), from, to).Hash()
	}
	none := func(_, _ *transform.Spec) {}
	base := hash(none, "v1", "v3")
	if base != hash(none, "v1", "v3") {
		t.Error("the hash is not stable")
	}
	for name, h := range map[string]string{
		"the first step":  hash(func(a, _ *transform.Spec) { a.Revision = "2" }, "v1", "v3"),
		"the second step": hash(func(_, b *transform.Spec) { b.Revision = "2" }, "v1", "v3"),
		"the reverse":     hash(none, "v3", "v1"),
		"a step alone":    hash(none, "v1", "v2"),
	} {
		if h == base {
			t.Errorf("%s has the same hash as the chain", name)
		}
	}
}
