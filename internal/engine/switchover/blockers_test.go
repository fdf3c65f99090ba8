package switchover_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/faultstore"
	us "dbcontroller.dev/upgradestate"
)

// lostDeployments refuse what they are told to, as a store does that is away.
type lostDeployments struct {
	spied
	parked, start bool
}

var errAway = errors.New("etcd is away")

func (l lostDeployments) Parked(ctx context.Context) (int, error) {
	if l.parked {
		return 0, errAway
	}
	return l.spied.Parked(ctx)
}

func (l lostDeployments) Apply(ctx context.Context, ev us.Event, conditions ...coord.Condition) (us.Deployment, error) {
	if _, ok := ev.(us.StartSwitch); ok && l.start {
		return us.Deployment{}, errAway
	}
	return l.spied.Apply(ctx, ev, conditions...)
}

// noPlace is a target whose changes have no place.
type noPlace struct{}

func (noPlace) Since(context.Context, string) (string, error) { return "", errors.New("no primary") }
func (noPlace) Changed(context.Context, us.Deployment) (func(context.Context, us.Deployment) error, error) {
	return nil, nil
}

// TestEveryReasonOfADriver is published with its code and place, while the upgrade waits for it and
// for nothing else.
func TestEveryReasonOfADriver(t *testing.T) {
	t.Parallel()
	at := func(version, kind string) us.BlockPlace { return us.BlockPlace{Version: version, Kind: kind} }
	down := func(version string, c faultstore.Command) func(*kindsOf) {
		return func(k *kindsOf) {
			k.inject = map[string]faultstore.Injector{version: faultstore.On(faultstore.Always(faultstore.Down()), c)}
		}
	}
	check := func(code us.BlockCode, p us.BlockPlace) func(*switchover.Config) {
		return func(c *switchover.Config) {
			c.Checks = manyChecks(func() []error { return []error{us.Blocked(code, p, errors.New("found"))} })
		}
	}
	for name, tc := range map[string]struct {
		kinds   func(*kindsOf)
		do      func(ctx context.Context, w *world)
		cfg     func(*switchover.Config)
		lost    lostDeployments
		pending bool // shards do not report
		code    us.BlockCode
		place   us.BlockPlace
	}{
		"shards":  {pending: true, code: us.BlockShards},
		"held":    {do: func(ctx context.Context, w *world) { w.apply(ctx, us.SetPolicy{Hold: ptr(true)}) }, code: us.BlockHeld},
		"paused":  {do: func(ctx context.Context, w *world) { w.apply(ctx, us.SetPace{Paused: ptr(true)}) }, code: us.BlockPaused},
		"parked":  {do: func(_ context.Context, w *world) { w.park(func(us.Deployment) int { return 1 }) }, code: us.BlockParked},
		"unknown": {lost: lostDeployments{parked: true}, code: us.BlockUncounted},
		"window":  {do: func(ctx context.Context, w *world) { w.apply(ctx, us.SetPace{Window: ptr("02:00-03:00")}) }, code: us.BlockWindow},
		"pause":   {do: func(ctx context.Context, w *world) { w.apply(ctx, us.SetPolicy{MaxPauseMillis: ptr(int64(1))}) }, code: us.BlockPause},
		"retry": {
			cfg: func(c *switchover.Config) {
				c.RetryWait, c.Checks = time.Hour, checks{seal: func(us.Deployment) error { return switchover.ErrPasses }}
			},
			code: us.BlockRetry,
		},
		"hindrance":  {do: func(_ context.Context, w *world) { w.db["v2"].Hinder("new", "an index build") }, code: us.BlockHindrance, place: at("v2", "new")},
		"unanswered": {kinds: down("v1", faultstore.Hindrances), code: us.BlockUnanswered, place: at("v1", "")},
		"prepare": {cfg: func(c *switchover.Config) {
			c.Checks = preparing{checks{}, func(us.Deployment) error { return errors.New("no TTL index stops") }}
		}, code: us.BlockPrepare, place: at("v2", "")},
		"fence":    {kinds: down("v1", faultstore.Ready), code: us.BlockFence, place: at("v1", "")},
		"position": {cfg: func(c *switchover.Config) { c.Target = noPlace{} }, code: us.BlockPosition, place: at("v2", "")},
		"step":     {lost: lostDeployments{start: true}, code: us.BlockStep},
		"replaced": {cfg: func(c *switchover.Config) {
			c.Waits = func() []us.Blocker {
				return []us.Blocker{{Code: us.BlockReplaced, Text: "gone", Place: at("v1", "old")}}
			}
		}, code: us.BlockReplaced, place: at("v1", "old")},
		"servers":  {cfg: check(us.BlockServers, us.BlockPlace{Server: "s"}), code: us.BlockServers, place: us.BlockPlace{Server: "s"}},
		"indexes":  {cfg: check(us.BlockIndexes, at("v2", "new")), code: us.BlockIndexes, place: at("v2", "new")},
		"names":    {cfg: check(us.BlockNames, at("v2", "new")), code: us.BlockNames, place: at("v2", "new")},
		"proof":    {cfg: check(us.BlockProof, at("v1", "")), code: us.BlockProof, place: at("v1", "")},
		"identity": {cfg: check(us.BlockIdentity, at("v2", "")), code: us.BlockIdentity, place: at("v2", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kinds := simple
			if tc.kinds != nil {
				tc.kinds(&kinds)
			}
			inBubble(t, kinds, func(ctx context.Context, w *world) {
				if tc.do != nil {
					tc.do(ctx, w)
				}
				if !tc.pending {
					w.report(ctx, 0)
				}
				s := &said{}
				cfg := switchover.Config{Publish: s.publish}
				if tc.cfg != nil {
					tc.cfg(&cfg)
				}
				lost := tc.lost
				lost.spied = spied{deployment.ForDriver{Store: w.admin}, w}
				go func() { _ = switchover.New(lost, w.fencers, cfg, w.logger()).Run(ctx) }() // ends with ctx
				quiet(time.Minute)
				o, n := s.last()
				if d := w.get(ctx); d.Upgrade == nil || d.Upgrade.State != us.InitialSyncing {
					t.Fatalf("it does not wait: %+v", d.Upgrade)
				}
				if o == nil || len(o.Blockers) != 1 || o.Blockers[0].Code != tc.code || !o.Blockers[0].Place.Equal(tc.place) || len(o.WaitsFor) != 1 {
					t.Fatalf("readiness %+v, want %s in %+v", o, tc.code, tc.place)
				}
				if most := 70; n > most {
					t.Errorf("published %d times in a minute", n)
				}
			})
		})
	}
}
