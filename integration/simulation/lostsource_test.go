package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestSourceLostInTheSwitch: somebody drops the collections of the version that is served in the middle
// of a switch, or a cluster that moves them makes them anew. Nothing can be given back then, but the
// attempt ends, so that the collections can be restored, or recovered; the report says what is gone.
func TestSourceLostInTheSwitch(t *testing.T) {
	for _, class := range []record.FenceClass{record.FenceUUID, record.FenceView, record.FenceValidator} {
		for _, m := range cases([]moment{{"fence v1", 0}, {"fenced v1", 0}, {"at DRAIN", 0}, {"to SEAL_SOURCE", 0}, {"at SEAL_SOURCE", 0}}) {
			t.Run(fmt.Sprintf("%s/%s", class, m), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { loseSource(t, class, m) })
			})
		}
	}
}

func loseSource(t *testing.T, class record.FenceClass, m moment) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var s *system
	if class == record.FenceUUID {
		s = newSystem(ctx, t)
	} else {
		s = newForeignSystem(ctx, t, class, anyIDs()).system
	}
	s.quiet()
	lost := make(chan struct{})
	tp := &trap{moment: m, spring: func(*process) {
		v1 := s.db["v1"].(*memstore.Store)
		d := must(s.admin.Get(ctx))
		ns, _ := d.Namespace("v1")
		for _, k := range ns.Kinds {
			at := must(v1.Locate(ctx, k.ID))
			s.check(v1.Drop(ctx, record.Token{Kind: k.Kind, Name: at, ID: k.ID, Fixed: k.Fixed}))
		}
		close(lost)
	}}
	c := s.controllerProcess(ctx, "controller-1", tp.wrap)
	s.begin(ctx)
	soon(t, lost)
	pass(2 * time.Minute) // as many attempts as there are
	d := must(s.admin.Get(ctx))
	switch u := d.Upgrade; {
	case d.CurrentVersion == "v2": // everything was there before the source was dropped
	case u != nil && u.State == upgradestate.Switching:
		t.Errorf("the switch stands in step %s", u.Step)
	case u != nil:
		if why := s.whyNot(ctx); !strings.Contains(why, "no collection has its name") && !strings.Contains(why, "its mark lacks collection ") {
			t.Errorf("what is shown: %s", why)
		}
	}
	cancel()
	c.kill()
}
