package integration_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/upgradestate"
)

// Collections of a service with three versions: packages by name, docs by content at first.
const (
	topicLens = `lens: 1
operations:
  - rename: {from: category, to: topic}
`
	threeLens = `lens: 1
operations:
  - add: {field: three, value: 3}
`
	threeVersions = `
- {from: packages, to: packages, lens: packages.yaml, versions: [v1, v2]}
- {from: packages, to: packages, lens: topic.yaml, versions: [v2, v3]}
- {from: docs, to: docs, lens: docs.yaml, versions: [v1, v2]}
- {from: docs, to: docs, lens: three.yaml, versions: [v2, v3]}
- {from: parts, to: parts, lens: three.yaml, versions: [v2, v3]}
`
)

// chained is a system of three versions whose application writes its packages until stop.
type chained struct {
	*system
	*traffic
	documents int
}

func newChained(ctx context.Context, t *testing.T) chained {
	t.Helper()
	s := newSystem(ctx, t, settings{service: "shop", dbs: []string{"v1", "v2", "v3"}, kinds: threeVersions, copy: "{workers: 2}"})
	for name, text := range map[string]string{"topic.yaml": topicLens, "docs.yaml": docsLens, "three.yaml": threeLens} {
		s.write(name, text)
	}
	w := chained{s, newTraffic(ctx, s, 2*appClients*ownDocuments), 20}
	c := collections{t}
	for i := range w.documents {
		c.insert(s.db["v1"], "docs", `{"_id":"docs/%d","region":"r%d","parts":[{"name":"p%[1]d"}]}`, i, i%2)
	}
	s.controller("first", breakPoint{}).ready(ctx)
	s.controller("second", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "first", "second")
	ctx, w.stop = context.WithCancel(ctx)
	t.Cleanup(w.finish)
	for i := range appClients {
		app := &packageWriter{system: s, ledger: w.packages, rng: rand.New(rand.NewPCG(3, uint64(i)))}
		for j := range ownDocuments {
			app.live = append(app.live, packageKey(i*ownDocuments+j))
		}
		w.drive(ctx, func() { app.step(ctx) })
	}
	return w
}

// to upgrades, and checks what the docs have become.
func (w chained) to(ctx context.Context, version string) upgradestate.Deployment {
	t := w.system.t
	t.Helper()
	before := w.packages.count(version)
	start := time.Now()
	w.beginTo(ctx, version)
	d := w.system.await(ctx, "the flip to "+version, flipped(version))
	t.Logf("to %s: %s after begin-upgrade, phases %v", version, time.Since(start).Round(time.Millisecond), d.LastSwitch.Millis)
	w.traffic.await(ctx, version, before+10, w.packages)
	kinds := []string{"docs", "parts"}
	if version == "v1" {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		n, err := w.db[version].Collection(kind).CountDocuments(ctx, bson.D{})
		if err != nil || n != int64(w.documents) {
			t.Errorf("%s has %d %s, want %d (%v)", version, n, kind, w.documents, err)
		}
	}
	c := collections{t}
	switch version {
	case "v1":
		c.has(w.db["v1"], "docs", `{"_id":"docs/7","region":"r1","parts":[{"name":"p7"}]}`)
	case "v2":
		c.has(w.db["v2"], "parts", `{"_id":"p7","doc":"regions/r1/docs/7","at":0,"name":"p7"}`)
	case "v3":
		c.has(w.db["v3"], "parts", `{"_id":"p7","doc":"regions/r1/docs/7","at":0,"name":"p7","three":3}`)
	}
	return d
}

// TestChain goes over a version in one step and back, and then through it; the
// version that was left follows each time, and nothing is lost. What versions and directions
// leave behind does not grow with the number of switches, in the databases and in etcd.
func TestChain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	w := newChained(ctx, t)
	at := "v1"
	for _, version := range []string{"v3", "v1", "v2", "v3"} {
		d := w.to(ctx, version)
		if to, ok := upgradestate.Followed(d); ok && to.TargetVersion != at {
			t.Errorf("after the switch to %s, %s follows", version, to.TargetVersion)
		}
		w.inSync(ctx, w.traffic, at)
		if version == "v2" {
			// An upgrade to the third version that is aborted: the first one goes on to follow.
			w.beginTo(ctx, "v3")
			if _, err := w.record.Apply(ctx, upgradestate.Abort{Reason: "test"}); err != nil {
				t.Fatal(err)
			}
			d := w.system.await(ctx, "the abort", func(d upgradestate.Deployment) bool { return d.Upgrade == nil })
			if d.CurrentVersion != "v2" {
				t.Fatalf("%s serves, too early for the abort", d.CurrentVersion)
			}
			before := w.packages.count("v2")
			w.traffic.await(ctx, "v2", before+10, w.packages)
			w.inSync(ctx, w.traffic, "v1")
		}
		at = version
	}
	var before map[string]int
	for _, version := range []string{"v2", "v3", "v2"} {
		d := w.to(ctx, version)
		if version == "v2" {
			before = w.awaitLeftovers(ctx, d, before)
			t.Logf("there is: %v", before)
		}
		at = version
	}
	w.finish()
	w.settlePackages(ctx, at)
}

var sequence = regexp.MustCompile(`\.n[0-9]+$`)

// awaitLeftovers counts collections and keys by what they are, until everything of ended
// directions is gone and, with want, the counts are these.
func (w chained) awaitLeftovers(ctx context.Context, d upgradestate.Deployment, want map[string]int) (seen map[string]int) {
	t := w.system.t
	t.Helper()
	eventually(ctx, t, "what is left", func() error {
		seen = map[string]int{}
		for version, db := range w.db {
			names, err := db.ListCollectionNames(ctx, bson.D{})
			if err != nil {
				return err
			}
			ns, _ := d.Namespace(version)
			for _, name := range names {
				kind := sequence.ReplaceAllString(name, "")
				if _, ok := ns.Kind(strings.TrimPrefix(kind, "dbc_guards.")); !ok && !strings.HasPrefix(name, "system.") && name != "dbc_marks" && name != "dbc_owner" {
					return fmt.Errorf("%s has %s, which is of no kind of it", version, name)
				}
				seen[version+"/"+kind]++
			}
		}
		kvs, _, err := w.etcd.List(ctx, w.record.Root()+"/")
		if err != nil {
			return err
		}
		for _, kv := range kvs {
			key := strings.TrimPrefix(kv.Key, w.record.Root()+"/")
			what, of, _ := strings.Cut(key, "/")
			if what == "formernames" { // one at most, from when the leader has looked until the next upgrade
				continue
			}
			if what != "plans" && what != "checkpoints" && what != "parked" {
				seen[what]++
				continue
			}
			var epoch uint64
			if _, err := fmt.Sscanf(of, "%d-", &epoch); err != nil || epoch+2 < d.Epoch {
				return fmt.Errorf("key %s is of a direction that ended long ago (%v)", key, err)
			}
		}
		if want != nil && !maps.Equal(seen, want) {
			var more []string
			for _, what := range slices.Sorted(maps.Keys(seen)) {
				if seen[what] != want[what] {
					more = append(more, fmt.Sprintf("%s %d, was %d", what, seen[what], want[what]))
				}
			}
			return fmt.Errorf("it has changed: %v", more)
		}
		return nil
	})
	return seen
}
