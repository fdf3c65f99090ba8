package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/config"
	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// placed reads a configuration with a database for each name, which is a version and maybe
// a location, and with lenses that change nothing but rename a field.
func placed(t *testing.T, service, names, kinds string) config.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"one.yaml": "operations: [{rename: {from: a, to: b}}]\n",
		"two.yaml": "operations: [{rename: {from: b, to: c}}]\n",
		"fan.yaml": `operations: [{fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{index}"}}]` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("lens: 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "deployment: services/" + service + "/deployments/eu\ndbs:\n"
	for _, name := range strings.Fields(names) {
		version, location, moved := strings.Cut(name, "@")
		text += "- {namespace: x/" + name + ", backend: mongo, mongo: {endpoint: 'mongodb://db/'}, apiVersion: " + version
		if moved {
			text += ", location: " + location
		}
		text += "}\n"
	}
	c, err := config.Parse(filepath.Join(dir, "x.yaml"), []byte(text+"kinds:\n"+kinds), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestKindsOverThreeVersions: each pair of versions has its kinds, and a chain goes over
// both, with what is carried.
func TestKindsOverThreeVersions(t *testing.T) {
	t.Parallel()
	c := placed(t, "shop", "v1 v2 v2@b v3", `
- {from: orders, to: sales, lens: one.yaml, versions: [v1, v2]}
- {from: sales, to: orders, lens: two.yaml, versions: [v2, v3]}
- {from: audit, discontinued: true, versions: [v1, v2]}
`)
	r, carries, err := Transformers(c, nil)
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
		_, _, err := Transformers(placed(t, "shop", "v1 v2 v3", tc.kinds), nil)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestKindsThatMove: a service of one version needs their names alone.
func TestKindsThatMove(t *testing.T) {
	t.Parallel()
	r, _, err := Transformers(placed(t, "shop", "v1 v1@b", "- {from: orders}\n- {from: audit, fence: validator}\n"), nil)
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
		cfg := placed(t, "shop", versions, kinds)
		cfg.DBs[1].Kinds = []config.EtcdKind{{Name: "orders", Prefix: "/orders"}}
		if _, _, err := Transformers(cfg, nil); err != nil {
			t.Errorf("%s: %v", versions, err)
		}
		cfg.DBs[1].Kinds[0].Name = "order"
		_, _, err := Transformers(cfg, nil)
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
	r, _, err := Transformers(placed(t, "tasks", "v1 v2", "- {from: orders, to: sales, lens: one.yaml}\n"), own)
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
	if _, _, err := Transformers(placed(t, "tasks", "v1 v2", ""), func(*transform.Registry) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("refused with %v", err)
	}
	if r, _, err := Transformers(placed(t, "bbs", "v1 v2", ""), nil); err != nil || len(r.Versions()) != 0 {
		t.Errorf("without any: %v, %v", r.Versions(), err)
	}
}
