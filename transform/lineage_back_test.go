package transform_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// In the old version each sailor names its ship; in the new one a ship lists its sailors.

type sailorDoc struct {
	ID   string `bson:"_id"`
	Ship string `bson:"ship"`
	N    int    `bson:"n"`
}

type shipDoc struct {
	ID   string   `bson:"_id"`
	Crew []seaman `bson:"crew"`
}

type seaman struct {
	ID string `bson:"id"`
	N  int    `bson:"n"`
}

func shipsUp(src, _ transform.Group) ([]record.Record, error) {
	name, _ := record.Key(src.Name).Name()
	ship := shipDoc{ID: name}
	for _, r := range src.Records {
		s := decoded[sailorDoc](r)
		ship.Crew = append(ship.Crew, seaman{s.ID, s.N})
	}
	return []record.Record{{Kind: "ships2", Key: record.StringKey(name), Doc: marshal(ship)}}, nil
}

func shipsDown(src, _ transform.Group) (out []record.Record, err error) {
	for _, r := range src.Records {
		ship := decoded[shipDoc](r)
		if len(ship.Crew) == 0 {
			return nil, errors.New("nobody is on the ship")
		}
		for _, s := range ship.Crew {
			out = append(out, record.Record{Kind: "sailors1", Key: record.StringKey(s.ID), Doc: marshal(sailorDoc{s.ID, ship.ID, s.N})})
		}
	}
	return out, nil
}

// fleet is two databases between which the direction turns round.
type fleet struct {
	t     fatal
	c     ctx
	db    map[string]*memstore.Store
	toks  map[string]record.Tokens
	dirs  map[string]transform.Direction // by the version that is the source
	from  string
	epoch uint64
	crews map[string]map[string]int // ship -> sailor -> n
}

func newFleet(t fatal) *fleet {
	t.Helper()
	r := transform.NewRegistry("fleet")
	err := r.Add("v1", "v2", transform.Spec{
		Name: "ships", Revision: "1", Up: shipsUp, Down: shipsDown,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "sailors1"}, Content: func(r record.Record) (string, error) {
			return string(record.StringKey(decoded[sailorDoc](r).Ship)), nil
		}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "ships2"}}}},
	})
	if err != nil {
		t.Fatalf("registry: %v", err)
	}
	f := &fleet{
		t: t, c: context.Background(), from: "v1", epoch: 1, crews: map[string]map[string]int{},
		db:   map[string]*memstore.Store{"v1": memstore.NewCluster(memstore.Options{Start: 1 << 10}).Open("old"), "v2": memstore.New()},
		toks: map[string]record.Tokens{"v1": {}, "v2": {}}, dirs: map[string]transform.Direction{},
	}
	for from, to := range map[string]string{"v1": "v2", "v2": "v1"} {
		if f.dirs[from], err = r.Direction(from, to); err != nil {
			t.Fatalf("direction: %v", err)
		}
	}
	f.provision("v1", f.dirs["v1"].SourceKinds())
	f.provision("v2", f.dirs["v1"].TargetKinds())
	return f
}

func (f *fleet) provision(version string, kinds []record.KindSpec) {
	f.t.Helper()
	for _, k := range kinds {
		if _, there := f.toks[version][k.Name]; there {
			continue
		}
		tok, err := f.db[version].Provision(f.c, k, record.PhysicalName(k.Name, 1))
		if err != nil {
			f.t.Fatalf("provision %s: %v", k.Name, err)
		}
		f.toks[version][k.Name] = tok
	}
}

func (f *fleet) to() string { return map[string]string{"v1": "v2", "v2": "v1"}[f.from] }

// flip turns the direction round: the target is the source from now on.
func (f *fleet) flip(purge bool) {
	f.t.Helper()
	f.from = f.to()
	f.epoch++
	f.provision(f.to(), f.dirs[f.from].TargetKinds())
	if purge { // as it is done to what is active now, some time
		for _, tok := range f.toks[f.from] {
			if err := f.db[f.from].Purge(f.c, tok); err != nil {
				f.t.Fatalf("purge: %v", err)
			}
		}
	}
}

