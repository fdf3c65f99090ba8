package bbs

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
)

func directions(t testing.TB) (up, down transform.Direction) {
	t.Helper()
	r := transform.NewRegistry(Service)
	if err := Register(r); err != nil {
		t.Fatal(err)
	}
	up, err := r.Direction(V1, V2)
	if err != nil {
		t.Fatal(err)
	}
	if down, err = r.Direction(V2, V1); err != nil {
		t.Fatal(err)
	}
	return up, down
}

func rec(t interface{ Fatal(...any) }, kind string, d bson.D) record.Record {
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.KeyOfDoc(raw)
	if err != nil {
		t.Fatal(err)
	}
	return record.Record{Kind: kind, Key: key, Doc: raw}
}

var (
	guids  = []string{"g", "g-1", "h"}
	epochs = []string{"e1", "e2"}
)

func drawDefinition(t *rapid.T) bson.D {
	d := bson.D{{Key: "rootfs", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rootfs")}, {Key: "memory_mb", Value: int32(rapid.IntRange(0, 9).Draw(t, "memory"))}}
	if rapid.Bool().Draw(t, "with env") {
		d = append(d, bson.E{Key: "env", Value: bson.A{bson.D{{Key: "name", Value: "A"}, {Key: "value", Value: rapid.String().Draw(t, "env")}}}})
	}
	if rapid.Bool().Draw(t, "with unknown") {
		d = append(d, bson.E{Key: "future", Value: bson.D{{Key: "x", Value: 1.5}}})
	}
	return d
}

// drawIdentity has the fields that both versions have, some missing, some unknown, in
// any order behind the _id.
func drawIdentity(t *rapid.T, guid string) bson.D {
	var d bson.D
	for _, e := range []bson.E{
		{Key: fieldGUID, Value: guid}, {Key: "domain", Value: rapid.SampledFrom([]string{"cf", ""}).Draw(t, "domain")},
		{Key: "instances", Value: rapid.SampledFrom([]any{int32(1), int64(2)}).Draw(t, "instances")},
		{Key: "routes", Value: bson.D{{Key: "a.b", Value: rapid.String().Draw(t, "route")}}}, {Key: "annotation", Value: "x"},
		{Key: fieldTag, Value: bson.D{{Key: "epoch", Value: rapid.SampledFrom(epochs).Draw(t, "epoch")}, {Key: "index", Value: int64(rapid.IntRange(0, 5).Draw(t, "index"))}}},
		{Key: "unknown", Value: bson.A{nil, 1}}, {Key: "rollout_timeout_ms", Value: rapid.SampledFrom([]any{int32(0), int64(9000)}).Draw(t, "rollout timeout")}, {Key: "fall_back_after_ms", Value: int64(1)},
	} {
		if rapid.IntRange(0, 9).Draw(t, "leave out "+e.Key) > 0 {
			d = append(d, e)
		}
	}
	return append(bson.D{{Key: fieldID, Value: guid}}, rapid.Permutation(d).Draw(t, "order")...)
}

// drawInstances has instances of some definitions at some indexes, each with a placement of its own.
// v1 leaves out the definition that has the id of the process.
func drawInstances(t *rapid.T, v1 bool, guid string, ids ...string) []record.Record {
	var out []record.Record
	for index := range rapid.IntRange(0, 2).Draw(t, "instances") {
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, 2, rapid.ID).Draw(t, "definitions of instances") {
			key := converge.Key{Definition: id, Index: index}
			name := converge.Name(guid, key)
			d := bson.D{{Key: "name", Value: name}, {Key: "revision", Value: int64(rapid.IntRange(1, 3).Draw(t, "revision"))}, {Key: fieldGUID, Value: guid}, {Key: "unknown", Value: 1}}
			if !v1 || id != guid {
				d = append(d, bson.E{Key: fieldDefID, Value: id})
			}
			for _, slot := range []string{fieldInstance, "evacuating"} {
				if rapid.IntRange(0, 3).Draw(t, "without "+slot) == 0 {
					continue
				}
				in := bson.D{
					{Key: fieldPlacement, Value: fmt.Sprint(slot, name, rapid.IntRange(0, 1).Draw(t, "placement"))}, {Key: "state", Value: rapid.SampledFrom([]string{"UNCLAIMED", "CRASHED", "RUNNING"}).Draw(t, "state")},
					{Key: "epoch", Value: rapid.SampledFrom(epochs).Draw(t, "epoch")}, {Key: "given_up", Value: rapid.Bool().Draw(t, "given up")}, {Key: "future", Value: bson.D{{Key: "x", Value: 1.5}}},
				}
				d = append(d, bson.E{Key: slot, Value: rapid.Permutation(in).Draw(t, "order of "+slot)})
			}
			out = append(out, rec(t, KindActualLRPs, append(bson.D{{Key: fieldID, Value: name}}, rapid.Permutation(d).Draw(t, "order of instance")...)))
		}
	}
	return out
}

func oldGroups() *rapid.Generator[[]record.Record] {
	return rapid.Custom(func(t *rapid.T) []record.Record {
		guid := rapid.SampledFrom(guids).Draw(t, "guid")
		out := drawInstances(t, true, guid, "one", "two", guid)
		if len(out) > 0 && rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
			return out
		}
		d := drawIdentity(t, guid)
		if id := rapid.SampledFrom([]string{"", "one", "two", "four"}).Draw(t, "definition id"); id != "" {
			d = slices.Insert(d, rapid.IntRange(1, len(d)).Draw(t, "place of its id"), bson.E{Key: fieldDefID, Value: id})
		}
		at := rapid.IntRange(1, len(d)).Draw(t, "place of definition")
		return append(out, rec(t, KindDesiredLRPs, slices.Insert(d, at, bson.E{Key: fieldDefinition, Value: drawDefinition(t)})))
	})
}

