package vrunner

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"dbcontroller.dev/upgradestate"
)

// State returns the state that the server announces about itself.
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
	var prepares map[string]string
	if r.cfg.Prepares != nil {
		prepares = r.cfg.Prepares()
	}
	var copies []upgradestate.Copies
	if r.cfg.Copies != nil {
		copies = r.cfg.Copies()
	}
	var moves []upgradestate.Moves
	if r.cfg.Moves != nil {
		moves = r.cfg.Moves()
	}
	return upgradestate.ServerState{
		ID: r.cfg.ID, Protocol: Protocol, Versions: slices.Sorted(maps.Keys(r.databases)),
		Active: r.record.CurrentVersion, Held: held, RestartMillis: r.restart,
		Since: r.since, Used: r.used, Warnings: warnings, Keys: keys, Prepares: prepares, Copies: copies, Moves: moves,
	}
}

// acknowledge announces the server's state after each change. During a switch it announces only
// once the gate holds writes and none is in flight. It retries failures with the then current
// state. A failure stops nothing: the switch does not need the announcement, and requests do not
// need etcd.
func (r *Runner) acknowledge(ctx context.Context) error {
	var said upgradestate.ServerState
	retry := newRetry()
	again := time.NewTimer(0)
	defer again.Stop()
	var failing time.Time // when announcing began to fail; zero: it works
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
	var prepares <-chan time.Time
	if r.cfg.Prepares != nil || r.cfg.Copies != nil || r.cfg.Moves != nil {
		every := time.NewTicker(preparesEvery)
		defer every.Stop()
		prepares = every.C
	}
	for {
		r.mu.Lock()
		d, news := r.record, r.news
		r.mu.Unlock()
		s := r.State()
		// A hold counts only for this attempt of this upgrade, and only when no write is in flight.
		if u := d.Upgrade; u != nil && u.State == upgradestate.Switching {
			select {
			case <-r.gate.drained():
				s.AckID, s.AckAttempt = u.ID, u.Attempt
			case <-news:
				// The record changed, so this hold may be over. Look again.
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s.Held = 0 // changes all the time; the metrics report it
		// A pending retry would announce an outdated state.
		again.Stop()
		// Announce even before a Deployment exists: its first version depends on the servers'
		// versions.
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
				// At most one warning for each series of failures.
				if !warned && time.Since(failing) >= unannouncedFor {
					warned = true
					r.log.Warn("state is not announced", slog.Duration("for", time.Since(failing)), slog.Any("error", err))
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
		case <-prepares:
		case <-sample:
			r.sampleUsage()
		}
	}
}

// unannouncedFor is the time that announcing may fail before the server logs a warning. A process
// that has just started has no lease yet, so early failures are normal.
const unannouncedFor = 2 * time.Second

// keysEvery is the interval between checks of the process's keys. A key rotation waits for the
// result.
const keysEvery = 2 * time.Second

// preparesEvery is the interval between looks at what the process prepares. A switch waits for it.
const preparesEvery = 500 * time.Millisecond

// usageEvery is the interval between samples of usage. Without it, every call would cause a write
// to etcd.
const usageEvery = 30 * time.Second

func (r *Runner) sampleUsage() {
	since, used := r.cfg.Usage()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.used = since.UTC().Format(time.RFC3339), maps.Clone(used)
}
