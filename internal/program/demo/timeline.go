package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/upgradestate"
)

// timeline records the times of state changes of a deployment, from a watch.
type timeline struct {
	mu       sync.Mutex
	record   upgradestate.Deployment
	switches int           // number of SWITCHING phases so far
	start    time.Time     // of the latest SWITCHING
	changed  chan struct{} // signals a change, without counting
	note     func(string)
}

func newTimeline(note func(string)) *timeline {
	return &timeline{changed: make(chan struct{}, 1), note: note}
}

// follow watches the deployment until ctx ends.
func (t *timeline) follow(ctx context.Context, store *deployment.Store) {
	for d := range store.Watch(ctx) {
		t.observe(d, time.Now())
		select {
		case t.changed <- struct{}{}:
		default:
		}
	}
}

func (t *timeline) observe(d upgradestate.Deployment, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.record
	t.record = d
	// The record changes often within a step. Print each step once.
	if step(d) != step(before) && step(d) != "" {
		t.note(step(d))
	}
	if switching(d) && !switching(before) {
		t.switches++
		t.start = now
	}
	if before.CurrentVersion != "" && d.CurrentVersion != before.CurrentVersion {
		t.note("flip: " + d.CurrentVersion + " is active")
	}
}

func switching(d upgradestate.Deployment) bool {
	return d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
}

// step returns the state and step of an upgrade for output.
func step(d upgradestate.Deployment) string {
	if d.Upgrade == nil {
		return ""
	}
	return strings.TrimSuffix(string(d.Upgrade.State)+" "+string(d.Upgrade.Step), " ")
}

// errAborted means that the upgrade ended without a switch.
var errAborted = errors.New("the upgrade was aborted")

// awaitFlip waits until the switch is complete and writes are open. It gives up if neither the
// deployment nor the progress changes for patience. begun is the revision at which the upgrade
// began. The watch may still show earlier revisions, in which no upgrade runs yet.
func (t *timeline) awaitFlip(ctx context.Context, to string, begun int64, patience time.Duration, moved func() bool) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, reason := time.Now(), ""
	for {
		t.mu.Lock()
		d := t.record
		t.mu.Unlock()
		if d.Upgrade != nil {
			reason = d.Upgrade.AbortReason
		}
		if d.CurrentVersion == to {
			// The version changes with the flip, but the last renames follow. Wait for a place to
			// write.
			if _, places := upgradestate.WritePlaces(d); len(places) > 0 {
				return nil
			}
		} else if d.Upgrade == nil && d.Revision > begun {
			return fmt.Errorf("%w: %s", errAborted, reason)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.changed:
			last = time.Now()
		case <-tick.C:
			if moved() {
				last = time.Now()
			}
			if time.Since(last) > patience {
				return fmt.Errorf("the upgrade stands still in %q for %s", step(d), patience)
			}
		}
	}
}

// window returns the start of the latest switch, the number of switches and the deployment.
func (t *timeline) window() (start time.Time, switches int, record upgradestate.Deployment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.start, t.switches, t.record
}

// copied is the state of the copy in the controllers' metrics.
type copied struct {
	docs   int64
	shards int // counted
	done   int // not copying any more
}

// copyMeter polls the controllers' metrics until all shards are copied, and returns the number of
// documents copied. It polls often, so that the measured end is accurate.
func copyMeter(ctx context.Context, operators []string, shards int, seen func(copied)) (copied, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now := copied{}
		for _, addr := range operators {
			if err := scrape(ctx, addr, &now); err != nil && ctx.Err() == nil {
				return now, fmt.Errorf("metrics of %s: %w", addr, err)
			}
		}
		seen(now)
		// Each controller reports only its own shards, so the sum decides.
		if now.done >= shards {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-tick.C:
		}
	}
}

func scrape(ctx context.Context, addr string, into *copied) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // only read
	return readMetrics(res.Body, into)
}

// readMetrics reads the two copy metrics from the Prometheus text format.
func readMetrics(r io.Reader, into *copied) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// Both metrics have labels, so lines without a brace are others.
		name, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok {
			continue
		}
		var counted *int64
		shards := int64(0)
		switch {
		case strings.HasPrefix(name, "dbcontroller_copied_records{"):
			counted = &into.docs
		case strings.HasPrefix(name, "dbcontroller_shards{"):
			counted = &shards
		default:
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%s %q: %w", name, value, err)
		}
		*counted += int64(n)
		into.shards += int(shards)
		// A shard that has left the state copying has finished its copy.
		if !strings.Contains(name, `state="copying"`) {
			into.done += int(shards)
		}
	}
	return lines.Err()
}
