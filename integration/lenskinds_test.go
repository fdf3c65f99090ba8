package integration_test

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Collections of an application whose lenses change keys, follow references, make records
// of lists and lists of records: orders by name, docs by content.
const (
	ordersLens = `
key: {from: "orders/{o}", to: "regions/{r}/orders/{o}", with: {r: eu}}
operations:
  - reference: {field: customer, kind: customers}
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/lines/{id}", id: sku, order: position, parent: order}
  - gather: {kind: payments, field: payment, as: object, key: "{_key}/payment"}
`
	customersLens = `
key: {from: "customers/{c}", to: "regions/eu/customers/{c}"}
operations: []
`
	docsLens = `
key: {from: "docs/{d}", to: "regions/{region}/docs/{d}", with: {region: {field: region}}}
operations:
  - fanOut: {field: parts, as: list, kind: parts, key: "{id}", id: name, parent: doc, order: at}
`
	manyKinds = `
- {from: orders, to: orders, lens: packages.yaml, indexes: {lines: [{key: {order: 1, position: 1}, unique: true}]}}
- {from: customers, to: clients, lens: customers.yaml}
- {from: docs, to: docs, lens: docs.yaml}
- {from: audit, discontinued: true}
`
)

// TestLensesOfManyKinds takes fixed-name collections through a switch, in which records
// get other keys and become several, or one of several; and what the application then
// does to the parts is followed back.
func TestLensesOfManyKinds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{lens: ordersLens, kinds: manyKinds})
	s.write("customers.yaml", customersLens)
	s.write("docs.yaml", docsLens)
	const documents = 100
	c := collections{t}
	for i := range documents {
		c.insert(s.db["v1"], "orders", `{"_id":"orders/%d","customer":"customers/c","lines":[{"sku":"b"},{"sku":"a","n":1}]}`, i)
		c.insert(s.db["v1"], "payments", `{"_id":"orders/%d/payment","sum":%[1]d}`, i)
		c.insert(s.db["v1"], "docs", `{"_id":"docs/%d","region":"r%d","parts":[{"name":"p%[1]d"}]}`, i, i%2)
	}
	c.insert(s.db["v1"], "customers", `{"_id":"customers/c"}`)
	c.insert(s.db["v1"], "audit", `{"_id":1}`)
	s.controller("controller", breakPoint{}).ready(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))

	for kind, want := range map[string]int64{"orders": documents, "lines": 2 * documents, "clients": 1, "docs": documents, "parts": documents} {
		if n, err := s.db["v2"].Collection(kind).CountDocuments(ctx, bson.D{}); err != nil || n != want {
			t.Errorf("%s has %d documents, want %d (%v)", kind, n, want, err)
		}
	}
	for kind, want := range map[string]string{
		"orders":  `{"_id":"regions/eu/orders/7","customer":"regions/eu/customers/c","payment":{"sum":7}}`,
		"lines":   `{"_id":"regions/eu/orders/7/lines/a","order":"regions/eu/orders/7","position":1,"sku":"a","n":1}`,
		"clients": `{"_id":"regions/eu/customers/c"}`,
		"docs":    `{"_id":"regions/r1/docs/7"}`,
		"parts":   `{"_id":"p7","doc":"regions/r1/docs/7","at":0,"name":"p7"}`,
	} {
		c.has(s.db["v2"], kind, want)
	}
	if _, err := s.db["v2"].Collection("lines").InsertOne(ctx, bson.D{{Key: "_id", Value: "x"}, {Key: "order", Value: "regions/eu/orders/7"}, {Key: "position", Value: 1}}); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("the declared index is not there: %v", err)
	}

	// A line goes, a part moves to another doc, a payment changes within its order.
	c.ok(s.db["v2"].Collection("lines").DeleteOne(ctx, bson.D{{Key: "_id", Value: "regions/eu/orders/7/lines/b"}}))
	c.ok(s.db["v2"].Collection("parts").UpdateOne(ctx, bson.D{{Key: "_id", Value: "p7"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "doc", Value: "regions/r0/docs/8"}, {Key: "at", Value: 1}}}}))
	c.ok(s.db["v2"].Collection("orders").UpdateOne(ctx, bson.D{{Key: "_id", Value: "regions/eu/orders/8"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "payment.sum", Value: 80}}}}))
	eventually(ctx, t, "the old namespace to follow", func() error {
		for kind, want := range map[string][]string{
			"orders":   {`{"_id":"orders/7","customer":"customers/c","lines":[{"sku":"a","n":1}]}`},
			"payments": {`{"_id":"orders/8/payment","sum":80}`},
			"docs":     {`{"_id":"docs/7","region":"r1"}`, `{"_id":"docs/8","region":"r0","parts":[{"name":"p8"},{"name":"p7"}]}`},
		} {
			for _, w := range want {
				if err := c.find(s.db["v1"], kind, w); err != nil {
					return err
				}
			}
		}
		return nil
	})
	c.has(s.db["v1"], "audit", `{"_id":1}`)
}

// collections reads and writes documents as an application does, given as JSON.
type collections struct{ t *testing.T }

func (c collections) document(text string) (d bson.D) {
	c.t.Helper()
	if err := bson.UnmarshalExtJSON([]byte(text), false, &d); err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	return d
}

func (c collections) insert(db *mongo.Database, kind, format string, args ...any) {
	c.t.Helper()
	c.ok(db.Collection(kind).InsertOne(c.t.Context(), c.document(fmt.Sprintf(format, args...))))
}

func (c collections) ok(_ any, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// find compares a document with what is there, whatever the order of its fields.
func (c collections) find(db *mongo.Database, kind, want string) error {
	c.t.Helper()
	d := c.document(want)
	var got bson.D
	if err := db.Collection(kind).FindOne(c.t.Context(), bson.D{{Key: "_id", Value: d[0].Value}}).Decode(&got); err != nil {
		return fmt.Errorf("%s %v: %w", kind, d[0].Value, err)
	}
	fields := func(d bson.D) string {
		m := map[string]string{}
		for _, e := range d {
			m[e.Key] = fmt.Sprint(e.Value)
		}
		return fmt.Sprint(m)
	}
	if fields(got) != fields(d) {
		return fmt.Errorf("%s holds %s, want %s", kind, fields(got), fields(d))
	}
	return nil
}

func (c collections) has(db *mongo.Database, kind, want string) {
	c.t.Helper()
	if err := c.find(db, kind, want); err != nil {
		c.t.Error(err)
	}
}
