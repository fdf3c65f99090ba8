package syncer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	us "dbcontroller.dev/upgradestate"
)

// unmeasured does not tell how it is.
type unmeasured struct{}

func (unmeasured) Health(context.Context) (record.Health, error) {
	return record.Health{}, errors.New("not authorized")
}

type fromV1ToV2 struct{ transform.Direction }

func (fromV1ToV2) From() string { return "v1" }
func (fromV1ToV2) To() string   { return "v2" }
func (fromV1ToV2) Hash() string { return "h" }

// TestEveryReasonOfAShardHasACode: whatever keeps a shard from being ready comes with its code and
// the version that it is about, and is in the progress that is published.
func TestEveryReasonOfAShardHasACode(t *testing.T) {
	t.Parallel()
	id := transform.GroupID{}
	switching := func(step us.Step) func(*Engine, *shard) {
		return func(e *Engine, _ *shard) {
			e.record.Upgrade.State, e.record.Upgrade.Step = us.Switching, step
		}
	}
	for name, tc := range map[string]struct {
		make    func(e *Engine, s *shard)
		code    us.BlockCode
		version string
	}{
		"ready":            {func(*Engine, *shard) {}, "", ""},
		"source":           {func(e *Engine, _ *shard) { e.replaced = "orders was dropped" }, us.BlockReplaced, "v1"},
		"source, observed": {func(e *Engine, _ *shard) { e.SourceLacks = func() string { return "orders was dropped" } }, us.BlockReplaced, "v1"},
		"transform":        {func(e *Engine, _ *shard) { e.record.Upgrade.TransformHash = "other" }, us.BlockTransform, ""},
		"copy":             {func(_ *Engine, s *shard) { s.todo = map[string]*rangeTask{"a/0": nil} }, us.BlockCopy, ""},
		"copy, paused": {func(e *Engine, s *shard) {
			s.todo = map[string]*rangeTask{"a/0": nil}
			e.Pacer.Set(us.Pace{Paused: true, Reason: "backup"}, 1)
		}, us.BlockPaused, ""},
		"copy, at another time of day": {func(e *Engine, s *shard) {
			s.todo = map[string]*rangeTask{"a/0": nil}
			now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			e.Pacer = throttle.New(throttle.Config{Window: "02:00-03:00", Now: func() time.Time { return now }})
		}, us.BlockWindow, ""},
		"copy, not measured": {func(e *Engine, s *shard) {
			s.todo = map[string]*rangeTask{"a/0": nil}
			e.Pacer = throttle.New(throttle.Config{Source: unmeasured{}})
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_ = e.Pacer.Wait(ctx, 0) // it measures, and ends with ctx
		}, us.BlockThrottled, ""},
		"parked": {func(e *Engine, _ *shard) { e.parked = map[transform.GroupID]Parked{id: {Shard: 0}} }, us.BlockParked, ""},
		"rescan": {func(_ *Engine, s *shard) { s.rescan = true }, us.BlockRescan, ""},
		"failing": {func(e *Engine, s *shard) {
			e.failing = map[transform.GroupID]failure{id: {since: time.Now()}}
			s.late[id] = lateEntry{}
		}, us.BlockFailing, ""},
		"loaders": {func(e *Engine, s *shard) {
			s.verified, e.record.Namespaces[1].Kinds[0].Pending = false, &us.Pending{}
		}, us.BlockPending, "v2"},
		"comparison":      {func(_ *Engine, s *shard) { s.verified = false }, us.BlockCompare, ""},
		"comparing":       {func(_ *Engine, s *shard) { s.verified, s.verify = false, []*rangeTask{nil} }, us.BlockCompare, ""},
		"different":       {func(_ *Engine, s *shard) { s.found = 1 }, us.BlockFound, ""},
		"target position": {func(_ *Engine, s *shard) { s.watched = record.Position{} }, us.BlockTargetPlace, "v2"},
		"foreign":         {func(_ *Engine, s *shard) { s.foreign = 1 }, us.BlockForeign, "v2"},
		"checkpoint":      {func(_ *Engine, s *shard) { s.stored = false }, us.BlockCheckpoint, ""},
		"indexes":         {func(e *Engine, _ *shard) { e.TargetLacks = func() string { return "index n_1" } }, us.BlockIndexes, "v2"},
		"slow":            {func(e *Engine, s *shard) { s.took = 2 * e.cfg.LagBound }, us.BlockLag, ""},
		"behind":          {func(_ *Engine, s *shard) { s.inSync = time.Time{} }, us.BlockLag, ""},
		"silent":          {func(_ *Engine, s *shard) { s.heard = time.Now().Add(-time.Minute) }, us.BlockStream, "v1"},
		"target silent":   {func(_ *Engine, s *shard) { s.watchedAt = time.Now().Add(-time.Minute) }, us.BlockTargetLook, "v2"},
		"settling":        {func(_ *Engine, s *shard) { s.inSync = time.Now() }, us.BlockSettling, ""},
		"late": {func(_ *Engine, s *shard) {
			s.late[id], s.late[transform.GroupID{Name: "b"}] = lateEntry{}, lateEntry{}
		}, us.BlockLate, ""},
		"held":     {switching(us.StepHold), "", ""}, // the switch waits for others
		"draining": {switching(us.StepDrain), us.BlockDrain, ""},
		"drained late": {func(e *Engine, s *shard) {
			switching(us.StepDrain)(e, s)
			e.record.Namespaces[0].Kinds[0].Fenced = ""
			s.late[id] = lateEntry{}
		}, us.BlockLate, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // its clock stands still: nothing becomes late meanwhile
				long := time.Now().Add(-time.Hour)
				s := &shard{
					verified: true, stored: true, inSync: long, heard: time.Now(), watchedAt: time.Now(),
					watched: record.Position{Token: []byte("p")}, late: map[transform.GroupID]lateEntry{},
				}
				e := &Engine{
					Parts: Parts{Direction: fromV1ToV2{}, Pacer: throttle.New(throttle.Config{})},
					cfg:   Config{Epoch: 1, Ring: 1, LagBound: time.Second, StableFor: time.Second, LateBound: 1},
					busy:  long, shards: map[int]*shard{0: s},
					record: us.Deployment{
						Epoch: 1, CurrentVersion: "v1", RingSize: 1,
						Upgrade:    &us.Upgrade{TargetVersion: "v2", TransformHash: "h", State: us.InitialSyncing},
						Namespaces: []us.Namespace{{Version: "v1", Kinds: []us.Kind{{Kind: "a", Fenced: "a.n1"}}}, {Version: "v2", Kinds: []us.Kind{{Kind: "b"}}}},
					},
				}
				tc.make(e, s)
				p := e.Progress()[0]
				if p.Code != tc.code || p.Version != tc.version {
					t.Errorf("code %q, version %q, want %q, %q: %s", p.Code, p.Version, tc.code, tc.version, p.WaitsFor)
				}
				if ready := name == "ready"; ready != (p.WaitsFor == "") {
					t.Errorf("waits for %q", p.WaitsFor)
				}
			})
		})
	}
}
