package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/upgradestate"
)

// TestLifeOfAnUpgrade goes through an upgrade as an operator does, by commands and under
// traffic: begun slowly and to hold, paused in the middle of the copy, resumed, switched
// when told to, and completed. In the end the old namespace is gone, and nothing else.
func TestLifeOfAnUpgrade(t *testing.T) {
	t.Parallel()
	raceProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{})
	tr := newTraffic(ctx, s, documents)
	first := s.controller("first", breakPoint{}).ready(ctx)
	s.controller("second", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "first", "second")
	tr.start(ctx, s.server("server", 0).ready(ctx))
	tr.awaitWrites(ctx, "v1", 10)
	api, _ := first.addresses()
	env := []string{"DBCONTROLLER_SERVER=" + api}
	dbc := func(args ...string) result {
		t.Helper()
		return execute(ctx, t, env, append(args, "--by", "ann@desk")...)
	}
	does := func(effect string, args ...string) {
		t.Helper()
		if r := dbc(args...); r.code != 0 || !strings.Contains(r.stderr, effect) {
			t.Fatalf("%v: %+v", args, r)
		}
	}

	does("will: hold at ready", "begin-upgrade", "deployment", "--target-version", "v2", "--hold", "--max-rate", "100")
	s.awaitCopied(ctx, func(copied, total int64, paused bool) bool { return copied > 0 })
	does("will: pause bulk work", "pause", "--reason", "backup")
	s.awaitCopied(ctx, func(copied, total int64, paused bool) bool { return paused })
	s.standsStill(ctx, tr)
	does("nothing: ", "pause", "--reason", "backup")
	does("will: resume", "resume")
	does("as fast as configured, not at most 100", "pace", "--max-rate", "0")

	s.await(ctx, "every shard ready", upgradestate.AllReady)
	tr.awaitWrites(ctx, "v1", tr.processes.count("v1")+50)
	if d, err := s.record.Get(ctx); err != nil || d.Upgrade == nil || d.Upgrade.State != upgradestate.InitialSyncing {
		t.Fatalf("it does not hold: %+v, %v", d.Upgrade, err)
	}
	does("will: switch from v1 to v2", "switch")
	d := s.await(ctx, "the flip", flipped("v2"))
	s.await(ctx, "the rollback", func(d upgradestate.Deployment) bool { return len(d.Available) > 0 })
	tr.awaitWrites(ctx, "v2", 50)

	old, _ := d.Namespace("v1")
	if old.Identity.Cluster == "" {
		t.Fatal("the cluster is not known")
	}
	confirm := s.name + "/" + old.Identity.Cluster + "/" + old.Location
	staging := s.name + "/replicaSet/" + bson.NewObjectID().Hex() + "/" + old.Location
	dbc("complete", "--version", "v1").refuses(t, "server server", "--ignore-usage")
	dbc("complete", "--version", "v1", "--ignore-usage").refuses(t, "this is final", "set collection", "--confirm "+confirm)
	dbc("complete", "--version", "v1", "--ignore-usage", "--keep-for", "0s").refuses(t, "this is final", "drop collection", "--confirm "+confirm)
	dbc("complete", "--version", "v1", "--ignore-usage", "--confirm", staging).refuses(t, `"`+staging+`" does not confirm it for v1 of this deployment`, "--confirm "+confirm)
	if now, err := s.record.Get(ctx); err != nil || now.Retire != nil {
		t.Fatalf("a refusal has begun it: %+v, %v", now.Retire, err)
	}
	done := []string{"complete", "--version", "v1", "--ignore-usage", "--confirm", confirm}
	does("will: set collection", done...)
	d = s.await(ctx, "the end of v1", func(d upgradestate.Deployment) bool { return slices.Contains(d.Retired, "v1") })
	does("nothing: v1 was retired already", done...)
	s.checkSetAside(ctx, old, d)
	does("will: drop the collections of v1 now", "complete", "--version", "v1", "--keep-for", "0s", "--confirm", confirm)
	s.await(ctx, "the drop of what was set aside", func(d upgradestate.Deployment) bool { return len(d.Kept) == 0 })
	names, err := s.db["v1"].ListCollectionNames(ctx, bson.D{{Key: "type", Value: bson.D{{Key: "$ne", Value: "view"}}}})
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "system.") }) {
		t.Errorf("v1 still has %v, %v", names, err)
	}
	dbc("rollback").refuses(t, "v1 was retired")

	// The configuration has it still: controllers that begin run all the same.
	s.controller("third", breakPoint{}).ready(ctx)
	tr.awaitWrites(ctx, "v2", tr.processes.count("v2")+50)
	d, err = s.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr.settle(ctx, d)
	checkHistory(t, execute(ctx, t, env, "history", "--json"), execute(ctx, t, env, "history"))
}

