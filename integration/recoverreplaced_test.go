package integration_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/upgradestate"
)

// TestRecoverAfterReplacements: an application replaces its collections in each of the ways, then etcd
// loses everything, and 'recover' rebuilds the deployment: at rest, in a switch whose fence has moved
// the collection away, and after the switch. No older collection gets the name of a live one, neither
// from the command nor from the controller that starts then. Nothing is lost.
func TestRecoverAfterReplacements(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kinds := []string{}
	for k := range ways {
		kinds = append(kinds, fmt.Sprintf("{from: %s, to: %[1]s, lens: packages.yaml}", k))
	}
	r := &replacing{ctx: ctx, version: "v1", has: map[string]map[string]int{}}
	r.system = newSystem(ctx, t, settings{
		copy: "{auto: true, workers: 2}", toSwitch: "{deadline: 5m, maxLag: 3s}", service: "shop.example.com", kinds: "[" + strings.Join(kinds, ", ") + "]",
	})
	for k := range ways {
		r.has[k] = map[string]int{}
		for i := range 20 {
			r.has[k][fmt.Sprintf("d%03d", i)] = i
		}
		r.insert(k, r.has[k])
	}
	// recovers loses etcd, and has 'recover' rebuild the deployment from the databases.
	recovers := func(phase string) {
		t.Helper()
		r.etcdBecomes(ctx, nil)
		if res := r.recovered(ctx); res.code != 0 {
			t.Fatalf("recover %s: exit %d: %s", phase, res.code, res.stderr)
		}
	}
	first := r.controller("first", breakPoint{}).ready(ctx)
	r.awaitSync(ctx)
	r.kill(first)
	r.replace("at rest")
	was := r.identities()
	recovers("at rest")
	second := r.stepping("second").ready(ctx)
	r.follow("recovered at rest")
	r.stayed("recovered at rest", was)

	// The fence has moved the collections away. The application makes another one under one name.
	r.beginTo(ctx, "v2")
	for second.awaitReached(ctx) != string(upgradestate.StepDrain) {
		second.order(orderStep)
	}
	r.kill(second)
	const kind = "swapped"
	d, err := r.record.Get(ctx)
	r.ok(err)
	ns, _ := d.Namespace("v1")
	k, _ := ns.Kind(kind)
	if k.Physical == kind {
		t.Fatalf("no fence has moved %s away: %+v", kind, k)
	}
	r.ok(r.db().Collection(kind).Drop(ctx)) // the view
	r.has[kind] = map[string]int{"made in the switch": 1}
	r.insert(kind, r.has[kind])
	r.etcdBecomes(ctx, nil)
	was = r.identities()
	if res := r.recover(ctx); res.code == 0 || !strings.Contains(res.stderr, "two collections claim to be kind "+kind+" of v1: "+k.ID+", which a switch has moved to "+k.Physical) {
		t.Errorf("two collections: exit %d: %s", res.code, res.stderr)
	}
	r.stayed("refused in the switch", was)
	r.rename(k.Physical, kind+"_fenced")
	was = r.identities()
	recovers("in the switch")
	third := r.controller("third", breakPoint{}).ready(ctx)
	r.follow("recovered in the switch")
	r.stayed("recovered in the switch", map[string]string{kind: was[kind], kind + "_fenced": was[kind+"_fenced"]})

	r.begin(ctx)
	d = r.await(ctx, "the flip", flipped("v2"))
	r.awaitMarked(ctx, d.Epoch)
	r.kill(third)
	r.version = "v2"
	r.replace("after the switch")
	was = r.identities()
	recovers("after the switch")
	r.controller("fourth", breakPoint{}).ready(ctx)
	r.beginTo(ctx, "v1")
	r.await(ctx, "the flip back", flipped("v1"))
	r.version = "v1"
	r.follow("recovered after the switch")
	r.version = "v2"
	maps.DeleteFunc(was, func(name, _ string) bool { return ways[name] != nil }) // fenced by the switch back
	r.stayed("recovered after the switch", was)
}

// identities are the identities of the application's collections in the served version, by name.
func (r *replacing) identities() map[string]string {
	r.t.Helper()
	specs, err := r.db().ListCollectionSpecifications(r.ctx, bson.D{{Key: "type", Value: "collection"}})
	r.ok(err)
	ids := map[string]string{}
	for _, s := range specs {
		of, _, _ := strings.Cut(s.Name, "_")
		if ways[of] != nil {
			ids[s.Name] = fmt.Sprintf("%x", s.UUID.Data)
		}
	}
	return ids
}

// stayed checks that collections have their names and identities still.
func (r *replacing) stayed(phase string, want map[string]string) {
	r.t.Helper()
	now := r.identities()
	for name, id := range want {
		if now[name] != id {
			r.t.Errorf("%s: %s is collection %q, and was %q", phase, name, now[name], id)
		}
	}
	if len(want) == 0 {
		r.t.Errorf("%s: no collection to look for", phase)
	}
}
