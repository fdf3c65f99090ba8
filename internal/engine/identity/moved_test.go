package identity_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// moved is a database whose managed kind was made anew, as a sharded cluster does it. What
// the test claims of the new collection is remembered.
type moved struct {
	record.Marker
	name  string // that the new collection bears
	claim *record.Token
}

const newID = "00000000000000000000000000000abc"

func (m *moved) Claims(ctx context.Context) ([]record.Claim, error) {
	claims, err := m.Marker.Claims(ctx)
	for i := range claims {
		if c := &claims[i]; c.Kind == "accounts" {
			if m.claim != nil {
				c.ID, c.Name = m.claim.ID, m.name
				continue
			}
			c.Name, c.Instead, c.InsteadName = "", newID, m.name
		}
	}
	return claims, err
}

func (m *moved) Claim(ctx context.Context, tok record.Token, owner record.Owner) error {
	if tok.Kind == "accounts" {
		m.claim = &tok
		return nil
	}
	return m.Marker.Claim(ctx, tok, owner)
}

// TestMovedCollection: a collection that was made anew under its name is distinguished from
// one that is gone, refused, and taken for the old one by a recovery, also by one that died
// in the middle. One under another name of the kind is not.
func TestMovedCollection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, record.FenceValidator)
	ns, _ := w.d.Namespace("v1")
	k, _ := ns.Kind("accounts")
	at := &moved{Marker: w.db["v1"], name: k.Physical}
	markers := w.markers()
	markers["v1"] = at
	err := identity.Check(t.Context(), w, markers)
	var mismatch *identity.MismatchError
	if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), "movePrimary") || !strings.Contains(err.Error(), "run 'dbcontroller recover'") {
		t.Fatalf("error %v", err)
	}
	e, err := identity.Gather(t.Context(), deploymentName, markers)
	w.ok(err)
	anew, err := e.MadeAnew(w.d)
	w.ok(err)
	if len(anew) != 1 || anew[0] != (upgradestate.Adopted{Version: "v1", Kind: "accounts", Was: k.ID, Is: newID}) {
		t.Fatalf("made anew: %+v", anew)
	}
	older := upgradestate.Clone(w.d)
	older.Epoch--
	if _, err := e.MadeAnew(older); !errors.As(err, &mismatch) {
		t.Errorf("a deployment that is older than its databases is to be gone on with: %v", err)
	}
	for _, attempt := range []string{"first", "again"} {
		e, err := identity.Gather(t.Context(), deploymentName, markers)
		w.ok(err)
		d, notes, err := e.Rebuild("v1")
		w.ok(err)
		if attempt == "first" && !strings.Contains(strings.Join(notes, " "), newID+" under its name "+k.Physical+" is adopted") {
			t.Errorf("notes %q", notes)
		}
		ns, _ := d.Namespace("v1")
		if got, _ := ns.Kind("accounts"); got.ID != newID || got.Physical != k.Physical || d.Epoch != w.d.Epoch+1 && attempt == "first" {
			t.Fatalf("%s: %+v in epoch %d", attempt, got, d.Epoch)
		}
		w.ok(identity.Announce(t.Context(), d, "r-"+attempt, markers))
		w.ok(identity.Reclaim(t.Context(), d, markers))
		if attempt == "again" {
			d.Revision, w.d = w.d.Revision+1, d
			w.ok(identity.Finalize(t.Context(), d, markers))
			w.ok(identity.Check(t.Context(), w, markers))
		}
	}

	at.claim, at.name = nil, record.PhysicalName("accounts", 99)
	e, err = identity.Gather(t.Context(), deploymentName, markers)
	w.ok(err)
	if anew, err := e.MadeAnew(w.d); err == nil {
		t.Errorf("made anew under a name that the kind never had: %+v", anew)
	}
	if _, _, err := e.Rebuild("v1"); err == nil || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("a collection under a name that the kind never had is taken for it: %v", err)
	}
}

// TestAdoptedOnline: what was made anew is taken for the old one in a transition, also by
// one that goes on after another has died at any place of it.
func TestAdoptedOnline(t *testing.T) {
	t.Parallel()
	for died := range 4 {
		w := newWorld(t, record.FenceValidator)
		ns, _ := w.d.Namespace("v1")
		k, _ := ns.Kind("accounts")
		markers := w.markers()
		markers["v1"] = &moved{Marker: w.db["v1"], name: k.Physical}
		// attempt does the steps of the command 'recover', the first n of them.
		attempt := func(n int) {
			e, err := identity.Gather(t.Context(), deploymentName, markers)
			w.ok(err)
			anew, err := e.MadeAnew(w.d)
			if err != nil {
				t.Fatalf("died after %d: %v", died, err)
			}
			ev := upgradestate.Adopt{Epoch: w.d.Epoch, Collections: anew}
			d, err := upgradestate.Apply(w.d, ev)
			w.ok(err)
			for i, step := range []func(){
				func() { w.ok(identity.Announce(t.Context(), d, identity.RecoveryID+"x", markers)) },
				func() { w.ok(identity.Reclaim(t.Context(), d, markers)) },
				func() { w.apply(ev) },
				func() { w.ok(identity.Finalize(t.Context(), w.d, markers)) },
			} {
				if i < n {
					step()
				}
			}
		}
		attempt(died)
		if died < 3 {
			attempt(4)
		}
		w.ok(identity.Check(t.Context(), w, markers))
		if ns, _ := w.d.Namespace("v1"); func() bool { k, _ := ns.Kind("accounts"); return k.ID != newID }() {
			t.Errorf("died after %d: %+v", died, ns.Kinds)
		}
	}
}
