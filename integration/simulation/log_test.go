package simulation_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// isAway fails every command while it is true, each time in other words.
type isAway struct{ *atomic.Bool }

func (a isAway) Inject(faultstore.Op) (f faultstore.Fault) {
	if a.Load() {
		f.Before = fmt.Errorf("asked at %s: %w: %w", time.Now(), record.ErrUnavailable, faultstore.ErrInjected)
	}
	return f
}

// TestLogOfManyShards: what happens to all shards is said once, and not once for each.
func TestLogOfManyShards(t *testing.T) {
	raced.Leave(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		core, logs := observer.New(zapcore.InfoLevel)
		s := unfounded(t, memory(), registry(), stack)
		s.shards, s.log = 256, zap.New(core)
		s.found(ctx)
		r, server := s.server(ctx, "server-a", nil)
		for i := range 1000 {
			request(t, r, http.MethodPut, fmt.Sprintf("item-%d", i), fmt.Sprintf("?n=%d&parts=1", i))
		}
		// said returns how many lines there were of what, and expects few of each.
		said := func(what string) {
			t.Helper()
			lines := map[string]int{}
			for _, l := range logs.TakeAll() {
				lines[l.Message]++
			}
			for message, n := range lines {
				if n > 12 {
					t.Errorf("%s: %d lines say %q", what, n, message)
				}
			}
			t.Logf("%s: %v", what, lines)
		}
		said("start")
		away := atomic.Bool{}
		c1 := s.controller(ctx, "controller-1", func(version string, ns record.Namespace) record.Namespace {
			return faultstore.Wrap(ns, isAway{&away})
		})
		pass(30 * time.Second)
		said("copy")
		away.Store(true)
		pass(10 * time.Minute)
		said("database away")
		away.Store(false)
		pass(2 * time.Minute)
		said("database there")
		c2 := s.controller(ctx, "controller-2", nil)
		pass(30 * time.Second)
		said("second controller")
		s.begin(ctx)
		s.await(ctx, "the flip", active("v2"))
		pass(30 * time.Second)
		said("switch")
		c2.kill()
		pass(30 * time.Second)
		said("takeover")
		_, err := s.admin.Apply(ctx, upgradestate.Begin{ID: "back", TargetVersion: "v1"})
		s.check(err)
		s.await(ctx, "the rollback", active("v1"))
		pass(30 * time.Second)
		said("rollback")
		c1.kill()
		server.kill()
	})
}