func newGroups() *rapid.Generator[[]record.Record] {
	return rapid.Custom(func(t *rapid.T) []record.Record {
		guid := rapid.SampledFrom(guids).Draw(t, "guid")
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"one", "two", "three", guid}), 1, 4, rapid.ID).Draw(t, "ids")
		out := drawInstances(t, false, guid, append(ids, "pruned")...)
		if len(out) > 0 && rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
			return out
		}
		d := append(drawIdentity(t, guid), bson.E{Key: fieldActive, Value: ids[0]})
		if rapid.Bool().Draw(t, "with healthy") {
			d = append(d, bson.E{Key: fieldHealthy, Value: rapid.SampledFrom(append(ids, "")).Draw(t, "healthy")})
		}
		if rapid.Bool().Draw(t, "with former") {
			d = append(d, bson.E{Key: fieldFormer, Value: ids[1:]})
		}
		out = append(out, rec(t, KindDeployments, d))
		for _, id := range ids {
			def := bson.D{{Key: fieldID, Value: definitionKey(guid, id)}, {Key: fieldGUID, Value: guid}, {Key: fieldDefID, Value: id}, {Key: fieldDefinition, Value: drawDefinition(t)}}
			if rapid.Bool().Draw(t, "unknown next to definition") {
				def = append(def, bson.E{Key: "future", Value: 1})
			}
			out = append(out, rec(t, KindDefinitions, def))
		}
		return out
	})
}

func TestLaws(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: oldGroups(), New: newGroups(), LossyDown: true})
	cells := rapid.Custom(func(t *rapid.T) []record.Record {
		return []record.Record{rec(t, KindCells, bson.D{{Key: fieldID, Value: rapid.SampledFrom(guids).Draw(t, "cell")}, {Key: "seen_ms", Value: rapid.Int64().Draw(t, "seen")}})}
	})
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: cells, New: cells})
}

