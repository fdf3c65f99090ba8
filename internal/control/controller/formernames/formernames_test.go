package formernames

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// tellingNames tells what a test lets it.
type tellingNames struct {
	counts map[string]record.NameCount
	users  []record.NameUser
	asked  int
	err    error
}

func (n *tellingNames) NameCount(_ context.Context, name string) (record.NameCount, error) {
	c := n.counts[name]
	c.Reads++ // the look
	n.counts[name] = c
	return c, n.err
}

func (n *tellingNames) NameUsers(context.Context, []string) ([]record.NameUser, error) {
	n.asked++
	return n.users, nil
}

// TestNamesStillUsed: what was there before is no use, nor is the look; clients are asked for only
// while a name is used, each is noted once, and a server that begins to count anew is no use either.
func TestNamesStillUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &tellingNames{counts: map[string]record.NameCount{"orders": {Reads: 50, Writes: 7}, "lines": {}}, users: []record.NameUser{{Name: "orders", Application: "shop", Address: "10.0.0.7"}, {Name: "other"}}}
		w := &watcher{counts: map[string]record.NameCount{}, uses: map[string]*deployment.NameUse{}}
		look := func(reads, writes int64) {
			t.Helper()
			if err := w.count(t.Context(), n, "v1", []string{"orders", "lines"}, nil); err != nil {
				t.Fatal(err)
			}
			var u deployment.NameUse
			if w.uses["orders"] != nil {
				u = *w.uses["orders"]
			}
			if u.Reads != reads || u.Writes != writes || w.uses["lines"] != nil {
				t.Errorf("%d reads, %d writes, want %d, %d", u.Reads, u.Writes, reads, writes)
			}
		}
		use := func(reads, writes int64) {
			c := n.counts["orders"]
			c.Reads, c.Writes = c.Reads+reads, c.Writes+writes
			n.counts["orders"] = c
		}
		look(0, 0)
		look(0, 0)
		if n.asked > 0 {
			t.Error("clients are asked for although nobody is at it")
		}
		use(2, 1)
		look(2, 1)
		use(0, 3)
		look(2, 4)
		if users := w.uses["orders"].Users; len(users) != 1 || users[0].Application != "shop" || n.asked != 2*nameSamples {
			t.Errorf("met %+v in %d samples", users, n.asked)
		}
		n.counts["orders"] = record.NameCount{} // a restart
		look(2, 4)
		use(1, 0)
		look(3, 4)
		n.err = errors.New("not authorized")
		if err := w.count(t.Context(), n, "v1", []string{"orders"}, nil); err == nil {
			t.Error("a look that failed is none")
		}
	})
}

// TestManyNamesTakeTurns: of more names than a look reads, each is read by one of the next looks, and
// all that were used are shown, with as many users as fit into a value of etcd.
func TestManyNamesTakeTurns(t *testing.T) {
	t.Parallel()
	var kinds []upgradestate.Kind
	for i := range 2*mostNames + 50 {
		kinds = append(kinds, upgradestate.Kind{Kind: fmt.Sprintf("kind%03d", i), Fixed: true, Fence: "view", Fenced: "f"})
	}
	d := upgradestate.Deployment{CurrentVersion: "v2", LastSwitch: &upgradestate.Switch{From: "v1", To: "v2"}, Namespaces: []upgradestate.Namespace{{Version: "v1", Kinds: kinds}, {Version: "v2"}}}
	_, counted, _ := leftNames(d)
	if len(counted) != len(kinds) {
		t.Fatalf("%d names of %d are watched", len(counted), len(kinds))
	}
	w, read := &watcher{}, map[string]int{}
	for range 5 {
		some := w.turn(counted)
		if len(some) != mostNames {
			t.Errorf("a look reads %d names", len(some))
		}
		for _, name := range some {
			read[name]++
		}
	}
	for _, name := range counted {
		if read[name] != 2 {
			t.Errorf("%s was read %d times in five looks", name, read[name])
		}
	}
	if few := w.turn(counted[:7]); len(few) != 7 {
		t.Errorf("of 7 names %v are read", few)
	}
}

// TestNamesBehindValidators: nothing counts their uses, so that clients are looked for each time, and
// one that is met is shown.
func TestNamesBehindValidators(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &tellingNames{counts: map[string]record.NameCount{}}
		w := &watcher{counts: map[string]record.NameCount{}, uses: map[string]*deployment.NameUse{}}
		look := func() *deployment.NameUse {
			t.Helper()
			if err := w.count(t.Context(), n, "v1", nil, []string{"lines"}); err != nil {
				t.Fatal(err)
			}
			return w.uses["lines"]
		}
		if u := look(); u != nil || n.asked == 0 {
			t.Errorf("nobody is at it, and %+v is shown after %d samples", u, n.asked)
		}
		n.users = []record.NameUser{{Name: "lines", Application: "shop", Address: "10.0.0.7"}, {Name: "other"}}
		if u := look(); u == nil || u.Version != "v1" || u.Last == "" || len(u.Users) != 1 || u.Users[0].Application != "shop" {
			t.Errorf("shown is %+v", u)
		}
	})
}

// TestLeftNames are those of the version that the latest switch left, while a view or a validator refuses writes.
func TestLeftNames(t *testing.T) {
	t.Parallel()
	d := upgradestate.Deployment{
		CurrentVersion: "v2", LastSwitch: &upgradestate.Switch{From: "v1", To: "v2"},
		Namespaces: []upgradestate.Namespace{
			{Version: "v1", Location: "mongo:a", Kinds: []upgradestate.Kind{
				{Kind: "orders", Fixed: true, Fence: "view", Fenced: "orders.n1"}, {Kind: "lines", Fixed: true, Fence: "validator", Fenced: "lines.n1"}, {Kind: "managed"},
			}},
			{Version: "v2", Location: "mongo:b", Kinds: []upgradestate.Kind{{Kind: "orders", Fixed: true, Fence: "view"}}},
		},
	}
	if version, counted, sampled := leftNames(d); version != "v1" || !slices.Equal(counted, []string{"orders"}) || !slices.Equal(sampled, []string{"lines"}) {
		t.Errorf("%s: %v, %v", version, counted, sampled)
	}
	d.Upgrade = &upgradestate.Upgrade{}
	if _, counted, sampled := leftNames(d); len(counted)+len(sampled) > 0 {
		t.Errorf("while an upgrade runs: %v, %v", counted, sampled)
	}
}
