package identity_test

import (
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestRebuildSeals: v2 is recovered while v1 keeps its name behind a mark, or is open. A seal or an
// opening of v1 may have died after it ended the mark that the recovered record knows. So v1 gets a
// new mark, and appliers can write behind it.
func TestRebuildSeals(t *testing.T) {
	for _, class := range []record.FenceClass{record.FenceWriteBlock, record.FenceValidator} {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/open=%t", class, open), func(t *testing.T) {
				t.Parallel()
				rebuildSeals(t, class, open)
			})
		}
	}
}

func rebuildSeals(t *testing.T, class record.FenceClass, open bool) {
	ctx := t.Context()
	w := newWorldWith(t, memstore.Options{FixedFence: record.FenceView}, map[string]record.FenceClass{"v1": class})
	noted := map[string]bool{}
	behind := func() upgradestate.Kind {
		t.Helper()
		ns, _ := w.d.Namespace("v1")
		k, ok := ns.Kind("packages")
		if !ok {
			t.Fatalf("no kind: %+v", w.d)
		}
		return k
	}
	token := func(mark string) record.Token {
		return record.Token{Kind: "packages", Name: "packages", ID: behind().ID, Fixed: true, Mark: mark}
	}
	apply := func(mark string) error {
		_, err := w.db["v1"].Apply(ctx, record.Batch{Tokens: record.Tokens{"packages": token(mark)}, Epoch: w.d.Epoch, Groups: []record.GroupWrite{{
			Group: "a", Version: record.Version{15: 1},
			Writes: []record.Write{{Kind: "packages", Key: record.StringKey("a"), Doc: must(bson.Marshal(bson.D{{Key: "_id", Value: "a"}}))}},
		}}})
		return err
	}
	mark := ""
	if !open {
		w.apply(upgradestate.Begin{ID: "first", TargetVersion: "v2", TransformHash: "h"})
		for w.step(noted) != "" {
		}
		if mark = behind().Mark(); mark == "" || w.d.CurrentVersion != "v2" {
			t.Fatalf("%s is current, and v1 is %+v", w.d.CurrentVersion, behind())
		}
		// An opening of v1 ends the mark and dies: the fence stands.
		f := record.Fence{Class: class, Token: token(""), To: mark, Ends: mark}
		w.ok(w.db["v1"].Unfence(ctx, f))
		f.Ends = ""
		w.ok(w.db["v1"].Fence(ctx, f))
		if err := apply(mark); !errors.Is(err, record.ErrFenced) {
			t.Fatalf("apply behind a mark that has ended: %v", err)
		}
	}
	e, err := identity.Gather(ctx, deploymentName, w.markers())
	w.ok(err)
	w.d, _, err = e.Rebuild("v2")
	w.ok(err)
	if p := behind().Pending; p == nil || p.Reason != upgradestate.PendingSeal {
		t.Fatalf("the recovered kind has no seal: %+v", behind())
	}
	for w.step(noted) != "" {
	}
	k := behind()
	if k.Pending != nil || k.Mark() == mark || k.Mark() == "" {
		t.Errorf("the kind has the mark %q, and had %q: %+v", k.Mark(), mark, k)
	}
	if err := apply(k.Mark()); err != nil {
		t.Errorf("apply behind the new mark: %v", err)
	}
}