// store writes the ships named as the service of the active version does, and applies
// what that changed, record by record.
func (f *fleet) store(before map[string]map[string]int) {
	f.t.Helper()
	old, fresh := f.records(f.from, before), f.records(f.from, f.crews)
	var ms []record.Mutation
	for key, r := range fresh {
		if string(old[key].Doc) != string(r.Doc) {
			ms = append(ms, record.Mutation{Kind: r.Kind, Key: r.Key, Doc: r.Doc})
		}
	}
	for key, r := range old {
		if _, stays := fresh[key]; !stays {
			ms = append(ms, record.Mutation{Kind: r.Kind, Key: r.Key})
		}
	}
	slices.SortFunc(ms, func(a, b record.Mutation) int { return len(a.Key.String()) - len(b.Key.String()) })
	if len(ms) == 0 {
		return
	}
	if err := f.db[f.from].Write(f.c, f.toks[f.from], ms); err != nil {
		f.t.Fatalf("write: %v", err)
	}
	pos, err := f.db[f.from].Position(f.c)
	if err != nil {
		f.t.Fatalf("position: %v", err)
	}
	for _, m := range ms {
		id, _, err := f.dirs[f.from].GroupOf(m.Kind, m.Key)
		if err != nil {
			f.t.Fatalf("unit: %v", err)
		}
		f.bring(id, pos.At)
	}
}

func (f *fleet) resolver() transform.Resolver {
	return transform.Resolver{
		Direction: f.dirs[f.from], Source: f.db[f.from], Target: f.db[f.to()],
		From: transform.View{Tokens: f.toks[f.from]}, To: transform.View{Tokens: f.toks[f.to()]}, Epoch: f.epoch,
	}
}

func (f *fleet) bring(id transform.GroupID, notBefore record.Version) {
	f.t.Helper()
	r := f.resolver()
	r.From.NotBefore = notBefore
	cs, _, err := r.Resolve(f.c, []transform.GroupID{id})
	if err != nil {
		f.t.Fatalf("resolve: %v", err)
	}
	for _, c := range cs {
		if len(c.Failed) > 0 {
			f.t.Fatalf("failed: %v", c.Failed)
		}
		res, err := f.db[f.to()].Apply(f.c, record.Batch{Tokens: f.toks[f.to()], Epoch: f.epoch, Groups: []record.GroupWrite{c.Write}})
		if err != nil || res[0].Outcome != record.Applied {
			f.t.Fatalf("apply: %v, %v", res, err)
		}
	}
}

// records is what a version holds of crews.
func (f *fleet) records(version string, crews map[string]map[string]int) map[string]record.Record {
	out := map[string]record.Record{}
	for ship, crew := range crews {
		var sailors []record.Record
		for id, n := range crew {
			sailors = append(sailors, record.Record{Kind: "sailors1", Key: record.StringKey(id), Doc: marshal(sailorDoc{id, ship, n})})
		}
		if len(sailors) == 0 {
			continue
		}
		transform.SortRecords(sailors)
		if version == "v2" {
			sailors, _ = shipsUp(transform.Group{Name: string(record.StringKey(ship)), Records: sailors}, transform.Group{})
		}
		for _, r := range sailors {
			out[r.Kind+"/"+r.Key.String()] = r
		}
	}
	return out
}

// inSync checks that both databases hold the crews, and that nobody would write anything.
func (f *fleet) inSync() {
	f.t.Helper()
	for v := range f.db {
		want, have := f.records(v, f.crews), all(f.c, f.t, f.db[v], f.toks[v])
		maps.DeleteFunc(have, func(_ string, r record.Record) bool { return transform.IsLineage(r.Kind) })
		for key, r := range want {
			if string(have[key].Doc) != string(r.Doc) {
				f.t.Fatalf("epoch %d: %s of %s is %s, want %s", f.epoch, key, v, have[key].Doc, r.Doc)
			}
		}
		if len(have) != len(want) {
			f.t.Fatalf("epoch %d: %s holds %v, want %v", f.epoch, v, slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(want)))
		}
	}
	f.known()
	var ids []transform.GroupID
	for _, r := range f.records(f.from, f.crews) {
		id, _, _ := f.dirs[f.from].GroupOf(r.Kind, r.Key)
		ids = append(ids, id)
	}
	pos, err := f.db[f.from].Position(f.c)
	if err != nil {
		f.t.Fatalf("position: %v", err)
	}
	r := f.resolver()
	r.Epoch, r.From.NotBefore = 0, pos.At // as a comparison reads
	cs, _, err := r.Resolve(f.c, ids)
	if err != nil {
		f.t.Fatalf("resolve: %v", err)
	}
	for _, c := range cs {
		if !c.InSync {
			f.t.Fatalf("epoch %d: units %v are not in sync: %+v", f.epoch, c.Units, c.Write)
		}
	}
}

