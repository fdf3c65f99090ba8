package verify_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// flock is sheep that name their shepherd, and shepherds that list their sheep, in sync.
type flock struct {
	src, dst         *memstore.Store
	srcToks, dstToks record.Tokens
	dir              transform.Direction
	compare          *verify.Comparer
}

type sheep struct {
	ID string `bson:"_id"`
	Of string `bson:"of"`
}

func raw(v any) bson.Raw {
	b, err := bson.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func (f *flock) from() transform.View { return transform.View{Tokens: f.srcToks} }
func (f *flock) to() transform.View   { return transform.View{Tokens: f.dstToks} }

func newFlock(t *testing.T) *flock {
	t.Helper()
	of := func(r record.Record) (string, error) {
		var s sheep
		err := bson.Unmarshal(r.Doc, &s)
		return string(record.StringKey(s.Of)), err
	}
	up := func(src, _ transform.Group) ([]record.Record, error) {
		name, _ := record.Key(src.Name).Name()
		var all []string
		for _, r := range src.Records {
			all = append(all, r.Key.String())
		}
		if slices.Contains(all, "wolf") {
			return nil, errors.New("no sheep")
		}
		return []record.Record{{Kind: "shepherds", Key: record.Key(src.Name), Doc: raw(bson.D{{Key: "_id", Value: name}, {Key: "sheep", Value: all}})}}, nil
	}
	reg := transform.NewRegistry("test")
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "flock", Up: up, Down: up, Reversal: transform.ReversalNone,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "sheep"}, Content: of}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "shepherds"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &flock{src: memstore.New(), dst: memstore.New(), srcToks: record.Tokens{}, dstToks: record.Tokens{}}
	if f.dir, err = reg.Direction("v1", "v2"); err != nil {
		t.Fatal(err)
	}
	for _, side := range []struct {
		s     *memstore.Store
		toks  record.Tokens
		kinds []record.KindSpec
	}{{f.src, f.srcToks, f.dir.SourceKinds()}, {f.dst, f.dstToks, f.dir.TargetKinds()}} {
		for _, k := range side.kinds {
			if side.toks[k.Name], err = side.s.Provision(t.Context(), k, record.PhysicalName(k.Name, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.compare = verify.New(f.src, f.dst, f.dir)
	for _, id := range []string{"dolly", "molly", "polly", "shaun"} {
		f.put(t, id, map[string]string{"dolly": "ann", "molly": "ann", "polly": "bob", "shaun": "cy"}[id])
	}
	f.sync(t, "dolly", "molly", "polly", "shaun")
	return f
}

func (f *flock) put(t *testing.T, id, of string) {
	t.Helper()
	m := record.Mutation{Kind: "sheep", Key: record.StringKey(id)}
	if of != "" {
		m.Doc = raw(sheep{id, of})
	}
	if err := f.src.Write(t.Context(), f.srcToks, []record.Mutation{m}); err != nil {
		t.Fatal(err)
	}
}

func (f *flock) unit(t *testing.T, id string) transform.GroupID {
	t.Helper()
	u, _, err := f.dir.GroupOf("sheep", record.StringKey(id))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// sync brings units over, and notes what fails.
func (f *flock) sync(t *testing.T, ids ...string) {
	t.Helper()
	var units []transform.GroupID
	for _, id := range ids {
		units = append(units, f.unit(t, id))
	}
	r := transform.Resolver{Direction: f.dir, Source: f.src, Target: f.dst, From: f.from(), To: f.to(), Epoch: 1}
	cs, _, err := r.Resolve(t.Context(), units)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		res, err := f.dst.Apply(t.Context(), record.Batch{Tokens: f.dstToks, Epoch: 1, Groups: []record.GroupWrite{c.Write}})
		if err != nil || res[0].Outcome != record.Applied {
			t.Fatalf("%v, %v", res, err)
		}
	}
}

// tamper writes a record of the target past everything.
func (f *flock) tamper(t *testing.T, kind, id string, doc bson.D) {
	t.Helper()
	m := record.Mutation{Kind: kind, Key: record.StringKey(id)}
	if doc != nil {
		m.Doc = raw(append(bson.D{{Key: "_id", Value: id}}, doc...))
	}
	if err := f.dst.Write(t.Context(), f.dstToks, []record.Mutation{m}); err != nil {
		t.Fatal(err)
	}
}

// TestUnits: whatever disagrees between source, lineage and target is found, by its own
// record, and by comparing everything, which names it by a record of the source.
func TestUnits(t *testing.T) {
	t.Parallel()
	lineage := transform.LineageKind("flock", "v1", "v2")
	members := func(ids ...string) bson.D {
		return bson.D{{Key: "members", Value: bson.D{{Key: "sheep", Value: ids}}}, {Key: "targets", Value: bson.D{{Key: "shepherds", Value: bson.A{"ann"}}}}}
	}
	group := func(g string) bson.D { return bson.D{{Key: "group", Value: g}} }
	for name, tt := range map[string]struct {
		damage func(t *testing.T, f *flock)
		unit   string   // that differs
		names  []string // any of them is what a whole comparison reports; none: nothing differs
	}{
		"nothing":               {damage: func(*testing.T, *flock) {}},
		"a change":              {damage: func(t *testing.T, f *flock) { f.put(t, "lamb", "ann") }, unit: "lamb", names: []string{"lamb", "dolly", "molly"}},
		"a move":                {damage: func(t *testing.T, f *flock) { f.put(t, "molly", "bob") }, unit: "molly", names: []string{"molly"}},
		"a delete":              {damage: func(t *testing.T, f *flock) { f.put(t, "molly", "") }, unit: "molly", names: []string{"dolly", "molly"}},
		"a whole group deleted": {damage: func(t *testing.T, f *flock) { f.put(t, "shaun", "") }, unit: "shaun", names: []string{"shaun"}},
		"a target record":       {damage: func(t *testing.T, f *flock) { f.tamper(t, "shepherds", "ann", bson.D{{Key: "sheep", Value: bson.A{}}}) }, unit: "dolly", names: []string{"dolly", "molly"}},
		"a target record gone":  {damage: func(t *testing.T, f *flock) { f.tamper(t, "shepherds", "ann", nil) }, unit: "dolly", names: []string{"dolly", "molly"}},
		"a foreign record":      {damage: func(t *testing.T, f *flock) { f.tamper(t, "shepherds", "zoe", bson.D{}) }, names: []string{"zoe"}},
		"a record left behind": {damage: func(t *testing.T, f *flock) { // its entry names a group that does not list it
			f.tamper(t, "shepherds", "zoe", bson.D{})
			f.tamper(t, lineage, "t/shepherds/=zoe", group("=ann"))
		}, names: []string{"zoe", "dolly", "molly"}},
		"entry of a member": {damage: func(t *testing.T, f *flock) { f.tamper(t, lineage, "m/sheep/=molly", group("=bob")) }, unit: "molly", names: []string{"molly"}},
		"entry of a group":  {damage: func(t *testing.T, f *flock) { f.tamper(t, lineage, "g/=ann", members("dolly")) }, unit: "molly", names: []string{"dolly", "molly"}},
		"entry of a target": {damage: func(t *testing.T, f *flock) { f.tamper(t, lineage, "t/shepherds/=ann", nil) }, unit: "dolly", names: []string{"dolly", "molly", "ann"}},
		"one that waits": {damage: func(t *testing.T, f *flock) {
			f.put(t, "wolf", "ann")
			f.sync(t, "wolf")
		}, unit: "wolf", names: []string{"wolf", "dolly", "molly"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlock(t)
			tt.damage(t, f)
			var ids []transform.GroupID
			for _, id := range []string{"dolly", "molly", "polly", "shaun", "lamb", "wolf"} {
				ids = append(ids, f.unit(t, id))
			}
			differ, err := f.compare.Groups(t.Context(), f.from(), f.to(), ids[:4])
			if err != nil || len(tt.names) == 0 && len(differ) > 0 {
				t.Errorf("%v differ, %v", differ, err)
			}
			if slices.Contains(transform.Names(differ), f.unit(t, "polly")) && tt.unit != "molly" {
				t.Error("a group that has nothing to do with it differs")
			}
			if tt.unit != "" {
				one := f.unit(t, tt.unit)
				if differ, err := f.compare.Groups(t.Context(), f.from(), f.to(), []transform.GroupID{one}); err != nil || !slices.Equal(transform.Names(differ), []transform.GroupID{one}) {
					t.Errorf("%s alone: %v differ, %v", tt.unit, differ, err)
				}
			}
			rep, err := f.compare.Run(t.Context(), f.from(), f.to(), verify.Recheck{Tries: 1}, nil)
			if err != nil || (rep.Mismatched > 0) != (len(tt.names) > 0) {
				t.Errorf("whole: %+v, %v", rep, err)
			}
			for _, e := range rep.Examples {
				if !slices.Contains(tt.names, e) && !(tt.unit == "molly" && strings.HasSuffix(e, "olly")) {
					t.Errorf("named by %s, want one of %v", e, tt.names)
				}
			}
		})
	}
}
