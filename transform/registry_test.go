package transform

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

func doc(t testing.TB, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// same copies records from one kind to another.
func same(kind string) Func {
	return func(src, _ Group) ([]record.Record, error) {
		out := make([]record.Record, 0, len(src.Records))
		for _, r := range src.Records {
			out = append(out, record.Record{Kind: kind, Key: r.Key, Doc: r.Doc})
		}
		return out, nil
	}
}

func single(kind string) Side {
	return Side{Kinds: []GroupedKind{{KindSpec: record.KindSpec{Name: kind}}}}
}

func spec(name, from, to string) Spec {
	return Spec{Name: name, Revision: "1", Old: single(from), New: single(to), Up: same(to), Down: same(from)}
}

// split has two kinds on its new side, of which parts have keys "<group>/<n>".
func split() Spec {
	s := spec("split", "wholes", "heads")
	s.New.Kinds = append(s.New.Kinds, GroupedKind{
		KindSpec: record.KindSpec{Name: "parts"},
		GroupOf: func(k record.Key) (string, error) {
			name, _ := k.Name()
			head, _, ok := strings.Cut(name, "/")
			if !ok {
				return "", errors.New("no slash")
			}
			return string(record.StringKey(head)), nil
		},
		Select: func(group string) record.Selector {
			name, _ := record.Key(group).Name()
			return record.Selector{Key: record.StringKey(name + "/"), Prefix: true}
		},
	})
	return s
}

func mustDirection(t testing.TB, from, to string, specs ...Spec) Direction {
	t.Helper()
	r := NewRegistry("svc")
	if err := r.Add("v1", "v2", specs...); err != nil {
		t.Fatal(err)
	}
	d, err := r.Direction(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()
	noUp, noDown, noName, noKind := spec("a", "x", "y"), spec("a", "x", "y"), spec("", "x", "y"), spec("a", "x", "y")
	noUp.Up, noDown.Down, noKind.New = nil, nil, Side{}
	halfGroup := split()
	halfGroup.New.Kinds[1].Select = nil
	noAnchor := split()
	noAnchor.New.Kinds[0], noAnchor.New.Kinds[1] = noAnchor.New.Kinds[1], noAnchor.New.Kinds[0]
	fixed := spec("b", "p", "q")
	fixed.Old.Kinds[0].Fixed = true
	for _, tc := range []struct {
		name, want string
		add        func(*Registry) error
	}{
		{"same version", "same", func(r *Registry) error { return r.Add("v1", "v1", spec("a", "x", "y")) }},
		{"empty version", "empty", func(r *Registry) error { return r.Add("", "v1", spec("a", "x", "y")) }},
		{"nothing", "no specs", func(r *Registry) error { return r.Add("v1", "v2") }},
		{"no Up", "Up is nil", func(r *Registry) error { return r.Add("v1", "v2", noUp) }},
		{"no Down", "Down is nil", func(r *Registry) error { return r.Add("v1", "v2", noDown) }},
		{"no name", "no name", func(r *Registry) error { return r.Add("v1", "v2", noName) }},
		{"no kinds", "no kinds", func(r *Registry) error { return r.Add("v1", "v2", noKind) }},
		{"GroupOf alone", "both GroupOf and Select", func(r *Registry) error { return r.Add("v1", "v2", halfGroup) }},
		{"no anchor", "needs an Anchor", func(r *Registry) error { return r.Add("v1", "v2", noAnchor) }},
		{"name twice", "is there twice", func(r *Registry) error {
			return errors.Join(r.Add("v1", "v2", spec("a", "x", "y")), r.Add("v1", "v2", spec("a", "p", "q")))
		}},
		{"kind twice", "kind y of v2", func(r *Registry) error { return r.Add("v1", "v2", spec("a", "x", "y"), spec("b", "p", "y")) }},
		{"other way round", "other way round", func(r *Registry) error {
			return errors.Join(r.Add("v1", "v2", spec("a", "x", "y")), r.Add("v2", "v1", spec("b", "p", "q")))
		}},
		{"ring", "other way round", func(r *Registry) error {
			return errors.Join(r.Add("v1", "v2", spec("a", "x", "y")), r.Add("v2", "v3", spec("b", "y", "z")), r.Add("v3", "v1", spec("c", "z", "x")))
		}},
		{"discontinued with New", "have no New", func(r *Registry) error {
			return r.Add("v1", "v2", Spec{Name: "d", Discontinued: true, Old: single("x"), New: single("y")})
		}},
		{"discontinued with Down", "neither Up nor Down", func(r *Registry) error {
			return r.Add("v1", "v2", Spec{Name: "d", Discontinued: true, Old: single("x"), Down: same("x")})
		}},
		{"discontinued without kinds", "Old has no kinds", func(r *Registry) error { return r.Add("v1", "v2", Spec{Name: "d", Discontinued: true}) }},
		{"discontinued and not", "kind x of v1", func(r *Registry) error {
			return r.Add("v1", "v2", spec("a", "x", "y"), Spec{Name: "d", Discontinued: true, Old: single("x")})
		}},
		{"introduced with Old", "introduced kinds have no Old", func(r *Registry) error {
			return r.Add("v1", "v2", Spec{Name: "d", Introduced: true, Old: single("x"), New: single("y")})
		}},
		{"introduced with Up", "neither Up nor Down", func(r *Registry) error {
			return r.Add("v1", "v2", Spec{Name: "d", Introduced: true, New: single("x"), Up: same("x")})
		}},
		{"introduced without kinds", "New has no kinds", func(r *Registry) error { return r.Add("v1", "v2", Spec{Name: "d", Introduced: true}) }},
		{"introduced and not", "kind y of v2", func(r *Registry) error {
			return r.Add("v1", "v2", spec("a", "x", "y"), Spec{Name: "d", Introduced: true, New: single("y")})
		}},
		{"introduced and discontinued", "both", func(r *Registry) error {
			return r.Add("v1", "v2", Spec{Name: "d", Introduced: true, Discontinued: true, New: single("y")})
		}},
		{"branch", "one line", func(r *Registry) error {
			return errors.Join(r.Add("v1", "v2", spec("a", "x", "y")), r.Add("v1", "v3", spec("b", "p", "q")))
		}},
		{"fixed and managed", "fixed-name and as managed", func(r *Registry) error {
			return errors.Join(r.Add("v1", "v2", spec("a", "x", "p")), r.Add("v2", "v3", fixed))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.add(NewRegistry("svc"))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestFailedAddChangesNothing(t *testing.T) {
	t.Parallel()
	r := NewRegistry("svc")
	if err := r.Add("v1", "v2", spec("a", "x", "y")); err != nil {
		t.Fatal(err)
	}
	before, err := r.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add("v1", "v2", spec("b", "p", "q"), spec("c", "p", "r")); err == nil {
		t.Fatal("a kind in two specs was accepted")
	}
	after, err := r.Direction("v1", "v2")
	if err != nil || before.Hash() != after.Hash() {
		t.Errorf("hash %s became %s (%v)", before.Hash(), after.Hash(), err)
	}
}

func TestDirectionNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	r := NewRegistry("svc")
	if err := errors.Join(r.Add("v1", "v2", spec("a", "x", "y")), r.Add("v2", "v3", spec("b", "y", "z"))); err != nil {
		t.Fatal(err)
	}
	_, err := r.Direction("v1", "v4")
	if !errors.Is(err, ErrNoDirection) || !strings.Contains(err.Error(), "v1 and v2, v2 and v3") {
		t.Errorf("error is %v", err)
	}
	if got := fmt.Sprint(r.Versions()); got != "[v1 v2 v3]" {
		t.Errorf("versions %s", got)
	}
	if got := r.Kinds("v2"); len(got) != 1 || got[0].Name != "y" {
		t.Errorf("kinds of v2: %v", got)
	}
}

func TestHashFollowsEveryDeclaredPart(t *testing.T) {
	t.Parallel()
	hash := func(service string, s Spec) string {
		r := NewRegistry(service)
		if err := r.Add("v1", "v2", s); err != nil {
			t.Fatal(err)
		}
		d, err := r.Direction("v1", "v2")
		if err != nil {
			t.Fatal(err)
		}
		return d.Hash()
	}
	revision, name, kind, have, fixed, shape := spec("a", "x", "y"), spec("b", "x", "y"), spec("a", "x", "z"), spec("a", "x", "y"), spec("a", "x", "y"), spec("a", "x", "y")
	revision.Revision = "2"
	have.UpNeedsHave = true
	fixed.New.Kinds[0].Fixed = true
	one := split()
	one.New.Kinds[1].Single = true
	less := Spec{Name: "a", Revision: "1", Discontinued: true, Old: single("x")}
	shape.New.Kinds[0].Shape.Indexes = []bson.Raw{doc(t, bson.D{{Key: "name", Value: "i"}})}
	seen := map[string]string{}
	for label, h := range map[string]string{
		"base": hash("svc", spec("a", "x", "y")), "service": hash("svc2", spec("a", "x", "y")), "revision": hash("svc", revision),
		"name": hash("svc", name), "kind": hash("svc", kind), "have": hash("svc", have), "fixed": hash("svc", fixed), "shape": hash("svc", shape),
		"discontinued": hash("svc", less), "several in a group": hash("svc", split()), "single": hash("svc", one),
	} {
		if other, dup := seen[h]; dup {
			t.Errorf("%s and %s have the same hash", label, other)
		}
		seen[h] = label
	}
	if hash("svc", spec("a", "x", "y")) != hash("svc", spec("a", "x", "y")) { //nolint:staticcheck // SA4000: that both calls have the same answer is what is tested
		t.Error("the hash is not stable")
	}
}

func TestGroupsAndSelectors(t *testing.T) {
	t.Parallel()
	d := mustDirection(t, "v1", "v2", spec("plain", "a", "b"), split())
	key := record.StringKey("g")
	id, ok, err := d.GroupOf("wholes", key)
	if err != nil || !ok || id != (GroupID{1, string(key)}) {
		t.Fatalf("group %v, %t, %v", id, ok, err)
	}
	if _, ok, err := d.GroupOf("parts", key); ok || err != nil {
		t.Errorf("a target kind is part of the source: %t %v", ok, err)
	}
	if got, _, err := d.GroupOfTarget("parts", record.StringKey("g/7")); err != nil || got != id {
		t.Errorf("group of part: %v %v", got, err)
	}
	if _, ok, err := d.GroupOfTarget("parts", key); !ok || err == nil {
		t.Errorf("a key without group: ok %t, error %v", ok, err)
	}
	if !d.Whole("wholes") || !d.Whole("a") || d.Whole("parts") || d.Whole("nonesuch") {
		t.Error("Whole is wrong")
	}
	if !d.NeedsHave(id) || d.NeedsHave(GroupID{0, "x"}) {
		t.Error("a target with several records needs what it has, a single one does not")
	}
	sel := d.TargetSelect(id)
	if len(sel) != 2 || sel[0] != (record.Selector{Kind: "heads", Key: key}) || sel[1] != (record.Selector{Kind: "parts", Key: record.StringKey("g/"), Prefix: true}) {
		t.Errorf("selectors %v", sel)
	}
	if kind, k := d.Anchor(id); kind != "heads" || k != key {
		t.Errorf("anchor %s %s", kind, k)
	}
	down := mustDirection(t, "v2", "v1", split())
	if down.Whole("heads") || down.Whole("parts") || down.NeedsHave(GroupID{0, string(key)}) {
		t.Error("the way down is compiled wrongly")
	}
}

func TestTransformSortsAndChecks(t *testing.T) {
	t.Parallel()
	key := record.StringKey("g")
	rec := func(kind, name string) record.Record {
		return record.Record{Kind: kind, Key: record.StringKey(name), Doc: doc(t, bson.D{{Key: "_id", Value: name}})}
	}
	noID := rec("heads", "g")
	noID.Doc = doc(t, bson.D{{Key: "x", Value: 1}})
	broken := rec("heads", "g")
	broken.Doc = broken.Doc[:len(broken.Doc)-1]
	otherID := rec("heads", "g")
	otherID.Doc = doc(t, bson.D{{Key: "_id", Value: "h"}})
	for _, tc := range []struct {
		name, want string
		out        []record.Record
	}{
		{"sorted", "", []record.Record{rec("parts", "g/2"), rec("parts", "g/1"), rec("heads", "g")}},
		{"nothing", "", nil},
		{"foreign kind", "not one of the spec's kinds", []record.Record{rec("wholes", "g")}},
		{"other group", "in another group", []record.Record{rec("heads", "h")}},
		{"other group by prefix", "in another group", []record.Record{rec("parts", "h/1")}},
		{"no group", "no slash", []record.Record{rec("parts", "g")}},
		{"twice", "twice", []record.Record{rec("heads", "g"), rec("heads", "g")}},
		{"no _id", "no readable _id", []record.Record{noID}},
		{"broken", "no readable _id", []record.Record{broken}},
		{"other _id", "has _id h", []record.Record{otherID}},
		{"no key", "no key", []record.Record{{Kind: "heads"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := split()
			s.Up = func(_, _ Group) ([]record.Record, error) { return tc.out, nil }
			d := mustDirection(t, "v1", "v2", s)
			out, err := d.Transform(GroupID{0, string(key)}, Group{}, Group{})
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("error is %v, want one with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := 1; i < len(out); i++ {
				if compareRecords(out[i-1], out[i]) >= 0 {
					t.Errorf("%v before %v", out[i-1].Key, out[i].Key)
				}
			}
		})
	}
}

func TestNumericIDsMayChangeType(t *testing.T) {
	t.Parallel()
	key, err := record.KeyOfDoc(doc(t, bson.D{{Key: "_id", Value: int32(5)}}))
	if err != nil {
		t.Fatal(err)
	}
	s := spec("a", "x", "y")
	s.Up = func(_, _ Group) ([]record.Record, error) {
		return []record.Record{{Kind: "y", Key: key, Doc: doc(t, bson.D{{Key: "n", Value: 1}, {Key: "_id", Value: 5.0}})}}, nil
	}
	if _, err := mustDirection(t, "v1", "v2", s).Transform(GroupID{0, string(key)}, Group{}, Group{}); err != nil {
		t.Errorf("an equal number of another type: %v", err)
	}
}

func TestDiscontinuedKindsAreKindsWithoutGroups(t *testing.T) {
	t.Parallel()
	specs := []Spec{spec("a", "x", "y"), {Name: "d", Discontinued: true, Old: single("gone")}}
	up, down := mustDirection(t, "v1", "v2", specs...), mustDirection(t, "v2", "v1", specs...)
	if got := fmt.Sprint(len(up.SourceKinds()), len(up.TargetKinds()), len(down.SourceKinds()), len(down.TargetKinds())); got != "2 1 1 2" {
		t.Errorf("kinds: %s", got)
	}
	for _, key := range []record.Key{"", record.StringKey("k")} {
		if id, ok, err := up.GroupOf("gone", key); ok || err != nil {
			t.Errorf("%s is in group %v, %v", key, id, err)
		}
		if id, ok, err := down.GroupOfTarget("gone", key); ok || err != nil {
			t.Errorf("in the reverse direction %s is in group %v, %v", key, id, err)
		}
	}
	if up.Whole("gone") || SyncsFrom(up, "gone") || SyncsTo(down, "gone") || !SyncsFrom(up, "x") || !SyncsTo(down, "x") {
		t.Error("a discontinued kind is synced, or another is not")
	}
}

// TestIntroducedKinds: a kind that only the new version has takes part in the switch, and nothing
// of it is copied, in neither direction.
func TestIntroducedKinds(t *testing.T) {
	t.Parallel()
	specs := []Spec{spec("a", "x", "y"), {Name: "i", Introduced: true, New: single("fresh")}}
	up, down := mustDirection(t, "v1", "v2", specs...), mustDirection(t, "v2", "v1", specs...)
	if got := fmt.Sprint(len(up.SourceKinds()), len(up.TargetKinds()), len(down.SourceKinds()), len(down.TargetKinds())); got != "1 2 2 1" {
		t.Errorf("kinds: %s", got)
	}
	for _, key := range []record.Key{"", record.StringKey("k")} {
		if id, ok, err := down.GroupOf("fresh", key); ok || err != nil {
			t.Errorf("%s is in group %v, %v", key, id, err)
		}
	}
	if SyncsTo(up, "fresh") || SearchedTo(up, "fresh") || SyncsFrom(down, "fresh") || !SyncsTo(up, "y") || !SyncsFrom(down, "y") {
		t.Error("an introduced kind is synced, or another is not")
	}
	if up.Hash() == mustDirection(t, "v1", "v2", specs[0]).Hash() {
		t.Error("the hash does not cover introduced kinds")
	}
}

func explode() { panic("no such action") }

func TestPanicBecomesError(t *testing.T) {
	t.Parallel()
	s := spec("a", "x", "y")
	s.Up = func(_, _ Group) ([]record.Record, error) { explode(); return nil, nil }
	out, err := mustDirection(t, "v1", "v2", s).Transform(GroupID{0, "g"}, Group{}, Group{})
	if out != nil || err == nil {
		t.Fatalf("%v, %v", out, err)
	}
	text := err.Error()
	if !strings.Contains(text, "no such action") || !strings.Contains(text, "transform.explode") || strings.Contains(text, "debug.Stack") {
		t.Errorf("error is %s", text)
	}
	if n := strings.Count(text, "\n"); n > stackLines+2 {
		t.Errorf("the stack has %d lines", n)
	}
}

func BenchmarkTransformWhole(b *testing.B) {
	d := mustDirection(b, "v1", "v2", spec("a", "x", "y"))
	key := record.StringKey("g")
	src := Group{Name: string(key), Records: []record.Record{{Kind: "x", Key: key, Doc: doc(b, bson.D{{Key: "_id", Value: "g"}, {Key: "n", Value: 1}})}}}
	id := GroupID{0, string(key)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Transform(id, src, Group{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestIsolatedEndsNobodyElse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		f    func() (int, error)
		want string
	}{
		"value":  {func() (int, error) { return 5, nil }, "<nil>"},
		"error":  {func() (int, error) { return 0, errors.New("no") }, "no"},
		"panic":  {func() (int, error) { explode(); return 0, nil }, "transform.explode"},
		"goexit": {func() (int, error) { runtime.Goexit(); return 0, nil }, "runtime.Goexit was called"},
	} {
		n, err := Isolated(tc.f)
		if !strings.Contains(fmt.Sprint(err), tc.want) || (n == 5) != (name == "value") {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}
