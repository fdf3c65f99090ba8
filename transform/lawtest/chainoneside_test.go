package lawtest_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

func discontinued(name string, kinds ...string) transform.Spec {
	s := transform.Spec{Name: name, Discontinued: true}
	for _, k := range kinds {
		s.Old.Kinds = append(s.Old.Kinds, transform.GroupedKind{KindSpec: record.KindSpec{Name: k}})
	}
	return s
}

func TestDiscontinuedKindsInAChain(t *testing.T) {
	t.Parallel()
	r := chain(t,
		[]transform.Spec{plain("p", "a", "a2"), rollouts1("q", "b", "b2", "log2"), discontinued("r", "old1"), plain("s", "c", "c2")},
		[]transform.Spec{plain("p", "a2", "a3"), plain("q", "b2", "b3"), discontinued("t", "log2", "c2", "new2")})
	up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
	kinds := func(ks []record.KindSpec) (names []string) {
		for _, k := range ks {
			names = append(names, k.Name)
		}
		slices.Sort(names)
		return names
	}
	if got := fmt.Sprint(kinds(up.SourceKinds()), kinds(up.TargetKinds()), kinds(down.SourceKinds()), kinds(down.TargetKinds())); got != "[a b c old1] [a3 b3] [a3 b3] [a b c old1]" {
		t.Errorf("kinds %s", got)
	}
	for kind, want := range map[string]bool{"a": true, "b": true, "c": false, "old1": false} {
		if transform.SyncsFrom(up, kind) != want || transform.SyncsTo(down, kind) != want {
			t.Errorf("%s is synced: %t, and back: %t", kind, !want, transform.SyncsTo(down, kind))
		}
	}
	x := []record.Record{named(t, "b", "k", bson.E{Key: "n", Value: 1})}
	y := mustPut(t, up, x, nil)
	if list(y) != "b3 k" {
		t.Errorf("became %s", list(y))
	}
	if back := mustPut(t, down, y, x); list(back) != "b k" {
		t.Errorf("came back as %s", list(back))
	}
}

// A middle kind that the last step discontinues keeps, in the reverse direction, what the old
// version holds of it.
func TestDiscontinuedPartComesBackFromTheComplement(t *testing.T) {
	t.Parallel()
	split := rollouts1("q", "b", "b2", "log2")
	split.Reversal = transform.ReversalNone // a record that comes from v3 gets a note of its own
	split.Down = func(src, _ transform.Group) ([]record.Record, error) {
		r := src.Records[0]
		if len(src.Records) != 2 {
			r = named(failure{}, "b", r.Key.String(), bson.E{Key: "log", Value: "lost"})
		}
		r.Kind = "b"
		return []record.Record{r}, nil
	}
	r := chain(t, []transform.Spec{split}, []transform.Spec{plain("q", "b2", "b3"), discontinued("t", "log2")})
	up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
	x := []record.Record{named(t, "b", "k", bson.E{Key: "n", Value: 1})}
	y := mustPut(t, up, x, nil)
	id, _, _ := down.GroupOf("b3", y[0].Key)
	if !down.NeedsHave(id) {
		t.Fatal("the reverse does not ask for what the old version holds")
	}
	if back := mustPut(t, down, y, x); !bytes.Equal(back[0].Doc, x[0].Doc) {
		t.Errorf("came back as %s", back[0].Doc)
	}
	if back := mustPut(t, down, y, nil); back[0].Doc.Lookup("log").StringValue() != "lost" {
		t.Errorf("without a complement it came back as %s", back[0].Doc)
	}
}

// What the middle version kept of a record that is gone does not bring it back.
func TestDiscontinuedPartGoesWithItsGroup(t *testing.T) {
	t.Parallel()
	r := chain(t, []transform.Spec{rollouts1("heads", "h", "rollouts", "log"), plain("parts", "p", "templates")},
		[]transform.Spec{inverse(rollouts()), discontinued("log", "log")})
	up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
	x := []record.Record{named(t, "h", "g"), named(t, "p", "g:1")}
	y := mustPut(t, up, x, nil)
	if list(y) != "definitions g/1, lrp_deployments g" {
		t.Fatalf("became %s", list(y))
	}
	if back := mustPut(t, down, y[:1], x); list(back) != "p g:1" {
		t.Errorf("without its head the group came back as %s", list(back))
	}
}

