package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/config"
	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// TestKindsOverThreeVersions: each pair of versions has its kinds, and a chain goes over
// both, with what is carried.
func TestKindsOverThreeVersions(t *testing.T) {
	t.Parallel()
	c := clitest.Config(t, "shop", "v1 v2 v2@b v3", `
- {from: orders, to: sales, lens: one.yaml, versions: [v1, v2]}
- {from: sales, to: orders, lens: two.yaml, versions: [v2, v3]}
- {from: audit, discontinued: true, versions: [v1, v2]}
`)
	r, carries, err := Of(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ from, to, kinds string }{
		{"v1", "v2", "orders audit > sales"},
		{"v2@b", "v3", "sales > orders"},
		{"v2", "v2@b", "sales > sales"},
		{"v1", "v3", "orders audit > orders"},
		{"v3", "v1", "orders > orders audit"},
	} {
		d, err := r.Direction(tc.from, tc.to)
		if err != nil {
			t.Errorf("%s to %s: %v", tc.from, tc.to, err)
			continue
		}
		if got := kindNames(d.SourceKinds()) + " > " + kindNames(d.TargetKinds()); got != tc.kinds {
			t.Errorf("%s to %s: %s, want %s", tc.from, tc.to, got, tc.kinds)
		}
	}
	if carries[[2]string{"v1", "v2"}]["sales"].From != "orders" || carries[[2]string{"v2", "v3"}]["orders"].From != "sales" || len(carries) != 2 {
		t.Errorf("carried: %v", carries)
	}
}

func kindNames(ks []record.KindSpec) string {
	var names []string
	for _, k := range ks {
		names = append(names, k.Name)
	}
	return strings.Join(names, " ")
}