func mustTransform(t testing.TB, d transform.Direction, src, have []record.Record) []record.Record {
	t.Helper()
	src, have = sorted(src), sorted(have)
	id, ok, err := d.GroupOf(src[0].Kind, src[0].Key)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	out, err := d.Transform(id, transform.Group{Name: id.Name, Records: src}, transform.Group{Name: id.Name, Records: have})
	if err != nil {
		t.Fatal(err)
	}
	return sorted(out)
}

// sorted returns records in the order of a group.
func sorted(recs []record.Record) []record.Record {
	return slices.SortedFunc(slices.Values(recs), func(a, b record.Record) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(string(a.Key), string(b.Key)))
	})
}

func desired(epoch string, definition bson.D) bson.D {
	return bson.D{{Key: fieldID, Value: "g"}, {Key: fieldGUID, Value: "g"}, {Key: "instances", Value: int32(2)},
		{Key: fieldTag, Value: bson.D{{Key: "epoch", Value: epoch}, {Key: "index", Value: int64(1)}}}, {Key: fieldDefinition, Value: definition}}
}

func TestMalformedRecordsAreErrors(t *testing.T) {
	t.Parallel()
	up, down := directions(t)
	ok := bson.D{{Key: "rootfs", Value: "a"}}
	def := rec(t, KindDefinitions, bson.D{{Key: fieldID, Value: "g/d"}, {Key: fieldDefinition, Value: ok}})
	head := bson.D{{Key: fieldID, Value: "g"}, {Key: fieldActive, Value: "d"}}
	for _, tc := range []struct {
		name, want string
		d          transform.Direction
		src        []record.Record
	}{
		{"instances a string", "instances is of type string, not an integer", up, []record.Record{rec(t, KindDesiredLRPs, with(desired("e", ok), "instances", "2"))}},
		{"within the definition", "definition.memory_mb is of type string", up, []record.Record{rec(t, KindDesiredLRPs, desired("e", bson.D{{Key: "memory_mb", Value: "2"}}))}},
		{"tag", "modification_tag is of type", up, []record.Record{rec(t, KindDesiredLRPs, with(desired("e", ok), fieldTag, 1))}},
		{"no definition", "no definition", up, []record.Record{rec(t, KindDesiredLRPs, bson.D{{Key: fieldID, Value: "g"}})}},
		{"other guid", `process_guid is "x"`, up, []record.Record{rec(t, KindDesiredLRPs, with(desired("e", ok), fieldGUID, "x"))}},
		{"v2's field", "belongs to the other version", up, []record.Record{rec(t, KindDesiredLRPs, with(desired("e", ok), fieldActive, "x"))}},
		{"slash", "must not contain '/'", up, []record.Record{rec(t, KindDesiredLRPs, with(desired("e", ok), fieldID, "a/b"))}},
		{"key of another type", "not a string", up, []record.Record{rec(t, KindDesiredLRPs, with(desired("e", ok), fieldID, 5))}},
		{"the guid as an id", "must be left out then", up, []record.Record{rec(t, KindDesiredLRPs, with(desired("e", ok), fieldDefID, "g"))}},
		{"an id with a slash", "must not contain", up, []record.Record{rec(t, KindDesiredLRPs, with(desired("e", ok), fieldDefID, "a/b"))}},
		{"an instance of another definition", "definition_id is", up, []record.Record{rec(t, KindActualLRPs, bson.D{{Key: fieldID, Value: converge.IndexName("g", 0)}, {Key: fieldDefID, Value: "two"}})}},
		{"an instance without a definition", "no definition_id", down, []record.Record{rec(t, KindActualLRPs, bson.D{{Key: fieldID, Value: converge.IndexName("g", 0)}})}},
		{"v1's id", "belongs to the other version", down, []record.Record{def, rec(t, KindDeployments, with(head, fieldDefID, "d"))}},
		{"orphan definition", "no deployment", down, []record.Record{def}},
		{"no active", "no active_definition_id", down, []record.Record{def, rec(t, KindDeployments, bson.D{{Key: fieldID, Value: "g"}})}},
		{"active not there", `"e" is not there`, down, []record.Record{def, rec(t, KindDeployments, with(head, fieldActive, "e"))}},
		{"v1's field", "belongs to the other version", down, []record.Record{def, rec(t, KindDeployments, with(head, fieldDefinition, ok))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			id, _, err := tc.d.GroupOf(tc.src[0].Kind, tc.src[0].Key)
			if err != nil {
				t.Fatal(err)
			}
			out, err := tc.d.Transform(id, transform.Group{Name: id.Name, Records: tc.src}, transform.Group{Name: id.Name})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, error %v, want %q", out, err, tc.want)
			}
		})
	}
	if _, ok, err := up.GroupOf(KindActualLRPs, record.StringKey(converge.IndexName("g", 0)+"@g")); !ok || err == nil {
		t.Errorf("a second name of an instance: %t, %v", ok, err)
	}
	if _, ok, err := up.GroupOfTarget(KindDefinitions, record.StringKey("no-slash")); !ok || err == nil {
		t.Errorf("a definition's key without guid: %t, %v", ok, err)
	}
}

