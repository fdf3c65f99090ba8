package vrunner

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/upgradestate"
)

// State is what the server announces about itself.
func (r *Runner) State() upgradestate.ServerState {
	_, held := r.gate.state()
	r.mu.Lock()
	defer r.mu.Unlock()
	var warnings []string
	if r.cfg.Warnings != nil {
		warnings = r.cfg.Warnings()
	}
	var keys map[string][]string
	if r.cfg.Keys != nil {
		keys = r.cfg.Keys()
	}
	return upgradestate.ServerState{
		ID: r.cfg.ID, Protocol: Protocol, Versions: slices.Sorted(maps.Keys(r.databases)),
		Active: r.record.CurrentVersion, Held: held, RestartMillis: r.restart,
		Since: r.since, Used: r.used, Warnings: warnings, Keys: keys,
	}
}

// acknowledge publishes the server's state whenever it changed, and, for a switch, that
// writes are held and those in flight are finished. A failure is tried again, with what is
// to be announced then: the switch does not need it, and serving goes on without etcd.
func (r *Runner) acknowledge(ctx context.Context) error {
	var said upgradestate.ServerState
	retry := newRetry()
	again := time.NewTimer(0)
	defer again.Stop()
	var failing time.Time // since when announcing fails; zero: it does not
	warned := false
	var sample <-chan time.Time
	if r.cfg.Usage != nil {
		every := time.NewTicker(usageEvery)
		defer every.Stop()
		sample = every.C
		r.sampleUsage()
	}
	var keys <-chan time.Time
	if r.cfg.Keys != nil {
		every := time.NewTicker(keysEvery)
		defer every.Stop()
		keys = every.C
	}
	for {
		r.mu.Lock()
		d, news := r.record, r.news
		r.mu.Unlock()
		s := r.State()
		if u := d.Upgrade; u != nil && u.State == upgradestate.Switching {
			select {
			case <-r.gate.drained():
				s.AckID, s.AckAttempt = u.ID, u.Attempt
			case <-news:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s.Held = 0 // changes all the time; the metrics have it
		again.Stop()
		// Before there is a Deployment as well: what servers know decides where it begins.
		if !reflect.DeepEqual(s, said) {
			switch err := r.deployments.Announce(ctx, s); {
			case err == nil:
				said, failing, warned = s, time.Time{}, false
				retry.Reset()
			case ctx.Err() != nil:
				return ctx.Err()
			default:
				if failing.IsZero() {
					failing = time.Now()
				}
				if !warned && time.Since(failing) >= unannouncedFor {
					warned = true
					r.log.Warn("state is not announced", zap.Duration("for", time.Since(failing)), zap.Error(err))
				}
				again.Reset(retry.NextBackOff())
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		case <-again.C:
		case <-keys:
		case <-sample:
			r.sampleUsage()
		}
	}
}

// unannouncedFor is how long announcing may fail before it is worth a warning: at its start a
// process has no lease yet to announce itself under, and nothing is wrong.
const unannouncedFor = 2 * time.Second

// keysEvery is how often a server checks whether it has other keys, which a rotation waits for.
const keysEvery = 2 * time.Second

// usageEvery is how often usage is checked, so that calls do not become writes to etcd.
const usageEvery = 30 * time.Second

func (r *Runner) sampleUsage() {
	since, used := r.cfg.Usage()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.used = since.UTC().Format(time.RFC3339), maps.Clone(used)
}
