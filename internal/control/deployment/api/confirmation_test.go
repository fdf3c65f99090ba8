package api_test

import (
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"strings"
	"testing"

	"dbcontroller.dev/upgradestate"
)

// TestConfirmation names as much as is known, and says what is not.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		id          upgradestate.Identity
		want, lacks string
	}{
		{"cluster", upgradestate.Identity{Cluster: "replicaSet/c1", Database: "d1"}, name + "/replicaSet/c1/mongo:bbs", ""},
		{"no cluster", upgradestate.Identity{Database: "d1"}, name + "/database/d1/mongo:bbs", "the cluster of v1 is unknown"},
		{"an older binary's", upgradestate.Identity{}, name + "/mongo:bbs", "only deployment and database identify it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := upgradestate.Deployment{Name: name, Namespaces: []upgradestate.Namespace{
				{Version: "v2", Location: "mongo:other", Identity: upgradestate.Identity{Cluster: "replicaSet/c2"}},
				{Version: "v1", Location: "mongo:bbs", Identity: tc.id},
			}}
			confirm, lacks := api.Confirmation(d, "v1")
			if confirm != tc.want || !strings.Contains(lacks, tc.lacks) || (lacks == "") != (tc.lacks == "") {
				t.Errorf("%q, lacks %q", confirm, lacks)
			}
		})
	}
}

// TestCompleteWithoutACluster says how weak the confirmation is, and takes it.
func TestCompleteWithoutACluster(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	for v, physical := range map[string]string{"v1": "packages", "v2": "packages.n1"} {
		w.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{Version: v, Location: "mongo:dbc_" + v,
			Kinds: []upgradestate.Kind{{Kind: "packages", Fixed: true, Physical: physical, ID: v, Fence: "view"}}}})
	}
	w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h1", Precopied: true}})
	w.Flip(t)
	a := serve(t, w)
	a.fails(t, "Complete", `{"version": "v1", "keepForMs": "0"}`, "failed_precondition: complete: this is final: it would drop collection packages.n1 (packages) of mongo:dbc_v1; leave a view packages, so that applications that still use this name get an error; the database stays for the view; drop the state of copying to and from v1; no upgrade or rollback to v1 is possible afterwards; an older binary did not record the cluster of v1, so only deployment and database identify it; another cluster may have the same names; to do that, give --confirm "+name+"/mongo:dbc_v1")
	a.verb(t, "Complete", `{"version": "v1", "keepForMs": "0", "confirm": "`+name+`/mongo:dbc_v1"}`, "drop collection")
}
