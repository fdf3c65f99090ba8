package syncer_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
)

// TestOrphansAreParked: a target record whose key belongs to no group is seen by the
// comparison, blocks the switch, and does so no more once it is gone.
func TestOrphansAreParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write(w.src, "v1", mutation("c1", "bad-1", 1)) // no key of c1 that has a group
		w.write(w.src, "v1", mutation("c1", "good", 1))
		w.write(w.dst, "v2", mutation("c2", "good", 1))
		w.flip("")
		back := w.reverseSync()
		parked := func() []syncer.Parked {
			list, err := w.store.Parked(t.Context(), syncer.Key(2, w.back, 0), -1)
			w.check(err)
			return list
		}
		w.eventually("the orphan to be parked", func() bool { return len(parked()) > 0 })
		if p := parked(); len(p) != 1 || p[0].Kind != "c1" || p[0].Key != "bad-1" || !strings.Contains(p[0].Error, "in v1 alone") {
			t.Errorf("parked are %+v", p)
		}
		rep, err := verify.New(w.dst, w.src, w.back).Run(t.Context(), transform.View{Tokens: w.tokens("v2")}, transform.View{Tokens: w.tokens("v1")}, verify.Recheck{Tries: 1}, nil)
		w.check(err)
		if rep.Mismatched != 1 || len(rep.Examples) != 1 || !strings.Contains(rep.Examples[0], "c1 bad-1") {
			t.Errorf("verify reports %+v", rep)
		}
		w.write(w.src, "v1", record.Mutation{Kind: "c1", Key: record.StringKey("bad-1")})
		for i := range 5 { // the store shows what is a few writes old
			w.write(w.src, "v1", mutation("b1", "other", i))
		}
		w.eventually("the orphan to be forgotten", func() bool { return len(parked()) == 0 })
		back.stop(t)
	})
}