// Kinds that only the middle version introduces: the new one gets them, empty, and their
// records cannot go back.
func TestKindsThatTheMiddleIntroduces(t *testing.T) {
	t.Parallel()
	r := chain(t, []transform.Spec{plain("p", "a", "a2")}, []transform.Spec{plain("p", "a2", "a3"), plain("n", "new2", "new3")}, []transform.Spec{plain("p", "a3", "a4"), plain("n", "new3", "new4")})
	for _, v := range []string{"v3", "v4"} {
		kind := "new" + v[1:]
		up, down := direct(t, r, "v1", v), direct(t, r, v, "v1")
		if len(up.TargetKinds()) != 2 || transform.SyncsTo(up, kind) {
			t.Errorf("%s: target kinds %v, %s is synced: %t", v, up.TargetKinds(), kind, transform.SyncsTo(up, kind))
		}
		_, ok, err := down.GroupOf(kind, record.StringKey("k"))
		if !ok || err == nil || !strings.Contains(err.Error(), "has no counterpart in v1") {
			t.Errorf("%s: a record of %s in the reverse direction: %t, %v", v, kind, ok, err)
		}
		if out := mustPut(t, down, []record.Record{named(t, "a"+v[1:], "k")}, nil); list(out) != "a k" {
			t.Errorf("%s: the other kind came back as %s", v, list(out))
		}
	}
}

// A middle kind that the old version does not have, in a group with one that it has.
func TestPartThatTheMiddleIntroduces(t *testing.T) {
	t.Parallel()
	r := chain(t, []transform.Spec{plain("heads", "h", bbs.KindDeployments)}, []transform.Spec{rollouts()})
	up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
	out := mustPut(t, up, []record.Record{named(t, "h", "g")}, nil)
	if list(out) != "rollouts g" {
		t.Fatalf("became %s", list(out))
	}
	if back := mustPut(t, down, out, nil); list(back) != "h g" {
		t.Errorf("came back as %s", list(back))
	}
	_, err := put(t, down, append(out, named(t, "templates", "g:1")), nil)
	if err == nil || !strings.Contains(err.Error(), "definitions g/1 of v2 has no counterpart in v1") {
		t.Errorf("a record without a reverse: %v", err)
	}
}

// TestIntroducedKindsInAChain: what a version in the middle introduces is new for the first one,
// too, and does not block the rollback. It cannot be merged with what the first one has.
func TestIntroducedKindsInAChain(t *testing.T) {
	t.Parallel()
	introduced := func(kinds ...string) transform.Spec {
		s := transform.Spec{Name: "introduced", Introduced: true}
		for _, k := range kinds {
			s.New.Kinds = append(s.New.Kinds, transform.GroupedKind{KindSpec: record.KindSpec{Name: k}})
		}
		return s
	}
	r := chain(t, []transform.Spec{plain("p", "a", "a2"), introduced("b2", "c2")},
		[]transform.Spec{plain("p", "a2", "a3"), plain("q", "b2", "b3"), discontinued("t", "c2"), introduced("d3")})
	up, down := direct(t, r, "v1", "v3"), direct(t, r, "v3", "v1")
	for _, kind := range []string{"b3", "d3"} {
		if transform.SyncsTo(up, kind) || transform.SyncsFrom(down, kind) {
			t.Errorf("%s is synced", kind)
		}
		if _, _, err := down.GroupOf(kind, record.StringKey("k")); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if !slices.ContainsFunc(up.TargetKinds(), func(k record.KindSpec) bool { return k.Name == kind }) {
			t.Errorf("%s takes no part in the switch", kind)
		}
	}
	if !transform.SyncsTo(up, "a3") {
		t.Error("a3 is not synced")
	}
	left := chain(t, []transform.Spec{plain("p", "a", "a2"), introduced("b2")}, []transform.Spec{plain("p", "a2", "a3")})
	if _, err := left.Direction("v1", "v3"); err == nil || !strings.Contains(err.Error(), "introduced makes b2 of v2, which no transformer") {
		t.Errorf("a kind that the next step forgets: %v", err)
	}
}