// TestClientsSeeTheSameAcrossTheVersions moves what clients made through v1 to v2, and
// back, and lets them read it.
func TestClientsSeeTheSameAcrossTheVersions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	up, down := directions(t)
	v1, v2, again := sampletest.New(t, KindDesiredLRPs), sampletest.New(t, KindDeployments, KindDefinitions), sampletest.New(t, KindDesiredLRPs)
	a := serve(t, StackV1(v1, v2))
	for i := range 5 {
		createV1(t, a, lrpV1(fmt.Sprint("p", i), "cf"))
	}
	copyAll := func(s *sampletest.Store, out []record.Record) {
		for _, r := range out {
			if err := s.Write(ctx, []record.Mutation{{Kind: r.Kind, Key: r.Key, Doc: r.Doc, Absent: true}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range v1.All(t, KindDesiredLRPs) {
		copyAll(v2, mustTransform(t, up, []record.Record{r}, nil))
	}
	for _, r := range v2.All(t, KindDeployments) {
		name, _ := r.Key.Name()
		defs, err := v2.List(ctx, KindDefinitions, name+"/", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		copyAll(again, mustTransform(t, down, append(defs, r), nil))
	}
	list := func(a api) *bbsv1.ListDesiredLRPsResponse {
		res, err := a.v1.ListDesiredLRPs(ctx, connect.NewRequest(&bbsv1.ListDesiredLRPsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg
	}
	want := list(a)
	if len(want.GetDesiredLrps()) != 5 {
		t.Fatalf("made %d", len(want.GetDesiredLrps()))
	}
	for name, got := range map[string]*bbsv1.ListDesiredLRPsResponse{"v2": list(serve(t, StackV2(v2))), "v1 again": list(serve(t, StackV1(again, nil)))} {
		if !proto.Equal(got, want) {
			t.Errorf("over %s: %v\nwant %v", name, got, want)
		}
	}
	for i, r := range again.All(t, KindDesiredLRPs) {
		if !bytes.Equal(r.Doc, v1.All(t, KindDesiredLRPs)[i].Doc) {
			t.Errorf("%s came back as other bytes", r.Key)
		}
	}
}

func BenchmarkPromote(b *testing.B) {
	up, _ := directions(b)
	doc, err := protodoc.MarshalID("p", lrpV1("p", "cf"))
	if err != nil {
		b.Fatal(err)
	}
	key := record.StringKey("p")
	src := transform.Group{Name: string(key), Records: []record.Record{{Kind: KindDesiredLRPs, Key: key, Doc: doc}}}
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := up.Transform(transform.GroupID{Name: src.Name}, src, transform.Group{}); err != nil {
			b.Fatal(err)
		}
	}
}
