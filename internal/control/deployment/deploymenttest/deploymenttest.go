// Package deploymenttest creates deployments in a coordination store in memory, at the points of an
// upgrade where tests begin. It serves the tests of package deployment and its API. It moves no
// data and drives no upgrade. Begin with New.
//
// It is not for users and may change with any version.
package deploymenttest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Name is the name of a World's deployment.
const Name = "services/bbs.example.com/deployments/us-west2"

// World is one deployment with two versions and a fixed-name kind.
type World struct {
	Coord *memcoord.Store
	Store *deployment.Store
}

// New returns a World at v1 that knows no other version yet.
func New(t *testing.T) World {
	t.Helper()
	w := World{Coord: memcoord.New()}
	w.Store = deployment.New(w.Coord, Name, deployment.Config{})
	if _, err := w.Store.Create(t.Context(), "v1", 4); err != nil {
		t.Fatal(err)
	}
	return w
}

// WithVersions announces both versions and the upgrade between them.
func (w World) WithVersions(t *testing.T) World {
	t.Helper()
	w.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v1", Location: "mongo:dbc_v1", Identity: upgradestate.Identity{Cluster: "replicaSet/c1", Database: "d1"},
		Kinds: []upgradestate.Kind{{Kind: "packages", Fixed: true, Physical: "packages", ID: "a1", Fence: "view"}},
	}})
	w.Apply(t, upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
		Version: "v2", Location: "mongo:dbc_v2", Identity: upgradestate.Identity{Cluster: "replicaSet/c2", Database: "d2"},
		Kinds: []upgradestate.Kind{{Kind: "packages", Fixed: true, Physical: "packages.n1", ID: "b1", Fence: "view"}},
	}})
	w.Apply(t, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h1", Precopied: true}})
	return w
}