// TestNoWayOfAKind: what a pair of versions makes, the next one takes on.
func TestNoWayOfAKind(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ kinds, want string }{
		"nothing takes it": {
			"- {from: orders, to: sales, lens: one.yaml, versions: [v1, v2]}\n",
			"kinds: collection sales of v2 has no transform to v3: add an entry with from: sales and versions: [v2, v3], or one that is discontinued",
		},
		"nothing takes what a lens makes": {
			"- {from: orders, to: sales, lens: fan.yaml, versions: [v1, v2]}\n- {from: sales, to: sales, lens: two.yaml, versions: [v2, v3]}\n",
			"kinds: collection lines of v2 has no transform to v3",
		},
		"discontinued": {
			"- {from: orders, to: sales, lens: one.yaml, versions: [v1, v2]}\n- {from: sales, discontinued: true, versions: [v2, v3]}\n", "",
		},
		"new in the middle": {"- {from: sales, to: sales, lens: two.yaml, versions: [v2, v3]}\n", ""},
	} {
		_, _, err := Of(clitest.Config(t, "shop", "v1 v2 v3", tc.kinds), nil)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestKindsThatMove: a service of one version needs their names alone.
func TestKindsThatMove(t *testing.T) {
	t.Parallel()
	r, _, err := Of(clitest.Config(t, "shop", "v1 v1@b", "- {from: orders}\n- {from: audit, fence: validator}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Direction("v1", "v1@b")
	if err != nil {
		t.Fatal(err)
	}
	if got := kindNames(d.TargetKinds()); got != "orders audit" || !d.TargetKinds()[0].Fixed {
		t.Errorf("%+v move", d.TargetKinds())
	}
}

// TestKindsInEtcd: a name with a typo would say of no kind where its keys are.
func TestKindsInEtcd(t *testing.T) {
	t.Parallel()
	for versions, kinds := range map[string]string{"v1 v1@b": "- {from: orders}\n", "v1 v2": "- {from: sales, to: orders, lens: one.yaml}\n"} {
		cfg := clitest.Config(t, "shop", versions, kinds)
		cfg.DBs[1].Kinds = []config.EtcdKind{{Name: "orders", Prefix: "/orders"}}
		if _, _, err := Of(cfg, nil); err != nil {
			t.Errorf("%s: %v", versions, err)
		}
		cfg.DBs[1].Kinds[0].Name = "order"
		_, _, err := Of(cfg, nil)
		if want := "etcd.kinds of " + cfg.DBs[1].Version + ": order is not a kind of that version in kinds, which has: orders"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", versions, err, want)
		}
	}
}

// TestOwnTransformers: a service's own are in the registry of its configuration, beside
// lenses, and those of the samples are not.
func TestOwnTransformers(t *testing.T) {
	t.Parallel()
	own := func(r *transform.Registry) error { return r.Add("v1", "v2", secrets.Specs()...) }
	r, _, err := Of(clitest.Config(t, "tasks", "v1 v2", "- {from: orders, to: sales, lens: one.yaml}\n"), own)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	if got := kindNames(d.SourceKinds()); r.Service() != "tasks" || !strings.Contains(got, "orders") || len(d.SourceKinds()) < 2 {
		t.Errorf("service %s has %s", r.Service(), got)
	}
	bad := errors.New("not now")
	if _, _, err := Of(clitest.Config(t, "tasks", "v1 v2", ""), func(*transform.Registry) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("refused with %v", err)
	}
	if r, _, err := Of(clitest.Config(t, "bbs", "v1 v2", ""), nil); err != nil || len(r.Versions()) != 0 {
		t.Errorf("without any: %v, %v", r.Versions(), err)
	}
}

// configured writes lenses next to a configuration with these kinds, and reads it.
func configured(t *testing.T, kinds string, lenses map[string]string) config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range lenses {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Parse(filepath.Join(dir, "shop.yaml"), []byte(clitest.KindsConfig+kinds), nil)
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
	r, carries, err := Of(c, nil)
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
	_, carries, err := Of(c, nil)
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
			if _, _, err := Of(c, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

// TestUpdatesThatFollow: nobody can see the switches of a deployment that the configuration does not
// name.
func TestUpdatesThatFollow(t *testing.T) {
	t.Parallel()
	const (
		updates = "updates:\n- {name: new, kind: orders, version: v1, lens: follow.yaml, references: new, follow: true}\n"
		imports = "imports:\n- {service: places, deployment: services/places/deployments/eu, versions: [v1, v2]}\n"
	)
	lenses := map[string]string{
		"orders.yaml": "operations: []\n",
		"places.yaml": "kinds: {from: branches, to: branches}\nkey: {from: \"branches/{b}\", to: \"graz/branches/{b}\"}\noperations: []\n",
		"follow.yaml": "imports: {places: places.yaml}\noperations:\n  - reference: {field: branch, kind: branches, service: places}\n",
	}
	const kinds = "- {from: orders, to: orders, lens: orders.yaml}\n"
	want := "updates: new follows the switches of places by itself: name its deployment and versions in imports"
	if _, _, err := Of(configured(t, kinds+updates, lenses), nil); err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	r, _, err := Of(configured(t, kinds+updates+imports, lenses), nil)
	if err != nil {
		t.Fatal(err)
	}
	if task, err := r.Task("new"); err != nil || !task.Follow {
		t.Errorf("%+v, %v", task, err)
	}
	refused := func(c config.Config, want string) {
		t.Helper()
		if _, _, err := Of(c, nil); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	refused(configured(t, kinds+strings.Replace(updates, "orders", "order", 1)+imports, lenses), "updates: new cannot follow the switches of places by itself: v1 has no kind order")
	many := configured(t, kinds+updates+imports, lenses)
	for i := range 64 {
		u := many.Updates[0]
		u.Name = fmt.Sprint("new", i)
		many.Updates = append(many.Updates, u)
	}
	refused(many, "updates: more than 64 have follow: true: the record of the deployment has no room for more")

	// A key that must be looked up needs databases.
	lenses["places.yaml"] = "kinds: {from: branches, to: branches}\nkey: {from: \"branches/{b}\", to: \"{c}/branches/{b}\", with: {c: {field: city}}}\noperations: []\n"
	asking := configured(t, kinds+updates+imports, lenses)
	refused(asking, "updates: new looks keys of branches of places up: give its databases in imports[].dbs")
	asking.Imports[0].DBs = asking.DBs
	if _, _, err := Of(asking, nil); err != nil {
		t.Errorf("with databases: %v", err)
	}
}

// TestUpdatesThatDisturb: the upgrade's own lens would park what an update changes that follows.
func TestUpdatesThatDisturb(t *testing.T) {
	t.Parallel()
	lenses := map[string]string{
		"orders.yaml": "imports: {places: places.yaml}\noperations:\n  - reference: {field: branch, kind: branches, service: places}\n",
		"plain.yaml":  "operations: []\n",
		"places.yaml": "kinds: {from: branches, to: branches}\nkey: {from: \"branches/{b}\", to: \"graz/branches/{b}\"}\noperations: []\n",
	}
	const imports = "imports:\n- {service: places, deployment: services/places/deployments/eu, versions: [v1, v2]}\n"
	for _, tc := range []struct {
		kinds, kind, version string
		refused              bool
	}{
		{"- {from: orders, to: orders, lens: orders.yaml}\n", "orders", "v1", true},
		{"- {from: orders, to: orders, lens: orders.yaml}\n", "orders", "v2", true},
		{"- {from: orders, to: sales, lens: orders.yaml}\n", "orders", "v1", true},
		{"- {from: orders, to: sales, lens: orders.yaml}\n", "sales", "v2", true},
		// Another kind takes the name.
		{"- {from: orders, to: sales, lens: orders.yaml}\n- {from: logs, to: orders, lens: plain.yaml}\n", "orders", "v2", false},
	} {
		update := fmt.Sprintf("updates:\n- {name: new, kind: %s, version: %s, lens: orders.yaml, references: new, follow: true}\n", tc.kind, tc.version)
		_, _, err := Of(configured(t, tc.kinds+update+imports, lenses), nil)
		want := ""
		if tc.refused {
			want = "updates: new cannot follow the switches of places by itself: the upgrade from v1 to v2 changes the same references of " + tc.kind + " by its lens: leave follow out"
		}
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s of %s: error is %v, want %q", tc.kind, tc.version, err, want)
		}
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
