package controller

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	dt "dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// importing is a controller of books, whose records refer to those of another deployment.
func importing(t *testing.T, w dt.World, dbs ...string) *imports {
	t.Helper()
	i := Import{
		Import:  preflight.Import{Service: "places", Deployment: dt.Name, Older: "v1", Newer: "v2"},
		Backend: struct{ Backend }{},
	}
	conns := map[string]Connection{}
	for _, name := range dbs {
		i.Databases = append(i.Databases, Database{Version: name, APIVersion: upgradestate.APIVersion(name)})
		conns[name] = struct{ Connection }{}
	}
	return &imports{
		cfg:        Settings{File: "books.yaml", Imports: []Import{i}},
		deployment: deployment.New(w.Coord, "services/books/deployments/eu", deployment.Config{}),
		imported:   map[string]map[string]Connection{"places": conns}, log: zap.NewNop(),
	}
}

// asking is a data update that leaves keys of other records, and must look some of them up.
func asking(keys transform.Keys) transform.Task {
	return transform.Task{Name: "places-" + string(keys), Imports: []transform.Import{{Service: "places", Kind: "branches", Keys: keys, Asks: true}}}
}

// TestLookupsInAVersionThatEnds: a data update that must look keys up begins only while both versions
// have data. A version that ends later gives no answers, so that the update ends.
func TestLookupsInAVersionThatEnds(t *testing.T) {
	t.Parallel()
	w := dt.New(t).WithVersions(t)
	im := importing(t, w, "v1", "v2")
	may := func(im *imports, keys transform.Keys, want string) {
		t.Helper()
		err := im.mayFollow(t.Context(), asking(keys))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", keys, err, want)
		}
	}
	if err := importing(t, dt.New(t), "v1", "v2").mayFollow(t.Context(), asking(transform.BothKeys)); err == nil ||
		!strings.Contains(err.Error(), dt.Name+" has no data of v1 that its controllers keep: wait until its upgrade has begun") {
		t.Errorf("before the upgrade: %v", err)
	}
	w.SwitchTo(t, "u1", "v2")
	may(im, transform.NewKeys, "")
	may(im, transform.BothKeys, "")
	may(importing(t, w, "v2"), transform.NewKeys, "dbs of places has no entry of v1: add it to imports of books.yaml")

	w.Apply(t, upgradestate.Complete{Version: "v1"})
	may(im, transform.NewKeys, "update places-new: it looks keys of branches up, and v1 of "+dt.Name+" is retired")
	plain := asking(transform.NewKeys)
	plain.Imports[0].Asks = false
	if err := im.mayFollow(t.Context(), plain); err != nil {
		t.Errorf("without lookups: %v", err)
	}
	answers, err := im.FindKeys(t.Context(), []transform.Question{{Service: "places", Old: "branches", New: "branches", Key: record.StringKey("b/1"), Up: true}})
	if err != nil || len(answers) > 0 {
		t.Errorf("answers %v, %v", answers, err)
	}
}
