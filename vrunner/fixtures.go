package vrunner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

const (
	// fixturesMarker is the name of the marker in a namespace whose fixtures exist.
	fixturesMarker = "fixtures"
	// fixturesWait is the longest time that requests wait for fixtures.
	fixturesWait = time.Second
	// fixturesLimit bounds one attempt to create the fixtures.
	fixturesLimit = 15 * time.Second
)

// checkFixtures refuses fixtures that could never be created.
func (r *Runner) checkFixtures() error {
	for version, stack := range r.stacks {
		if len(stack.Fixtures) == 0 {
			continue
		}
		if _, ok := r.databases[version].Client.(record.OnceClient); !ok {
			return fmt.Errorf("fixtures of %s: its client, a %T, is no record.OnceClient", version, r.databases[version].Client)
		}
		seen := map[record.Selector]bool{}
		for _, f := range stack.Fixtures {
			id := record.Selector{Kind: f.Kind, Key: f.Key}
			if seen[id] {
				return fmt.Errorf("fixtures of %s: %s %s is there twice", version, f.Kind, f.Key)
			}
			seen[id] = true
			if f.Kind == "" || f.Key == "" || f.Doc == nil {
				return fmt.Errorf("fixtures of %s: %q %s: a kind, a key and a document are needed", version, f.Kind, f.Key)
			}
		}
	}
	return nil
}

// starting reports whether requests still wait for the active version's fixtures. The caller holds
// r.mu.
func (r *Runner) starting() bool { return r.unseeded() && r.waived != r.record.Epoch }

// unseeded reports whether the active version has fixtures that may not exist yet, and accepts
// writes. The caller holds r.mu.
func (r *Runner) unseeded() bool {
	version := r.record.CurrentVersion
	if len(r.stacks[version].Fixtures) == 0 || r.seeded[version] {
		return false
	}
	_, places := upgradestate.WritePlaces(r.record)
	return len(places) > 0
}

// started waits until requests no longer wait for fixtures, at most about fixturesWait.
func (r *Runner) started(ctx context.Context) error {
	for {
		r.mu.Lock()
		wait, news := r.starting(), r.news
		r.mu.Unlock()
		if !wait {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// seed creates the fixtures of each version when it becomes active. The database decides that this
// happens once in the life of a namespace, in the transaction that writes them.
func (r *Runner) seed(ctx context.Context) error {
	retry := newRetry()
	failed := false
	var since uint64 // the epoch whose timer has started
	for {
		r.mu.Lock()
		d, news, wanted := r.record, r.news, r.unseeded()
		r.mu.Unlock()
		if !wanted {
			select {
			case <-news:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		// One timer for each epoch: requests of a new version must wait for its own fixtures.
		if since != d.Epoch {
			since = d.Epoch
			patience := time.AfterFunc(fixturesWait, func() { r.waive(d) })
			defer patience.Stop()
		}
		err := r.makeFixtures(ctx, d)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failed = false
			retry.Reset()
			continue
		case errors.Is(err, record.ErrFenced):
			// A fence has made the tokens stale. Wait for the newer record before the retry.
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			_ = r.newer(bounded, d.Revision) // the loop reads the newest record in any case
			cancel()
		// Only the first of a series of failures is logged.
		case !failed:
			failed = true
			r.log.Error("fixtures are not made; they are tried again", slog.String("version", d.CurrentVersion), slog.Any("error", err))
		}
		pause(ctx, retry.NextBackOff())
	}
}

// makeFixtures makes one attempt, with the tokens of the record d.
func (r *Runner) makeFixtures(ctx context.Context, d upgradestate.Deployment) error {
	version, places := upgradestate.WritePlaces(d)
	bounded, cancel := context.WithTimeout(ctx, fixturesLimit)
	defer cancel()
	client := r.databases[version].Client.(record.OnceClient) // see checkFixtures
	fixtures := r.stacks[version].Fixtures
	if s := d.LastSwitch; s != nil && s.To == version && upgradestate.APIVersion(s.From) == upgradestate.APIVersion(version) {
		fixtures = nil // the version only moved and its data came along, so only the marker is new
	}
	made, err := client.CreateOnce(bounded, tokensOf(places), fixturesMarker, fixtures)
	if err != nil {
		return err
	}
	if made && len(fixtures) > 0 {
		r.log.Info("fixtures are made", slog.String("version", version), slog.Int("records", len(fixtures)))
	}
	// Another server may have created them. In both cases they exist now.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seeded[version] = true
	r.admit()
	return nil
}

// waive lets requests through without fixtures. Requests wait for fixtures but do not depend on
// them.
func (r *Runner) waive(d upgradestate.Deployment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The timer may fire after a flip or after the fixtures were created.
	if r.record.Epoch != d.Epoch || !r.starting() {
		return
	}
	r.waived = d.Epoch
	r.log.Warn("requests wait no longer for the fixtures", slog.String("version", d.CurrentVersion), slog.Duration("waited", fixturesWait))
	r.admit()
}
