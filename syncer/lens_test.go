package syncer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// lenses are of each kind: groups by name, re-keyed, of one and of several records on
// either side, and groups by content.
var lenses = map[string]string{
	"orders": `
key: {from: "orders/{o}", to: "regions/{r}/orders/{o}", with: {r: eu}}
operations:
  - fanOut: {field: lines, as: list, kind: order_lines, key: "{_key}/lines/{id}", id: sku, order: at, operations: [{add: {field: note, default: n}}]}
  - gather: {kind: payments, field: payment, as: object, key: "{_key}/payment"}
`,
	"docs": `
key: {from: "docs/{d}", to: "regions/{r}/docs/{d}", with: {r: {field: region}}}
operations:
  - fanOut: {field: lines, as: list, kind: doc_lines, key: "{id}", id: sku, parent: doc, order: at}
`,
	"people": `
operations:
  - gather: {kind: profiles, field: profile, as: object, key: "{item._id:any}", parent: person, unnamed: parent}
  - move: {from: profile.bio, to: bio}
`,
	"users": `
key: {from: "users/{u}", to: "regions/{r}/users/{u}", with: {r: eu}}
operations:
  - rename: {from: n, to: m}
`,
}

func lensSpecs(t *testing.T) (specs []transform.Spec) {
	t.Helper()
	for _, kind := range []string{"docs", "orders", "people", "users"} {
		l, err := lens.Parse(kind, []byte(lenses[kind]))
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, l.Spec(kind, kind, lens.Managed()))
	}
	return specs
}

// clientOfLenses writes all parts of groups at random, and deletes them.
type clientOfLenses struct {
	*world
	*rand.Rand
}

func (c clientOfLenses) mutation(kind, key string, fields ...bson.E) record.Mutation {
	doc, err := bson.Marshal(append(bson.D{{Key: "_id", Value: key}}, fields...))
	c.check(err)
	return record.Mutation{Kind: kind, Key: record.StringKey(key), Doc: doc}
}

// write changes one group. A line of docs belongs to one doc only.
func (c clientOfLenses) write() {
	c.t.Helper()
	kind, i := []string{"orders", "docs", "users", "people"}[c.IntN(4)], c.IntN(12)
	lines := bson.A{}
	for _, n := range c.Perm(4)[:c.IntN(4)] {
		lines = append(lines, bson.D{{Key: "sku", Value: fmt.Sprintf("%d-%d", i, n)}, {Key: "n", Value: c.IntN(9)}})
	}
	ms := []record.Mutation{c.mutation(kind, fmt.Sprintf("%s/%d", kind, i), bson.E{Key: "lines", Value: lines}, bson.E{Key: "n", Value: c.IntN(9)},
		bson.E{Key: "region", Value: []string{"eu", "us"}[c.IntN(2)]})}
	if kind == "orders" {
		ms = append(ms, c.mutation("payments", fmt.Sprintf("%s/%d/payment", kind, i), bson.E{Key: "sum", Value: c.IntN(9)}))
		if c.IntN(3) == 0 {
			ms[1].Doc = nil
		}
	}
	if kind == "people" {
		// A profile has a name of its own, which may be that of its person, and another one may
		// take its place.
		person := fmt.Sprintf("people/%d", i)
		names := []string{person, fmt.Sprintf("p%d-1", i), fmt.Sprintf("p%d-2", i)}
		has := c.IntN(4)
		for n, name := range names {
			ms = append(ms, c.mutation("profiles", name, bson.E{Key: "person", Value: person}, bson.E{Key: "bio", Value: c.IntN(9)}))
			if n != has {
				ms[len(ms)-1].Doc = nil
			}
		}
	}
	if c.IntN(5) == 0 {
		for i := range ms {
			ms[i].Doc = nil
		}
	}
	c.check(c.src.Write(c.t.Context(), c.tokens("v1"), ms))
}

// TestLensesUnderTraffic: whatever clients do to all parts of a group while it is copied
// and followed, the target ends with exactly what the lens makes of the source.
func TestLensesUnderTraffic(t *testing.T) {
	for seed := range raced.Seeds(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lensesUnderTraffic(t, seed) })
		})
	}
}

func lensesUnderTraffic(t *testing.T, seed uint64) {
	specs := lensSpecs(t)
	r := transform.NewRegistry("lenses")
	if err := r.Add("v1", "v2", specs...); err != nil {
		t.Fatal(err)
	}
	w := worldOf(t, r)
	c := clientOfLenses{w, rand.New(rand.NewPCG(seed, 0))}
	traffic := func(writes int) {
		for range writes {
			c.write()
			<-time.After(time.Duration(c.IntN(20)) * time.Millisecond)
		}
	}
	traffic(60)
	a, b := w.engine(w.owner(0, 1), nil), w.engine(w.owner(2, 3), nil)
	traffic(100)
	w.begin()
	traffic(60)
	w.eventually("ready", w.allReady)
	want := map[string]string{}
	w.eventually("in sync with the source", func() bool {
		want = c.expected(specs)
		return len(w.parked()) == 0 && fmt.Sprint(c.held(specs)) == fmt.Sprint(want)
	})
	if len(want) < 30 {
		t.Errorf("only %d records: nothing was tested", len(want))
	}
	a.stop(t)
	b.stop(t)
}

// expected is what the transformers make of the source as it is now, from nothing.
func (c clientOfLenses) expected(specs []transform.Spec) map[string]string {
	out := map[string]string{}
	for _, s := range specs {
		groups := map[string]transform.Group{}
		for _, k := range s.Old.Kinds {
			for _, r := range c.records("v1", k.Name) {
				name, err := string(r.Key), error(nil)
				switch {
				case k.Content != nil:
					name, err = k.Content(r)
				case k.GroupOf != nil:
					name, err = k.GroupOf(r.Key)
				}
				c.check(err)
				groups[name] = transform.Group{Name: name, Records: append(groups[name].Records, r)}
			}
		}
		for _, g := range groups {
			transform.SortRecords(g.Records)
			made, err := s.Up(g, transform.Group{})
			c.check(err)
			for _, r := range made {
				out[r.Kind+" "+r.Key.String()] = c.text(r.Doc)
			}
		}
	}
	return out
}

// held is what the target holds.
func (c clientOfLenses) held(specs []transform.Spec) map[string]string {
	out := map[string]string{}
	for _, s := range specs {
		for _, k := range s.New.Kinds {
			for _, r := range c.records("v2", k.Name) {
				out[r.Kind+" "+r.Key.String()] = c.text(r.Doc)
			}
		}
	}
	return out
}

func (c clientOfLenses) records(version, kind string) []record.Record {
	db := c.src
	if version == "v2" {
		db = c.dst
	}
	recs, err := db.List(c.t.Context(), record.ListRequest{Token: c.tokens(version)[kind]})
	c.check(err)
	for i := range recs {
		recs[i].Kind = kind
	}
	return recs
}

// text is a document without the places of lines, which may have gaps where one was
// taken out, and with its fields in order.
func (c clientOfLenses) text(doc bson.Raw) string {
	elems, err := doc.Elements()
	c.check(err)
	var parts []string
	for _, e := range elems {
		if e.Key() != "at" {
			parts = append(parts, e.String())
		}
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}
