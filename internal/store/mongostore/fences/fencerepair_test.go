package fences_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// lifts are what clients do to the view of a fence, such that its repair frees the kind's name between
// two operations.
var lifts = map[string]func(t *testing.T, b *storetest.Bench){
	"changed": func(t *testing.T, b *storetest.Bench) {
		t.Helper()
		b.Run(t, bson.D{{Key: "collMod", Value: "orders"}, {Key: "viewOn", Value: "nothing"}, {Key: "pipeline", Value: bson.A{}}})
	},
	"replaced": func(t *testing.T, b *storetest.Bench) {
		t.Helper()
		b.Run(t, bson.D{{Key: "drop", Value: "orders"}})
		b.Run(t, bson.D{{Key: "create", Value: "orders"}})
	},
}

// standingFence sets a view fence, and returns it as the record has it from then on.
func standingFence(t *testing.T, b *storetest.Bench) record.Fence {
	t.Helper()
	f := record.Fence{Class: record.FenceView, Token: b.Fixed(t, "orders"), To: "orders.n1"}
	if err := b.Fence(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	f.Token.Name = f.To
	return f
}

func viewStands(t *testing.T, b *storetest.Bench, f record.Fence) bool {
	t.Helper()
	own, err := b.CollectionNamed(t.Context(), f.Token.Kind)
	if err != nil {
		t.Fatal(err)
	}
	return own != nil && own.Type == "view" && own.FenceMark() == f.To && own.ViewOn() == f.To
}

// upheld repairs a fence, however busy the server is, and returns the collections set aside.
func upheld(t *testing.T, b *storetest.Bench, f record.Fence) (aside []string) {
	t.Helper()
	for n := 0; ; n++ {
		found, err := b.Uphold(t.Context(), f, nil)
		if err != nil && (n == tries || !conn.WorthRepeating(err)) {
			t.Fatal(err)
		}
		if err != nil {
			continue
		}
		for _, breach := range found {
			if breach.Aside != "" {
				aside = append(aside, breach.Aside)
			}
		}
		return aside
	}
}

// TestRepairOutlastsTheWaitForItsLock: between the operations of a repair more time passes than it may
// wait for its lock. The server goes on with them, so nobody takes the name.
func TestRepairOutlastsTheWaitForItsLock(t *testing.T) {
	for name, lift := range lifts {
		t.Run(name, func(t *testing.T) {
			w := storetest.Unreliable(t)
			f := standingFence(t, w.Bench)
			for n, ended := 1, true; ended; n++ { // on a busy machine its whole time can pass
				if n > tries {
					t.Fatal("the server ended each command")
				}
				lift(t, w.Bench)
				openGate(t, w.Bench, f)
				ended = pausedBeyondLockWait(t, w.Bench, func() error {
					if _, err := w.Uphold(t.Context(), f, nil); !conn.HeldUp(err) {
						return err
					}
					return nil
				}, w.Once)
				upheld(t, w.Bench, f)
			}
		})
	}
}

// TestRepairGoesOnWhenItsLockIsFree: a client's open transaction holds up a repair, which ends it. Until
// then inserts would pass the fence.
func TestRepairGoesOnWhenItsLockIsFree(t *testing.T) {
	for name, lift := range lifts {
		t.Run(name, func(t *testing.T) {
			w := storetest.Unreliable(t)
			w.Run(t, bson.D{{Key: "create", Value: "elsewhere"}})
			f := standingFence(t, w.Bench)
			lift(t, w.Bench)
			holder := openTransaction(t, w.Bench, "elsewhere", 1)
			upheld(t, w.Bench, f)
			if err := holder.CommitTransaction(t.Context()); !conn.HasCode(err, conn.CodeNoSuchTransaction) {
				t.Errorf("commit of what held up the repair: %v", err)
			}
			if !viewStands(t, w.Bench, f) {
				t.Error("the fence does not stand")
			}
		})
	}
}

// TestRepairEndedHalfway: the server ends a repair where the kind's name is free, and a waiting insert
// takes the name. The same check repairs that, and what was acknowledged is set aside.
func TestRepairEndedHalfway(t *testing.T) {
	for name, lift := range lifts {
		t.Run(name, func(t *testing.T) {
			b := storetest.Unreliable(t).Bench
			f := standingFence(t, b)
			acknowledged := map[string]bool{}
			// On a busy machine the further repair can be ended, too.
			for n, atOnce := 1, false; !atOnce; n++ {
				if n > tries {
					t.Fatal("no check repaired what it left")
				}
				id := fmt.Sprint("late", n)
				lift(t, b)
				openGate(t, b, f)
				err, refused := endedHalfway(t, b, id, func() error {
					_, err := b.Uphold(t.Context(), f, nil)
					atOnce = err != nil && viewStands(t, b, f)
					return err
				})
				t.Logf("the repair: %v; the insert: %v; the view stands: %v", err, refused, atOnce)
				switch {
				case refused == nil:
					acknowledged[id] = true
				case !conn.HasCode(refused, conn.CodeViewWrite):
					t.Fatal(refused)
				}
				for _, aside := range upheld(t, b, f) {
					for _, doc := range b.Docs(t, aside) {
						delete(acknowledged, doc.Lookup("_id").StringValue())
					}
				}
				if len(acknowledged) > 0 {
					t.Fatalf("lost: %v", acknowledged)
				}
			}
		})
	}
}
