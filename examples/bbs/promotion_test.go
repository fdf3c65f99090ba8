package bbs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/examples/bbs/converge"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/record"
)

// with returns a copy of a document with a field set.
func with(d bson.D, name string, v any) bson.D {
	d = slices.Clone(d)
	if i := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == name }); i >= 0 {
		d[i].Value = v
		return d
	}
	return append(d, bson.E{Key: name, Value: v})
}

func TestPromotion(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	a, b, c := bson.D{{Key: "rootfs", Value: "a"}}, bson.D{{Key: "rootfs", Value: "b"}}, bson.D{{Key: "rootfs", Value: "c"}}
	x := []record.Record{rec(t, KindDesiredLRPs, desired("e1", a))}
	fresh := mustTransform(t, up, x, nil)
	if got := fmt.Sprint(fresh[0].Doc, fresh[1].Doc); len(fresh) != 2 || fresh[0].Key.String() != "g/g" || fresh[1].Doc.Lookup(fieldActive).StringValue() != "g" || fresh[1].Doc.Lookup(fieldHealthy).StringValue() != "" {
		t.Errorf("promoted to %s", got)
	}
	if back := mustTransform(t, down, fresh, nil); !bytes.Equal(back[0].Doc, x[0].Doc) {
		t.Errorf("%s came back as %s", x[0].Doc, back[0].Doc)
	}
	head := desired("e1", nil)
	have := []record.Record{
		rec(t, KindDefinitions, bson.D{{Key: fieldID, Value: "g/new"}, {Key: fieldDefID, Value: "new"}, {Key: fieldDefinition, Value: a}, {Key: "beside", Value: 1}}),
		rec(t, KindDefinitions, bson.D{{Key: fieldID, Value: "g/old"}, {Key: fieldDefID, Value: "old"}, {Key: fieldDefinition, Value: b}}),
		rec(t, KindDeployments, append(head[:len(head)-1:len(head)-1], bson.E{Key: fieldActive, Value: "new"}, bson.E{Key: fieldHealthy, Value: "old"})),
	}
	for _, tc := range []struct {
		name, id       string
		x              bson.D
		instances      string // the definition of one that is left
		keys           []string
		former, beside string
	}{
		{"the same definition", "new", desired("e1", a), "", []string{"g/new", "g/old", "g"}, "", "1"},
		{"another definition of the same id", "new", desired("e1", c), "", []string{"g/new", "g/old", "g"}, "", ""},
		{"another id", "next", desired("e1", c), "", []string{"g/old", "g/next", "g"}, "old", ""},
		{"another id, and one runs what was active", "next", desired("e1", c), "new", []string{"g/new", "g/old", "g/next", "g"}, "old new", "1"},
		{"the healthy one again", "old", desired("e1", b), "", []string{"g/old", "g"}, "", ""},
		{"made anew", "", desired("e2", a), "", []string{"g/g", "g"}, "", ""},
	} {
		if tc.id != "" {
			tc.x = with(tc.x, fieldDefID, tc.id)
		}
		src, now := []record.Record{rec(t, KindDesiredLRPs, tc.x)}, have
		if tc.instances != "" {
			name := converge.Name("g", converge.Key{Definition: tc.instances, Index: 1})
			in := rec(t, KindActualLRPs, bson.D{{Key: fieldID, Value: name}, {Key: fieldDefID, Value: tc.instances}, {Key: fieldInstance, Value: bson.D{{Key: "state", Value: "RUNNING"}}}})
			src, now = append(src, in), append(slices.Clone(have), in)
		}
		out := mustTransform(t, up, src, now)
		out = slices.DeleteFunc(out, func(r record.Record) bool { return r.Kind == KindActualLRPs })
		var keys, former []string
		beside := ""
		for _, r := range out {
			keys = append(keys, r.Key.String())
			if v := r.Doc.Lookup("beside"); v.Type != 0 {
				beside = fmt.Sprint(v.Int32())
			}
		}
		last := out[len(out)-1].Doc
		if list, ok := last.Lookup(fieldFormer).ArrayOK(); ok {
			values, err := list.Values()
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range values {
				former = append(former, v.StringValue())
			}
		}
		id := tc.id
		if id == "" {
			id = "g"
		}
		if !slices.Equal(keys, tc.keys) || last.Lookup(fieldActive).StringValue() != id || strings.Join(former, " ") != tc.former || beside != tc.beside {
			t.Errorf("%s: %v, former %v, beside %q: %s", tc.name, keys, former, beside, last)
		}
		if healthy := last.Lookup(fieldHealthy).StringValue(); (healthy == "old") != (tc.name != "made anew") {
			t.Errorf("%s: healthy is %q", tc.name, healthy)
		}
		if back := mustTransform(t, down, out, src[:1]); !bytes.Equal(back[0].Doc, rec(t, KindDesiredLRPs, tc.x).Doc) {
			t.Errorf("%s: projected to %s", tc.name, back[0].Doc)
		}
	}
}

