package databases

import (
	"strings"
	"testing"

	"dbcontroller.dev/config"
)

// TestScratchDatabaseIsQuiet: what is done in one is not felt elsewhere on its server.
func TestScratchDatabaseIsQuiet(t *testing.T) {
	t.Parallel()
	s := scratchOf(config.DB{Backend: "mongo", Database: "old_dbcrehearsal", Endpoint: config.NewSecret("mongodb://db1")}, Config{App: "test"})
	if cfg, ok := s.(mongoScratch); !ok || cfg.URI != "mongodb://db1" || cfg.Database != "old_dbcrehearsal" || !cfg.Quiet {
		t.Errorf("%+v", s)
	}
}

// TestRoles: a script has the clusters and prefixes, the scratch databases of those who
// rehearse, and of etcd nothing for an application, which has no login there. An application has
// the collections of its kinds alone, and no role where it has none.
func TestRoles(t *testing.T) {
	t.Parallel()
	mongo := config.DB{Backend: "mongo", APIVersion: "v1", Database: "shop_v1", Endpoint: config.NewSecret("mongodb://u:secret@db1")}
	etcd := config.DB{Backend: "etcd", Database: "/shop/v2", Etcd: config.Etcd{Endpoints: []string{"http://etcd1:2379"}}}
	again := mongo
	again.APIVersion, again.Database = "v3", "shop_v3"
	kinds := map[string][]string{"v1": {"orders"}, "v2": {"orders"}, "v3": {"orders", "lines"}}
	for _, tc := range []struct {
		part    Part
		scratch bool
		want    map[string]bool
	}{
		{"controller", true, map[string]bool{"// On db1:27017:": true, "shop_v3_dbcrehearsal": true, "grant-permission dbcontroller-controller --prefix=true readwrite /shop/v2/\n": true, "readwrite /shop/v2_dbcrehearsal/\n": true}},
		{"controller", false, map[string]bool{"// On db1:27017:": true, "dbcrehearsal": false, "etcdctl role grant": true}},
		{"server", true, map[string]bool{"dbcrehearsal": false, "etcdctl role grant": true}},
		{"application", true, map[string]bool{
			"// On db1:27017:": true, "etcdctl": false, `"db": "shop_v3",
        "collection": "lines"`: true, `"db": "shop_v1",
        "collection": "lines"`: false, `"actions": [
        "find"`: true,
		}},
	} {
		text, err := Roles([]config.DB{etcd, mongo, again}, kinds, tc.part, tc.scratch)
		if err != nil || strings.Contains(text, "secret") {
			t.Errorf("%s: %v in %s", tc.part, err, text)
		}
		for part, want := range tc.want {
			if strings.Contains(text, part) != want {
				t.Errorf("%s: %q: want it: %t, in %s", tc.part, part, want, text)
			}
		}
	}
}

// TestNoRoleWithoutKinds: an application of a service whose kinds are all managed has no login.
func TestNoRoleWithoutKinds(t *testing.T) {
	t.Parallel()
	db := config.DB{Backend: "mongo", APIVersion: "v1", Database: "shop_v1", Endpoint: config.NewSecret("mongodb://db1")}
	text, err := Roles([]config.DB{db}, nil, "application", false)
	if err != nil || strings.Contains(text, "createRole") || !strings.Contains(text, "needs no login") {
		t.Errorf("%v in %s", err, text)
	}
}

// TestOthersRead: other programs read documents of MongoDB, and what is in etcd they cannot.
func TestOthersRead(t *testing.T) {
	t.Parallel()
	if uri, ok := Documents(config.DB{Backend: "mongo", Endpoint: config.NewSecret("mongodb://db1")}); !ok || uri.Reveal() != "mongodb://db1" {
		t.Errorf("MongoDB: %v", ok)
	}
	if _, ok := Documents(config.DB{Backend: "etcd"}); ok {
		t.Error("etcd has documents")
	}
}
