package identity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// swap has an application put another collection in the place of packages, or none.
func (w *world) swap(version string, put bool) (was, is string) {
	w.t.Helper()
	ctx := w.t.Context()
	ns, _ := w.d.Namespace(version)
	k, _ := ns.Kind("packages")
	foreign := w.db[version].Foreign()
	w.ok(foreign.Rename(ctx, "packages", "packages_old"))
	if put {
		w.ok(foreign.Insert(ctx, "packages_new", must(bson.Marshal(bson.D{{Key: "_id", Value: "new"}}))))
		w.ok(foreign.Rename(ctx, "packages_new", "packages"))
	}
	claims, err := w.db[version].Claims(ctx)
	w.ok(err)
	for _, c := range claims {
		if c.Kind == "packages" {
			is = c.Bearer
		}
	}
	return k.ID, is
}

// TestSwapped: a collection that an application puts in the place of its own is no mismatch, and
// nobody says that etcd was lost. It is found for controllers to follow. A recovery, if etcd is
// lost as well, leaves each collection where it is and serves the one with the name.
func TestSwapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	was, is := w.swap("v1", true)
	w.ok(w.check())
	found, err := identity.Replacements(t.Context(), w.d, w.db["v1"])
	w.ok(err)
	want := identity.Replaced{Version: "v1", Kind: "packages", Was: was, Away: "packages_old", Is: is}
	if len(found) != 1 || found[0] != want || is == "" || is == was {
		t.Fatalf("found %+v, want %+v", found, want)
	}
	e, err := identity.Gather(t.Context(), deploymentName, w.markers())
	w.ok(err)
	if rivals := e.Rivals("v1"); len(rivals) != 1 || rivals[0] != want {
		t.Errorf("rivals %+v", rivals)
	}
	d, notes, err := e.Rebuild("v1")
	w.ok(err)
	ns, _ := d.Namespace("v1")
	k, _ := ns.Kind("packages")
	if k.Physical != "packages" || k.Hidden || k.Pending != nil {
		t.Fatalf("a recovery would rename an older collection over a live one: %+v", k)
	}
	if text := strings.Join(notes, " "); !strings.Contains(text, was) || !strings.Contains(text, is) || !strings.Contains(text, "packages_old") {
		t.Errorf("notes %q", notes)
	}
	w.ok(identity.Announce(t.Context(), d, "r", w.markers()))
	w.ok(identity.Reclaim(t.Context(), d, w.markers()))
	d.Revision, w.d = w.d.Revision+1, d
	w.ok(identity.Finalize(t.Context(), d, w.markers()))
	w.ok(w.check())

	// What controllers do then.
	owner := record.Owner{Deployment: deploymentName, Version: "v1"}
	for range 2 { // one dies in between
		w.ok(w.db["v1"].Claim(t.Context(), record.Token{Kind: "packages", Name: "packages", ID: is, Fixed: true}, owner))
	}
	w.ok(w.check())
	w.apply(upgradestate.Replace{Collections: []upgradestate.Replaced{{Kind: "packages", Was: was, Is: is}}})
	w.ok(w.check())
	if found, err := identity.Replacements(t.Context(), w.d, w.db["v1"]); err != nil || len(found) > 0 {
		t.Errorf("still replaced: %+v, %v", found, err)
	}
}

// TestRenamedAway: while no collection has the name nothing is taken for it, and each message
// says where the collection is.
func TestRenamedAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceView)
	was, _ := w.swap("v1", false)
	w.ok(w.check())
	found, err := identity.Replacements(t.Context(), w.d, w.db["v1"])
	w.ok(err)
	if len(found) != 1 || found[0].Is != "" || !strings.Contains(found[0].String(), was+") was renamed to packages_old") || !strings.Contains(found[0].String(), "rename it back") {
		t.Fatalf("found %+v", found)
	}
	e, err := identity.Gather(t.Context(), deploymentName, w.markers())
	w.ok(err)
	if _, _, err := e.Rebuild("v1"); err == nil || !strings.Contains(err.Error(), "somebody else renamed collection") {
		t.Errorf("rebuilt of a collection that has another name: %v", err)
	}
	w.ok(w.db["v1"].Foreign().Rename(t.Context(), "packages_old", "packages"))
	if found, err := identity.Replacements(t.Context(), w.d, w.db["v1"]); err != nil || len(found) > 0 {
		t.Errorf("back, and %+v, %v", found, err)
	}
	ns, _ := w.d.Namespace("v1")
	k, _ := ns.Kind("accounts")
	w.ok(w.db["v1"].Foreign().Rename(t.Context(), k.Physical, "stolen"))
	var mismatch *identity.MismatchError
	if err := w.check(); !errors.As(err, &mismatch) || strings.Contains(err.Error(), "etcd") || !strings.Contains(err.Error(), "rename it back to "+k.Physical) {
		t.Errorf("a managed collection with a foreign name: %v", err)
	}
}

// stray is a database in which another collection bears the name of packages.
type stray struct{ record.Marker }

func (s stray) Claims(ctx context.Context) ([]record.Claim, error) {
	claims, err := s.Marker.Claims(ctx)
	for i := range claims {
		if claims[i].Kind == "packages" {
			claims[i].Bearer = newID
		}
	}
	return claims, err
}

// TestTwoCollections: where a fence has moved the collection away, and another one was made under
// its name, a recovery renames neither over the other and asks for a decision.
func TestTwoCollections(t *testing.T) {
	t.Parallel()
	refused := 0
	for stop := 1; ; stop++ {
		w := newWorld(t, record.FenceView)
		if !life(w, "", stop, func(int, string) {}) {
			break
		}
		markers := w.markers()
		for v, m := range markers {
			markers[v] = stray{m}
		}
		e, err := identity.Gather(t.Context(), deploymentName, markers)
		w.ok(err)
		current, _, err := e.Current("")
		w.ok(err)
		d, _, err := e.Rebuild(current)
		var two *identity.TwoCollectionsError
		if errors.As(err, &two) {
			if refused++; two.Live != newID || !strings.Contains(two.Error(), two.Fenced) {
				t.Errorf("stopped after %d: %v", stop, two)
			}
			continue
		}
		w.ok(err)
		ns, _ := d.Namespace(current)
		if k, _ := ns.Kind("packages"); k.Pending != nil || k.Hidden {
			t.Errorf("stopped after %d: it would be renamed over %s: %s", stop, newID, fmt.Sprintf("%+v", k))
		}
	}
	if refused == 0 {
		t.Error("no step has the collection moved away")
	}
}
