package verify_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// side is a namespace with its tokens.
type side struct {
	*memstore.Store
	toks record.Tokens
}

func newSide(t *testing.T, kinds []record.KindSpec) side {
	t.Helper()
	s := side{memstore.New(), record.Tokens{}}
	for _, k := range kinds {
		tok, err := s.Provision(t.Context(), k, record.PhysicalName(k.Name, 1))
		if err != nil {
			t.Fatal(err)
		}
		s.toks[k.Name] = tok
	}
	return s
}

// put writes {_id: key, of: of}, or deletes with an empty of.
func (s side) put(t *testing.T, kind, key, of string) {
	t.Helper()
	m := record.Mutation{Kind: kind, Key: record.StringKey(key)}
	if of != "" {
		m.Doc = document(key, of)
	}
	if err := s.Write(t.Context(), s.toks, []record.Mutation{m}); err != nil {
		t.Fatal(err)
	}
}

func document(key, of string) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "of", Value: of}})
	if err != nil {
		panic(err)
	}
	return b
}

func ofWhat(r record.Record) string { return bson.Raw(r.Doc).Lookup("of").StringValue() }

// renamed renames a kind.
func renamed(kind string) transform.Func {
	return func(src, _ transform.Group) ([]record.Record, error) {
		r := src.Records[0]
		return []record.Record{{Kind: kind, Key: r.Key, Doc: r.Doc}}, nil
	}
}

// toShepherds make of sheep, each of which names its shepherd, lists; sheep does the reverse.
func toShepherds(src, _ transform.Group) ([]record.Record, error) {
	name, _ := record.Key(src.Name).Name()
	var all []string
	for _, r := range src.Records {
		all = append(all, r.Key.String())
	}
	slices.Sort(all)
	return []record.Record{{Kind: "shepherds", Key: record.Key(src.Name), Doc: document(name, strings.Join(all, " "))}}, nil
}

func toSheep(src, _ transform.Group) ([]record.Record, error) {
	name, _ := src.Records[0].Key.Name()
	var out []record.Record
	for _, id := range strings.Fields(ofWhat(src.Records[0])) {
		out = append(out, record.Record{Kind: "sheep", Key: record.StringKey(id), Doc: document(id, name)})
	}
	return out, nil
}

// TestLoss counts what the current version has otherwise than the one that was left, whose
// lineage of the rollback nobody has made, and writes nothing.
func TestLoss(t *testing.T) {
	t.Parallel()
	reg := transform.NewRegistry("test")
	err := reg.Add("v1", "v2", transform.Spec{
		Name: "named", Up: renamed("news"), Down: renamed("olds"),
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "olds"}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "news"}}}},
	}, transform.Spec{
		Name: "flock", Up: toShepherds, Down: toSheep,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "sheep"}, Content: func(r record.Record) (string, error) {
			return string(record.StringKey(ofWhat(r))), nil
		}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "shepherds"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	up, err := reg.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	down, err := reg.Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	before, now := newSide(t, up.SourceKinds()), newSide(t, up.TargetKinds())
	for _, key := range []string{"stays", "changes", "goes"} {
		before.put(t, "olds", key, "1")
		now.put(t, "news", key, "1")
	}
	var units []transform.GroupID
	for id, of := range map[string]string{"dolly": "ann", "molly": "ann", "polly": "bob", "shaun": "cy", "wooly": "cy"} {
		before.put(t, "sheep", id, of)
		u, _, err := up.GroupOf("sheep", record.StringKey(id))
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, u)
	}
	bringOver(t, up, before, now, units)

	count := func() verify.Loss {
		t.Helper()
		var seen int64
		r, err := verify.EstimateLoss(t.Context(), now, before, down, transform.View{Tokens: now.toks}, transform.View{Tokens: before.toks}, func(n int64) { seen = n })
		if err != nil {
			t.Fatal(err)
		}
		if seen == 0 {
			t.Error("no progress")
		}
		slices.Sort(r.Examples)
		return r
	}
	if diff := cmp.Diff(verify.Loss{Compared: 6}, count()); diff != "" {
		t.Errorf("level (-want +got):\n%s", diff)
	}
	now.put(t, "news", "changes", "2")
	now.put(t, "news", "goes", "")
	now.put(t, "news", "comes", "3")
	now.put(t, "shepherds", "ann", "dolly") // molly is gone
	now.put(t, "shepherds", "bob", "")      // with polly
	now.put(t, "shepherds", "dan", "timmy") // is new
	was := before.all(t)
	want := verify.Loss{
		Compared: 5 + 1 + 2, Created: 2, Changed: 2, Deleted: 2,
		Examples: []string{"changed news/changes", "changed shepherds/ann", "created news/comes", "created shepherds/dan", "deleted news/goes", "deleted shepherds/bob"},
	}
	got := count()
	for i, e := range got.Examples { // whichever record of a group that is gone stands for it
		if strings.HasPrefix(e, "deleted sheep/") {
			got.Examples[i] = "deleted shepherds/bob"
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(verify.Loss{}, "Compared")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(was, before.all(t)); diff != "" {
		t.Errorf("the estimate has written:\n%s", diff)
	}
}

// bringOver writes units as a sync would, with their lineage.
func bringOver(t *testing.T, dir transform.Direction, from, to side, units []transform.GroupID) {
	t.Helper()
	r := transform.Resolver{Direction: dir, Source: from, Target: to, From: transform.View{Tokens: from.toks}, To: transform.View{Tokens: to.toks}, Epoch: 1, Apart: map[transform.GroupID]bool{}}
	for len(units) > 0 {
		cs, left, err := r.Resolve(t.Context(), units)
		if err != nil {
			t.Fatal(err)
		}
		batch := record.Batch{Tokens: to.toks, Epoch: 1}
		for i := range cs {
			batch.Groups = append(batch.Groups, cs[i].Write)
		}
		if _, err := to.Apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		units = left
	}
}

// all is every record of a side.
func (s side) all(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for kind, tok := range s.toks {
		page, err := s.Scan(context.Background(), record.ScanRequest{Token: tok, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			out[kind+"/"+r.Key.String()] = r.Doc.String()
		}
	}
	return out
}
