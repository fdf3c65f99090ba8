package preflight

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// customers makes one record of all orders that name the same customer, and back. limit is
// how many it needs, so that an incomplete group fails.
func customers(needs int) transform.Spec {
	type order struct {
		ID       string `bson:"_id"`
		Customer string `bson:"customer"`
	}
	type customer struct {
		Name   string   `bson:"_id"`
		Orders []string `bson:"orders"`
	}
	return transform.Spec{
		Name: "customers", Revision: "1",
		Old: transform.Side{Kinds: []transform.GroupedKind{{
			KindSpec: record.KindSpec{Name: "orders", Fixed: true},
			Content: func(r record.Record) (string, error) {
				var o order
				err := bson.Unmarshal(r.Doc, &o)
				return string(record.StringKey(o.Customer)), err
			},
		}}},
		New: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "customers"}}}},
		Up: func(src, _ transform.Group) ([]record.Record, error) {
			if len(src.Records) != needs {
				return nil, fmt.Errorf("%d orders, want %d", len(src.Records), needs)
			}
			var c customer
			for _, r := range src.Records {
				var o order
				if err := bson.Unmarshal(r.Doc, &o); err != nil {
					return nil, err
				}
				c.Name, c.Orders = o.Customer, append(c.Orders, o.ID)
			}
			doc, err := bson.Marshal(c)
			return []record.Record{{Kind: "customers", Key: record.Key(src.Name), Doc: doc}}, err
		},
		Down: func(src, have transform.Group) ([]record.Record, error) {
			var out []record.Record
			for _, r := range src.Records {
				var c customer
				if err := bson.Unmarshal(r.Doc, &c); err != nil {
					return nil, err
				}
				for _, id := range c.Orders {
					d := bson.D{{Key: "_id", Value: id}, {Key: "customer", Value: c.Name}}
					for _, h := range have.Records {
						if v, err := h.Doc.LookupErr("n"); err == nil && h.Key == record.StringKey(id) {
							d = append(d, bson.E{Key: "n", Value: v})
						}
					}
					doc, err := bson.Marshal(d)
					if err != nil {
						return nil, err
					}
					out = append(out, record.Record{Kind: "orders", Key: record.StringKey(id), Doc: doc})
				}
			}
			return out, nil
		},
		DownNeedsHave: true,
	}
}

// copyAll brings everything over, with its lineage.
func (w *proofWorld) copyAll() {
	w.t.Helper()
	ctx := w.t.Context()
	dir, err := w.registry.Direction("v1", "v2")
	w.check(err)
	src, dst := syncer.Tokens(w.record, "v1"), syncer.Tokens(w.record, "v2")
	page, err := w.db["v1"].Scan(ctx, record.ScanRequest{Token: src["orders"], Limit: 1000})
	w.check(err)
	r := transform.Resolver{Direction: dir, Source: w.db["v1"], Target: w.db["v2"], From: transform.View{Tokens: src}, To: transform.View{Tokens: dst}, Epoch: 1}
	cs, left, err := r.Resolve(ctx, groupsOf(page.Records, dir.GroupOf))
	w.check(err)
	if len(left) > 0 {
		w.t.Fatalf("left to resolve: %v", left)
	}
	for i := range cs {
		_, err := w.db["v2"].Apply(ctx, record.Batch{Tokens: dst, Epoch: 1, Groups: []record.GroupWrite{cs[i].Write}})
		w.check(err)
	}
}

func customerOrders(n, each int) []any {
	docs := make([]any, n)
	for i := range docs {
		docs[i] = bson.D{{Key: "_id", Value: fmt.Sprintf("o-%03d", i)}, {Key: "customer", Value: fmt.Sprintf("c-%03d", i%(n/each))}, {Key: "n", Value: int32(i)}}
	}
	return docs
}

// TestProofByContent: groups are found whole through the lineage of the copy, and their
// records come back with what the new version does not know.
func TestProofByContent(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t, nil, nil, customerOrders(120, 3), customers(3))
	w.copyAll()
	found, err := w.proof(nil).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found.records < tripGroups || found.records%3 != 0 || found.skipped > 0 {
		t.Errorf("proved %+v", found)
	}
	if left := w.scratches(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestProofByContentFails when the way down forgets the complement.
func TestProofByContentFails(t *testing.T) {
	t.Parallel()
	spec := customers(3)
	spec.Reversal = transform.ReversalOwn // says what is not so; others are parked by the copy
	down := spec.Down
	spec.Down = func(src, _ transform.Group) ([]record.Record, error) { return down(src, transform.Group{}) }
	w := newProofWorld(t, nil, nil, customerOrders(120, 3), spec)
	w.copyAll()
	if _, err := w.proof(nil).run(t.Context()); err == nil || !strings.Contains(err.Error(), "differ after they are migrated there and back") {
		t.Errorf("error %v", err)
	}
}

// TestLineageNeedsSpace: a plan that only reads counts the lineage that a copy stores next to the
// target's documents. It is no document of the target, and not the largest one.
func TestLineageNeedsSpace(t *testing.T) {
	t.Parallel()
	w := newProofWorld(t, nil, nil, customerOrders(12, 3), customers(3))
	dir, err := w.registry.Direction("v1", "v2")
	w.check(err)
	info, err := w.db["v1"].Describe(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders")
	w.check(err)
	p := &plan{
		Planner: NewPlanner(PlannerParts{Space: func(version string) Space { return w.db[version] }}),
		dir:     dir, record: w.record, infos: map[string]record.Info{"orders": info},
	}
	w.check(p.measure(t.Context(), nil))
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "c-000"}, {Key: "orders", Value: bson.A{"o-000", "o-004", "o-008"}}})
	w.check(err)
	if documents := int64(4 * len(doc)); p.tried.made <= documents || p.tried.largest != int64(len(doc)) || p.tried.largestOf != "customers" {
		t.Errorf("%d bytes are made, with documents of %d; the largest has %d, of %s", p.tried.made, documents, p.tried.largest, p.tried.largestOf)
	}
}