// checkSetAside reads every collection of a retired version by the name that it was set aside
// under, and that nothing else is left of it but what refuses late writers.
func (s *system) checkSetAside(ctx context.Context, was upgradestate.Namespace, d upgradestate.Deployment) {
	s.t.Helper()
	if len(d.Kept) != 1 || len(d.Kept[0].Namespace.Kinds) != len(was.Kinds) {
		s.t.Fatalf("kept is %+v", d.Kept)
	}
	filled := 0
	for _, k := range was.Kinds {
		name := upgradestate.RetiredName(was.Version, k)
		n, err := s.db[was.Version].Collection(name).CountDocuments(ctx, bson.D{})
		if err != nil {
			s.t.Fatal(err)
		}
		if n > 0 {
			filled++
		}
		names, err := s.db[was.Version].ListCollectionNames(ctx, bson.D{
			{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{k.Physical, k.Kind, name}}}},
			{Key: "type", Value: "collection"},
		})
		if err != nil || !slices.Equal(names, []string{name}) {
			s.t.Errorf("%s of %s is in %v, %v", k.Kind, was.Version, names, err)
		}
	}
	if filled == 0 {
		s.t.Error("all that was set aside is empty")
	}
}

// checkHistory reads who asked for what.
func checkHistory(t *testing.T, asJSON, asText result) {
	t.Helper()
	var asked []string
	entries, _ := asJSON.json(t)["history"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if entry["what"] == "drop" {
			continue // by the controller that leads
		}
		asked = append(asked, fmt.Sprint(entry["what"]))
		if entry["by"] != "ann@desk" || entry["at"] == "" {
			t.Errorf("entry %v", entry)
		}
	}
	if want := []string{"pace", "upgrade", "pause", "repeat", "resume", "pace", "switch", "complete", "repeat", "keep"}; !slices.Equal(asked, want) {
		t.Errorf("history %v, want %v", asked, want)
	}
	if text := asText.stdout; !strings.Contains(text, "SEAL_SOURCE") || !strings.Contains(text, "switched") {
		t.Errorf("history prints\n%s", text)
	}
}

// awaitCopied waits until the copy stands as wanted, with every shard reported, and returns
// how many records are copied.
func (s *system) awaitCopied(ctx context.Context, ok func(copied, total int64, paused bool) bool) int64 {
	s.t.Helper()
	var copied int64
	eventually(ctx, s.t, "the copy stands as wanted", func() error {
		ps, err := s.record.Progress(ctx)
		if err != nil {
			return err
		}
		var total int64
		held, paused := 0, true
		copied = 0
		for _, p := range ps {
			copied += p.Copied
			total += p.Total
			if p.Pace != "" {
				held++
			} else {
				paused = paused && p.State != "copying" // others have no bulk work
			}
		}
		paused = paused && held > 0
		if len(ps) < ring || !ok(copied, total, paused) {
			return fmt.Errorf("%d of %d, paused %t", copied, total, paused)
		}
		return nil
	})
	return copied
}

// inTheCopy waits until something is copied, and fails the test if that is all that was there
// before. What a controller takes for all may be less for a moment, and copied by then.
func (s *system) inTheCopy(ctx context.Context, before int64) {
	s.t.Helper()
	if copied := s.awaitCopied(ctx, func(copied, _ int64, _ bool) bool { return copied > 0 }); copied >= before {
		s.t.Fatalf("the copy is over before it was disturbed: %d records of %d", copied, before)
	}
}

// standsStill sees that the copy does not go on while writes do. Pages that were under way when it
// was paused may still come, late where the machine is busy, but not all of it.
func (s *system) standsStill(ctx context.Context, tr *traffic) {
	s.t.Helper()
	paused := func(_, _ int64, paused bool) bool { return paused }
	for now := int64(-1); now < documents; {
		stood := s.awaitCopied(ctx, paused)
		tr.awaitWrites(ctx, "v1", tr.processes.count("v1")+50)
		if now = s.awaitCopied(ctx, paused); now == stood && now < documents {
			return
		}
	}
	s.t.Error("the copy goes on although it is paused")
}