// TestPromotionOfTheHealthyOne: a definition is the healthy one only if an instance of it runs.
// Promotion does not judge again what v2 has judged.
func TestPromotionOfTheHealthyOne(t *testing.T) {
	t.Parallel()
	up, _ := directions(t)
	head := rec(t, KindDesiredLRPs, desired("e1", bson.D{}))
	named := rec(t, KindDesiredLRPs, with(desired("e1", bson.D{}), fieldDefID, "two"))
	instance := func(definition, state, epoch, placement string) record.Record {
		d := bson.D{{Key: fieldID, Value: converge.Name("g", converge.Key{Definition: definition, Index: 1})}}
		if definition != "g" {
			d = append(d, bson.E{Key: fieldDefID, Value: definition})
		}
		return rec(t, KindActualLRPs, append(d, bson.E{Key: fieldInstance, Value: bson.D{{Key: fieldPlacement, Value: placement}, {Key: "state", Value: state}, {Key: "epoch", Value: epoch}}}))
	}
	healthy := func(out []record.Record) string {
		for _, r := range out {
			if r.Kind == KindDeployments {
				return r.Doc.Lookup(fieldHealthy).StringValue()
			}
		}
		return "none"
	}
	for _, tc := range []struct {
		name string
		src  []record.Record
		want string
	}{
		{"no instance", []record.Record{head}, ""},
		{"one runs", []record.Record{head, instance("g", "RUNNING", "e1", "a")}, "g"},
		{"one is claimed", []record.Record{head, instance("g", "CLAIMED", "e1", "a")}, ""},
		{"one has crashed", []record.Record{head, instance("g", "CRASHED", "e1", "a")}, ""},
		{"one of the process before runs", []record.Record{head, instance("g", "RUNNING", "e0", "a")}, ""},
		{"one of another definition runs", []record.Record{named, instance("g", "RUNNING", "e1", "a")}, ""},
		{"one of the definition runs", []record.Record{named, instance("two", "RUNNING", "e1", "a")}, "two"},
	} {
		out := mustTransform(t, up, tc.src, nil)
		if got := healthy(out); got != tc.want {
			t.Errorf("%s: healthy is %q, want %q", tc.name, got, tc.want)
		}
		// What stops later was proven all the same.
		if got := healthy(mustTransform(t, up, tc.src[:1], out)); got != tc.want {
			t.Errorf("%s, and stopped: healthy is %q, want %q", tc.name, got, tc.want)
		}
	}
	claimed := mustTransform(t, up, []record.Record{head, instance("g", "CLAIMED", "e1", "a")}, nil)
	if got := healthy(mustTransform(t, up, []record.Record{head, instance("g", "RUNNING", "e1", "a")}, claimed)); got != "g" {
		t.Errorf("runs by now: healthy is %q", got)
	}
}

// TestProjectionAfterPromotion: whatever a desired LRP is, v1 sees the same after promotion, as a
// message and as a record.
func TestProjectionAfterPromotion(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	rapid.Check(t, func(rt *rapid.T) {
		p := drawProcess(rt)
		// What v1 refuses is no process.
		p.ProcessGuid, p.Domain = rapid.SampledFrom(sameGUIDs[:3]).Draw(rt, "its guid"), "cf"
		p.Instances, p.RolloutTimeoutMs, p.FallBackAfterMs = max(p.Instances, 0), max(p.RolloutTimeoutMs, 0), max(p.FallBackAfterMs, 0)
		if id := p.GetDefinitionId(); nameError(id) != nil || id == p.ProcessGuid {
			p.DefinitionId = nil
		}
		if p.Definition == nil {
			p.Definition = &bbsv1.Definition{}
		}
		if checkV1(t.Context(), p, nil) != nil {
			rt.Skip("routes that v1 refuses")
		}
		p.ModificationTag = &bbsv1.ModificationTag{Epoch: "e", Index: rapid.Uint32().Draw(rt, "index")}
		y, err := promoted(p, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if back, err := projected(y, nil); err != nil || !proto.Equal(back, p) {
			rt.Fatalf("%v came back as %v, %v", p, back, err)
		}
		doc, err := protodoc.MarshalID(p.ProcessGuid, p)
		if err != nil {
			rt.Skip("no record")
		}
		x := []record.Record{{Kind: KindDesiredLRPs, Key: record.StringKey(p.ProcessGuid), Doc: doc}}
		if back := mustTransform(t, down, mustTransform(t, up, x, nil), nil); len(back) != 1 || !bytes.Equal(back[0].Doc, doc) {
			rt.Fatalf("%s came back as %s", doc, back[0].Doc)
		}
	})
}
