package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/upgradestate"
)

// TestManyKinds takes a hundred collections of an application there and back. Nothing takes
// so long for each of them that a start, a switch or the proof of the rollback stands still. It
// runs by itself: hundreds of collections are made and removed, and with others at the same time it measures
// the machine.
func TestManyKinds(t *testing.T) { //nolint:paralleltest // see above
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	const kinds, documents = 100, 3
	name := func(i int) string { return fmt.Sprintf("kind%03d", i) }
	var section strings.Builder
	section.WriteString("\n")
	for i := range kinds {
		fmt.Fprintf(&section, "- {from: %[1]s, to: %[1]s, lens: packages.yaml}\n", name(i))
	}
	// How long the switch holds writes is the benchmark's. On a machine that is slow with
	// hundreds of renames one attempt after the other would pass the deadline.
	s := newSystem(ctx, t, settings{kinds: section.String(), toSwitch: "{maxLag: 3s, deadline: 60s}"})
	all := map[string]int{}
	for i := range kinds {
		docs := make([]any, documents)
		for j := range docs {
			docs[j] = packageDoc("v1", packageKey(j), 0)
		}
		if _, err := s.db["v1"].Collection(name(i)).InsertMany(ctx, docs); err != nil {
			t.Fatal(err)
		}
		all[name(i)] = documents
	}
	start := time.Now()
	s.controller("controller", breakPoint{}).ready(ctx)
	t.Logf("ready %v after its start", time.Since(start))
	for _, to := range []string{"v2", "v1"} {
		start = time.Now()
		s.beginTo(ctx, to)
		d := s.await(ctx, "the flip to "+to, flipped(to))
		t.Logf("to %s: %v, phases %v ms", to, time.Since(start), d.LastSwitch.Millis)
		s.awaitAll(ctx, to, all)
		// What is written there comes along to the next one.
		if _, err := s.db[to].Collection(name(kinds-1)).InsertOne(ctx, packageDoc(to, packageKey(all[name(kinds-1)]), 0)); err != nil {
			t.Fatal(err)
		}
		all[name(kinds-1)]++
	}
	// With so many, who upholds fences is still at the first ones while the last are opened.
	if breaches := s.await(ctx, "rest", func(upgradestate.Deployment) bool { return true }).Breaches; len(breaches) > 0 {
		t.Errorf("fences were put back that nobody had taken away: %+v", breaches)
	}
}