// Apply makes one transition. An error fails the test.
func (w World) Apply(t *testing.T, ev upgradestate.Event, conditions ...coord.Condition) upgradestate.Deployment {
	t.Helper()
	d, err := w.Store.Apply(t.Context(), ev, conditions...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Begin begins the upgrade u1 to v2.
func (w World) Begin(t *testing.T) upgradestate.Deployment {
	t.Helper()
	return w.Apply(t, upgradestate.Begin{ID: "u1", TargetVersion: "v2", TransformHash: "h1"})
}

// Switching moves the upgrade to SWITCHING, where servers must hold writes.
func (w World) Switching(t *testing.T) upgradestate.Deployment {
	t.Helper()
	w.Begin(t)
	w.Apply(t, upgradestate.Report{ID: "u1", State: upgradestate.InitialSyncing, Attempt: 1, Shards: []int{0, 1, 2, 3}})
	return w.Apply(t, upgradestate.StartSwitch{ID: "u1"})
}

// Flip runs a whole switch with a time in the past.
func (w World) Flip(t *testing.T) upgradestate.Deployment {
	t.Helper()
	return w.FlipAt(t, "2026-01-02T03:04:05Z")
}

// FlipAt is Flip at a given time, in RFC 3339.
func (w World) FlipAt(t *testing.T, at string) upgradestate.Deployment {
	t.Helper()
	w.Sealed(t)
	return w.Apply(t, upgradestate.Flip{ID: "u1", Switch: upgradestate.Switch{Millis: map[string]int64{"hold": 3, "flip": 2}, At: at}})
}

// Sealed runs a switch up to its flip.
func (w World) Sealed(t *testing.T) upgradestate.Deployment {
	t.Helper()
	w.Switching(t)
	d := w.Apply(t, upgradestate.Held{ID: "u1"})
	// Confirm each operation and report as controllers would, until the flip.
	for {
		for _, ns := range d.Namespaces {
			for _, k := range ns.Kinds {
				if k.Pending != nil {
					d = w.Apply(t, upgradestate.Confirmed{Version: ns.Version, Kind: k.Kind, To: k.Pending.To})
				}
			}
		}
		switch u := d.Upgrade; {
		case u.Step == upgradestate.StepDrain && len(u.ReadyShards) == 0:
			d = w.Apply(t, upgradestate.Report{ID: "u1", State: u.State, Attempt: u.Attempt, Fences: upgradestate.FenceNames(d), Shards: []int{0, 1, 2, 3}})
		case u.Step == upgradestate.StepDrain:
			d = w.Apply(t, upgradestate.Drained{ID: "u1"})
		case u.Step == upgradestate.StepSealSource && len(upgradestate.Actions(d)) == 1:
			if _, ok := upgradestate.Actions(d)[0].(upgradestate.Flip); ok {
				return d
			}
		}
	}
}

// SwitchTo runs a whole upgrade to a version, which opens it for clients.
func (w World) SwitchTo(t *testing.T, id, version string) upgradestate.Deployment {
	t.Helper()
	shards := []int{0, 1, 2, 3}
	w.confirm(t, w.Apply(t, upgradestate.Begin{ID: id, TargetVersion: version, TransformHash: "h1"}))
	w.Apply(t, upgradestate.Report{ID: id, State: upgradestate.InitialSyncing, Attempt: 1, Shards: shards})
	w.Apply(t, upgradestate.StartSwitch{ID: id})
	d := w.confirm(t, w.Apply(t, upgradestate.Held{ID: id}))
	w.Apply(t, upgradestate.Report{ID: id, State: upgradestate.Switching, Attempt: d.Upgrade.Attempt, Fences: upgradestate.FenceNames(d), Shards: shards})
	w.confirm(t, w.Apply(t, upgradestate.Drained{ID: id}))
	return w.confirm(t, w.Apply(t, upgradestate.Flip{ID: id, Switch: upgradestate.Switch{At: "2026-01-02T03:04:05Z"}}))
}

// confirm confirms all announced operations, also those that a confirmation announces.
func (w World) confirm(t *testing.T, d upgradestate.Deployment) upgradestate.Deployment {
	t.Helper()
	for again := true; again; {
		again = false
		for _, ns := range d.Namespaces {
			for _, k := range ns.Kinds {
				if k.Pending != nil {
					again = true
					d = w.Apply(t, upgradestate.Confirmed{Version: ns.Version, Kind: k.Kind, To: k.Pending.To, From: k.Pending.From})
				}
			}
		}
	}
	return d
}

// Key returns a key of a World's deployment.
func Key(rest string) string { return deployment.DefaultPrefix + "/" + Name + "/" + rest }

// Put stores a value without any condition, and returns the key as stored.
func Put(t *testing.T, c coord.Store, key, value string) coord.KV {
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

// Lock returns the condition that a key is still the one that was read.
func Lock(kv coord.KV) coord.Condition {
	return coord.Condition{Key: kv.Key, Create: true, Revision: kv.Create}
}

// Lease grants a lease of three seconds that ends with the test.
func Lease(t *testing.T, c coord.Store) coord.Lease {
	t.Helper()
	l, err := c.Grant(t.Context(), 3e9)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// Server returns the state of a server that knows v1 and v2, and serves v1.
func Server(id string) upgradestate.ServerState {
	return upgradestate.ServerState{ID: id, Protocol: upgradestate.MinProtocol, Versions: []string{"v1", "v2"}, Active: "v1"}
}

// Direction is the direction of a World's upgrade.
const Direction syncer.DirectionKey = "1-v1-v2-h1"

// Parked returns the i-th parked group of a shard.
func Parked(d syncer.DirectionKey, shard, i int) syncer.Parked {
	return syncer.Parked{
		Direction: d, Shard: shard, Kind: "packages", Key: fmt.Sprintf("p-%d", i),
		Group: fmt.Sprintf("g-%d", i), Version: "00ff", Error: "no such field",
	}
}

// Once returns a hook that applies fault to the first commit only.
func Once(fault memcoord.Fault) func([]coord.Condition, []coord.Op) memcoord.Fault {
	var mu sync.Mutex
	return func([]coord.Condition, []coord.Op) memcoord.Fault {
		mu.Lock()
		defer mu.Unlock()
		f := fault
		fault = memcoord.Deliver
		return f
	}
}
