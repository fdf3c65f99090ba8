package syncer_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/syncer"
)

// Shards that come one after the other are all of them again and again, as far as they are there.
// What happens to them is said once, as that they came is.
func TestShardsThatComeSlowlyAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		core, lines := observer.New(zapcore.InfoLevel)
		o := w.owner(0)
		e := w.engine(o, func(p *syncer.Parts) { p.Log = zap.New(core) })
		copied := func(shards int) {
			w.eventually("they are copied", func() bool {
				there := 0
				for _, p := range e.engine.Progress() {
					if p.State != "copying" {
						there++
					}
				}
				return there == shards
			})
		}
		copied(1)
		for n := 1; n < ring; n++ {
			o.Take(n)
		}
		copied(ring)
		w.eventually("all are compared", e.synced)
		for _, what := range []string{"shards are adopted", "shards are copied", "shards are compared"} {
			w.eventually(what, func() bool { return lines.FilterMessage(what).Len() > 0 })
			if said := lines.FilterMessage(what).All(); len(said) != 1 {
				t.Errorf("%d lines say that %s: %v", len(said), what, said)
			}
		}
		e.stop(t)
	})
}
