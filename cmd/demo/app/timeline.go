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

	"dbcontroller.dev/deployment"
	"dbcontroller.dev/upgradestate"
)

// timeline notes when the record in etcd changed its state: as it happens, by a watch.
type timeline struct {
	mu       sync.Mutex
	record   upgradestate.Deployment
	switches int       // times that SWITCHING began
	start    time.Time // of the latest SWITCHING
	flipped  time.Time
	changed  chan struct{} // signalled, conflated
	note     func(string)
}

func newTimeline(note func(string)) *timeline {
	return &timeline{changed: make(chan struct{}, 1), note: note}
}

// follow watches the record until ctx ends.
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
	if step(d) != step(before) && step(d) != "" {
		t.note(step(d))
	}
	if switching(d) && !switching(before) {
		t.switches++
		t.start = now
	}
	if before.CurrentVersion != "" && d.CurrentVersion != before.CurrentVersion {
		t.flipped = now
		t.note("flip: " + d.CurrentVersion + " is active")
	}
}

func switching(d upgradestate.Deployment) bool {
	return d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
}

// step is the place of an upgrade, for people.
func step(d upgradestate.Deployment) string {
	if d.Upgrade == nil {
		return ""
	}
	return strings.TrimSuffix(string(d.Upgrade.State)+" "+string(d.Upgrade.Step), " ")
}

// errAborted says that the upgrade ended without a switch.
var errAborted = errors.New("the upgrade was aborted")

// awaitFlip waits for the switch to be done: nothing of it is left to be completed. It
// gives up when nothing has changed, neither the record nor the progress, for long. begun
// is the revision with which the upgrade began: what the watch brought before says nothing.
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

// window is the start of the switch, for the pause.
func (t *timeline) window() (start time.Time, switches int, record upgradestate.Deployment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.start, t.switches, t.record
}

// copied is what the controllers' metrics say of the copy.
type copied struct {
	docs   int64
	shards int // seen
	done   int // no longer copying
}

// copyMeter asks the controllers' operator ports until all shards are copied, which it
// returns with the documents copied. Asking often is how the end is seen when it is.
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

// readMetrics takes the two metrics of a copy out of the Prometheus text format.
func readMetrics(r io.Reader, into *copied) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
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
		if !strings.Contains(name, `state="copying"`) {
			into.done += int(shards)
		}
	}
	return lines.Err()
}
