package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/config"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

const kindsConfig = `
deployment: services/shop/deployments/eu
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "mongodb://db/"}}
- {namespace: shop/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "mongodb://db/"}}
kinds:
`

// configured writes lenses next to a configuration with these kinds, and reads it.
func configured(t *testing.T, kinds string, lenses map[string]string) config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range lenses {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Parse(filepath.Join(dir, "shop.yaml"), []byte(kindsConfig+kinds), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	orderLens = `
key: {from: "orders/{o}", to: "eu/orders/{o}"}
operations:
  - reference: {field: customer, kind: customers}
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{index}", parent: order}
`
	customerLens = `
key: {from: "customers/{c}", to: "eu/customers/{c}"}
operations: []
`
)

var oneStep = [2]string{"v1", "v2"}

func TestTransformersOfManyKinds(t *testing.T) {
	t.Parallel()
	c := configured(t, `
- {from: orders, to: orders, lens: orders.yaml, indexes: {lines: [{key: {order: 1}}, {key: {sku: 1}, name: by_sku, unique: true}]}}
- {from: customers, to: clients, lens: customers.yaml}
- {from: audit_log, discontinued: true}
`, map[string]string{"orders.yaml": orderLens, "customers.yaml": customerLens})
	r, carries, err := Transformers(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	up, err := r.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	kinds := func(specs []record.KindSpec) string {
		var names []string
		for _, k := range specs {
			if !k.Fixed {
				t.Errorf("%s is managed", k.Name)
			}
			names = append(names, k.Name)
		}
		return strings.Join(names, " ")
	}
	if got := kinds(up.SourceKinds()); got != "orders customers audit_log" {
		t.Errorf("old kinds: %s", got)
	}
	if got := kinds(up.TargetKinds()); got != "orders lines clients" {
		t.Errorf("new kinds: %s", got)
	}
	id, _, err := up.GroupOf("orders", record.StringKey("orders/1"))
	if err != nil {
		t.Fatal(err)
	}
	src := document(t, bson.D{{Key: "_id", Value: "orders/1"}, {Key: "customer", Value: "customers/ann"}, {Key: "lines", Value: bson.A{bson.D{{Key: "sku", Value: "a"}}}}})
	g := groupOf(id.Name, record.Record{Kind: "orders", Key: record.StringKey("orders/1"), Doc: src})
	out, err := up.Transform(id, g, groupOf(id.Name))
	if err != nil || len(out) != 2 || out[1].Doc.Lookup("customer").StringValue() != "eu/customers/ann" {
		t.Errorf("became %v, %v", out, err)
	}

	shape, err := carries[oneStep]["lines"].Shape(record.Shape{Options: document(t, bson.D{{Key: "capped", Value: true}})})
	if err != nil || shape.Options != nil || len(shape.Indexes) != 2 {
		t.Fatalf("shape of lines: %v, %v", shape, err)
	}
	for i, want := range []string{`{"key": {"order": {"$numberInt":"1"}},"name": "order_1","v": {"$numberInt":"2"}}`, `{"key": {"sku": {"$numberInt":"1"}},"name": "by_sku","unique": true,"v": {"$numberInt":"2"}}`} {
		if got := shape.Indexes[i].String(); got != want {
			t.Errorf("index %s, want %s", got, want)
		}
	}
	onLines := record.Shape{Indexes: []bson.Raw{document(t, bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "lines.sku", Value: 1}}}, {Key: "name", Value: "sku"}})}}
	if _, err := carries[oneStep]["orders"].Shape(onLines); err == nil || !strings.Contains(err.Error(), "declare the indexes of orders under kinds[].indexes") {
		t.Errorf("an index on what is no longer there: %v", err)
	}
}

func TestDeclaredIndexesReplaceThoseOfTheOldKind(t *testing.T) {
	t.Parallel()
	c := configured(t, "- {from: orders, to: orders, lens: orders.yaml, indexes: {orders: []}}\n- {from: customers, to: customers, lens: customers.yaml}\n",
		map[string]string{"orders.yaml": orderLens, "customers.yaml": customerLens})
	_, carries, err := Transformers(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	options := document(t, bson.D{{Key: "collation", Value: bson.D{{Key: "locale", Value: "de"}}}})
	shape, err := carries[oneStep]["orders"].Shape(record.Shape{Options: options, Indexes: []bson.Raw{document(t, bson.D{{Key: "key", Value: bson.D{{Key: "lines.sku", Value: 1}}}})}})
	if err != nil || len(shape.Indexes) != 0 || shape.Options.String() != options.String() {
		t.Errorf("shape %v, %v", shape, err)
	}
	validator := document(t, bson.D{{Key: "validator", Value: bson.D{{Key: "lines", Value: bson.D{{Key: "$type", Value: "array"}}}}}})
	if _, err := carries[oneStep]["orders"].Shape(record.Shape{Options: validator}); err == nil || !strings.Contains(err.Error(), "the validator uses lines") {
		t.Errorf("a validator of what is no longer there: %v", err)
	}
}

func TestTransformersRefuse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, kinds, want string }{
		{"reference to nothing", "- {from: orders, to: orders, lens: orders.yaml}", `orders.yaml:4:40: this service has no kind "customers"`},
		{"reference to a discontinued kind", "- {from: orders, to: orders, lens: orders.yaml}\n- {from: customers, discontinued: true}", "customers of this service is discontinued"},
		{"no lens", "- {from: orders, to: orders, lens: none.yaml}", "kinds: lens of orders: open"},
		{"indexes of a kind that is not made", "- {from: customers, to: clients, lens: customers.yaml, indexes: {customers: []}}", "kinds: indexes of customers: the lens of the kind with from: customers does not make this kind; it makes clients"},
		{"kind made twice", "- {from: orders, to: orders, lens: orders.yaml}\n- {from: customers, to: lines, lens: customers.yaml}", "kind lines of v2 is in spec orders and in spec customers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := configured(t, tc.kinds, map[string]string{"orders.yaml": orderLens, "customers.yaml": customerLens})
			if _, _, err := Transformers(c, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

func document(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func groupOf(name string, rs ...record.Record) transform.Group {
	return transform.Group{Name: name, Records: rs}
}