// known checks that the key that a record has in the other version is found by lineage, from
// either version and whichever is active, where there is one.
func (f *fleet) known() {
	f.t.Helper()
	sailors, ships := map[record.Key]record.Key{}, map[record.Key]record.Key{}
	asked := map[string][]record.Key{"sailors1": {record.StringKey("nobody")}, "ships2": {record.StringKey("none")}}
	for ship, crew := range f.crews {
		for sailor := range crew {
			sailors[record.StringKey(sailor)] = record.StringKey(ship)
			if len(crew) == 1 {
				ships[record.StringKey(ship)] = record.StringKey(sailor)
			}
			asked["sailors1"] = append(asked["sailors1"], record.StringKey(sailor))
		}
		asked["ships2"] = append(asked["ships2"], record.StringKey(ship))
	}
	lineage := func(version string) transform.Lineage {
		return transform.Lineage{Reader: f.db[version], Tokens: f.toks[version], Kind: transform.LineageKind("ships", "v1", "v2")}
	}
	for _, way := range []struct {
		own, far, kind, farKind string
		want                    map[record.Key]record.Key
	}{{"v1", "v2", "sailors1", "ships2", sailors}, {"v2", "v1", "ships2", "sailors1", ships}} {
		got, err := transform.FarKeys(f.c, lineage(way.own), lineage(way.far), way.kind, way.farKind, asked[way.kind])
		if err != nil || !maps.Equal(got, way.want) {
			f.t.Fatalf("epoch %d: the keys of %s are %v, %v; want %v", f.epoch, way.kind, got, err, way.want)
		}
	}
}

// TestLineageTurnsRound: after a switch the reverse direction starts with the lineage that the way
// there has left, sides swapped; nothing is copied again, and members move, come and go
// on whichever side is active.
func TestLineageTurnsRound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		ships := rapid.SampledFrom([]string{"ark", "bear", "cat"})
		sailors := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		for range rapid.IntRange(1, 4).Draw(t, "directions") {
			for range rapid.IntRange(0, 8).Draw(t, "changes") {
				before := map[string]map[string]int{}
				for ship, crew := range f.crews {
					before[ship] = maps.Clone(crew)
				}
				for range rapid.IntRange(1, 3).Draw(t, "at once") {
					sailor, ship := sailors.Draw(t, "sailor"), ships.Draw(t, "ship")
					for _, crew := range f.crews {
						delete(crew, sailor)
					}
					if rapid.IntRange(0, 3).Draw(t, "leaves") > 0 {
						if f.crews[ship] == nil {
							f.crews[ship] = map[string]int{}
						}
						f.crews[ship][sailor] = rapid.IntRange(0, 9).Draw(t, "n")
					}
				}
				f.store(before)
			}
			f.inSync()
			f.flip(rapid.Bool().Draw(t, "purge"))
			f.inSync()
		}
	})
}

// TestReverseSyncNeedsLineage shows what it is for: what belonged together is found though
// nothing but one record of it has changed since.
func TestReverseSyncNeedsLineage(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.crews = map[string]map[string]int{"ark": {"a": 1, "b": 2}, "bear": {"c": 3}}
	f.store(nil)
	f.flip(true)
	before := map[string]map[string]int{"ark": {"a": 1, "b": 2}, "bear": {"c": 3}}
	f.crews = map[string]map[string]int{"bear": {"c": 3, "a": 1}}
	f.store(before)
	f.inSync()
	if got := fmt.Sprint(slices.Sorted(maps.Keys(f.records("v1", f.crews)))); got != "[sailors1/a sailors1/c]" {
		t.Error(got)
	}
}
