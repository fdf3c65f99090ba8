package deployment_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"dbcontroller/coord"
	"dbcontroller/coord/memcoord"
	"dbcontroller/deployment"
	"dbcontroller/upgradestate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "services/bbs.example.com/deployments/us-west2"

// world is one deployment of two versions with a fixed-name kind, copied already.
type world struct {
	coord *memcoord.Store
	store *deployment.Store
}

func setup(t *testing.T) world {
	t.Helper()
	w := world{coord: memcoord.New()}
	w.store = deployment.New(w.coord, name, deployment.Config{})
	if _, err := w.store.Create(t.Context(), "v1", 4); err != nil {
		t.Fatal(err)
	}
	return w
}

// withVersions announces both versions and the upgrade between them.
func (w world) withVersions(t *testing.T) world {
	t.Helper()
	w.apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v1", Location: "mongo:dbc_v1", Identity: upgradestate.Identity{Cluster: "replicaSet/c1", Database: "d1"},
		Kinds: []upgradestate.Kind{{Kind: "packages", Fixed: true, Physical: "packages", ID: "a1", Fence: "view"}},
	}})
	w.apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v2", Location: "mongo:dbc_v2", Identity: upgradestate.Identity{Cluster: "replicaSet/c2", Database: "d2"},
		Kinds: []upgradestate.Kind{{Kind: "packages", Fixed: true, Physical: "packages.n1", ID: "b1", Fence: "view"}},
	}})
	w.apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h1", Ahead: true}})
	return w
}

func (w world) apply(t *testing.T, ev upgradestate.Event, conditions ...coord.Condition) upgradestate.Deployment {
	t.Helper()
	d, err := w.store.Apply(t.Context(), ev, conditions...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w world) begin(t *testing.T) upgradestate.Deployment {
	t.Helper()
	return w.apply(t, upgradestate.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h1"})
}

// switching brings the upgrade to SWITCHING, where servers are to hold.
func (w world) switching(t *testing.T) upgradestate.Deployment {
	t.Helper()
	w.begin(t)
	w.apply(t, upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{0, 1, 2, 3}})
	return w.apply(t, upgradestate.StartSwitch{ID: "u1"})
}

// flip goes through a whole switch, long ago.
func (w world) flip(t *testing.T) upgradestate.Deployment {
	t.Helper()
	return w.flipAt(t, "2026-01-02T03:04:05Z")
}

func (w world) flipAt(t *testing.T, at string) upgradestate.Deployment {
	t.Helper()
	w.switching(t)
	d := w.apply(t, upgradestate.Held{ID: "u1"})
	for d.CurrentVersion == "v1" {
		for _, ns := range d.Namespaces {
			for _, k := range ns.Kinds {
				if k.Pending != nil {
					d = w.apply(t, upgradestate.Confirmed{Version: ns.Version, Kind: k.Kind, To: k.Pending.To})
				}
			}
		}
		switch u := d.Upgrade; {
		case u.Step == upgradestate.StepDrain && len(u.ReadyShards) == 0:
			d = w.apply(t, upgradestate.Report{ID: "u1", State: u.State, Attempt: u.Attempt, Fences: upgradestate.FenceNames(d), Shards: []int{0, 1, 2, 3}})
		case u.Step == upgradestate.StepDrain:
			d = w.apply(t, upgradestate.Drained{ID: "u1"})
		case u.Step == upgradestate.StepSealSource && len(upgradestate.Actions(d)) == 1:
			if _, ok := upgradestate.Actions(d)[0].(upgradestate.Flip); ok {
				d = w.apply(t, upgradestate.Flip{ID: "u1", Switch: upgradestate.Switch{Millis: map[string]int64{"hold": 3, "flip": 2}, At: at}})
			}
		}
	}
	return d
}

func key(rest string) string { return deployment.DefaultPrefix + "/" + name + "/" + rest }

func put(t *testing.T, c coord.Store, key, value string) coord.KV {
	t.Helper()
	if _, err := c.Commit(t.Context(), nil, []coord.Op{{Key: key, Value: []byte(value)}}); err != nil {
		t.Fatal(err)
	}
	kv, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func lock(kv coord.KV) coord.Condition {
	return coord.Condition{Key: kv.Key, Create: true, Revision: kv.Create}
}

func lease(t *testing.T, c coord.Store) coord.Lease {
	t.Helper()
	l, err := c.Grant(t.Context(), 3e9)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}
