package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// watched is a Watcher that counts its streams.
type watched struct {
	record.Watcher
	opened, open atomic.Int64
}

func (w *watched) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	s, err := w.Watcher.Watch(ctx, from, kinds)
	if err != nil {
		return nil, err
	}
	w.opened.Add(1)
	w.open.Add(1)
	return counted{s, w}, nil
}

type counted struct {
	record.Stream
	w *watched
}

func (c counted) Close(ctx context.Context) error {
	c.w.open.Add(-1)
	return c.Stream.Close(ctx)
}

// following starts a runner and returns its views.
func following(ctx context.Context, w *world, databases map[string]vrunner.Database, cfg vrunner.Config) (*vrunner.Runner, map[string]*vrunner.View) {
	var views map[string]*vrunner.View
	s := &service{}
	cfg.ID = "server"
	r := vrunner.New(consumer{w.store, &announced{}}, databases, func(version string, vs map[string]*vrunner.View) vrunner.Stack {
		views = vs
		return s.stack(version, vs)
	}, cfg, nil)
	go func() { _ = r.Run(ctx) }() // ends with ctx
	synctest.Wait()
	return r, views
}

func subscribe(ctx context.Context, t *testing.T, v *vrunner.View, kinds ...string) vrunner.Subscription {
	t.Helper()
	c, err := v.Changes(ctx, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dirty takes what is there by now.
func dirty(ctx context.Context, t *testing.T, c vrunner.Subscription) string {
	t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	names, err := c.Next(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err.Error()
	}
	var out []string
	for _, d := range names {
		out = append(out, d.Kind+":"+d.Name)
	}
	return strings.Join(out, " ")
}

func expectDirty(ctx context.Context, t *testing.T, c vrunner.Subscription, want string) {
	t.Helper()
	if got := dirty(ctx, t, c); got != want {
		t.Errorf("dirty is %q, want %q", got, want)
	}
}

// bubble runs a test in simulated time; all that it started ends with its context.
func bubble(t *testing.T, test func(ctx context.Context, t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		test(ctx, t)
	})
}

func (w *world) remove(ctx context.Context, version, kind, name string) {
	w.t.Helper()
	w.check(w.db[version].Write(ctx, w.tokens(ctx, version), []record.Mutation{{Kind: kind, Key: record.StringKey(name)}}))
}

func TestChanges(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, map[string][]record.KindSpec{"v1": {{Name: "old"}, {Name: "other"}}, "v2": {{Name: "new"}}})
		_, views := following(ctx, w, w.clients(), vrunner.Config{})
		w.put(ctx, "v1", "old", "before", "1")
		c := subscribe(ctx, t, views["v1"], "old")
		defer c.Close()
		expectDirty(ctx, t, c, "")
		w.put(ctx, "v1", "old", "b", "1")
		w.put(ctx, "v1", "other", "x", "1")
		w.put(ctx, "v1", "old", "a", "1")
		w.put(ctx, "v1", "old", "b", "2")
		expectDirty(ctx, t, c, "old:b old:a") // each once
		w.remove(ctx, "v1", "old", "b")
		expectDirty(ctx, t, c, "old:b")
		late := subscribe(ctx, t, views["v1"], "old", "other")
		defer late.Close()
		w.put(ctx, "v1", "other", "y", "1")
		w.put(ctx, "v1", "old", "c", "1")
		if got := dirty(ctx, t, late); !strings.HasSuffix(got, "other:y old:c") {
			t.Errorf("dirty is %q", got)
		}
		if got := dirty(ctx, t, c); strings.Contains(got, "other") || !strings.Contains(got, "old:c") {
			t.Errorf("dirty is %q", got)
		}
	})
}

// TestOneStream: all subscribers of a version share one, and without any there is none.
func TestOneStream(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, map[string][]record.KindSpec{"v1": {{Name: "old"}, {Name: "other"}}, "v2": {{Name: "new"}}})
		counter := &watched{Watcher: w.db["v1"]}
		_, views := following(ctx, w, map[string]vrunner.Database{"v1": {Client: w.db["v1"], Watcher: counter}}, vrunner.Config{})
		streams := func(opened, open int64) {
			t.Helper()
			synctest.Wait()
			if counter.opened.Load() != opened || counter.open.Load() != open {
				t.Errorf("%d streams were opened and %d are, want %d and %d", counter.opened.Load(), counter.open.Load(), opened, open)
			}
		}
		streams(0, 0)
		var subs []vrunner.Subscription
		for range 3 {
			subs = append(subs, subscribe(ctx, t, views["v1"], "old"))
		}
		streams(1, 1)
		subs = append(subs, subscribe(ctx, t, views["v1"], "other"))
		streams(2, 1) // one more kind
		w.put(ctx, "v1", "other", "x", "1")
		expectDirty(ctx, t, subs[3], "other:x")
		for _, c := range subs {
			c.Close()
			c.Close()
		}
		streams(2, 0)
		again := subscribe(ctx, t, views["v1"], "old")
		streams(3, 1)
		w.put(ctx, "v1", "old", "a", "1")
		expectDirty(ctx, t, again, "old:a")
		again.Close()
		streams(3, 0)
	})
}

// TestChangesDuringTheSwitch: both versions are followed, through all fences and the flip.
func TestChangesDuringTheSwitch(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		_, views := following(ctx, w, w.clients(), vrunner.Config{})
		v1, v2 := subscribe(ctx, t, views["v1"], "old"), subscribe(ctx, t, views["v2"], "new")
		defer v1.Close()
		defer v2.Close()
		w.begin(ctx)
		for i, step := range []func(upgradestate.Deployment) bool{
			at(upgradestate.StepNone), at(upgradestate.StepHold), at(upgradestate.StepFence), at(upgradestate.StepDrain), at(upgradestate.StepSealTarget),
			at(upgradestate.StepSealSource), sealed, open("v2"),
		} {
			w.until(ctx, step)
			name := fmt.Sprint(i)
			w.put(ctx, "v1", "old", name, "1") // past all gates; afterwards, the reverse sync does
			w.put(ctx, "v2", "new", name, "1")
			expectDirty(ctx, t, v1, "old:"+name)
			expectDirty(ctx, t, v2, "new:"+name)
		}
	})
}

// TestTooSlow: what does not fit is reported as lost, and the subscription goes on.
func TestTooSlow(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		_, views := following(ctx, w, w.clients(), vrunner.Config{})
		slow, fast := subscribe(ctx, t, views["v1"], "old"), subscribe(ctx, t, views["v1"], "old")
		defer slow.Close()
		defer fast.Close()
		toks, got := w.tokens(ctx, "v1"), 0
		for i := range 10_001 {
			name := fmt.Sprint(i)
			w.check(w.db["v1"].Write(ctx, toks, []record.Mutation{{Kind: "old", Key: record.StringKey(name), Doc: doc(name, "")}}))
			if i%1000 == 0 {
				got += len(strings.Fields(dirty(ctx, t, fast)))
			}
		}
		if got += len(strings.Fields(dirty(ctx, t, fast))); got != 10_001 {
			t.Errorf("the fast one got %d", got)
		}
		expectDirty(ctx, t, slow, vrunner.ErrLost.Error())
		w.put(ctx, "v1", "old", "after", "1")
		expectDirty(ctx, t, slow, "old:after")
		dirty(ctx, t, fast)
		for i := range 200 { // fewer names, and more bytes
			w.put(ctx, "v1", "old", fmt.Sprint(i)+strings.Repeat("x", 30<<10), "1")
			if i%50 == 0 {
				dirty(ctx, t, fast)
			}
		}
		dirty(ctx, t, fast)
		expectDirty(ctx, t, slow, vrunner.ErrLost.Error())
	})
}

func TestHistoryLost(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		db := memstore.New()
		w := newWorldOn(ctx, t, map[string]database{"v1": db, "v2": memstore.New()}, plain)
		_, views := following(ctx, w, w.clients(), vrunner.Config{})
		c := subscribe(ctx, t, views["v1"], "old")
		defer c.Close()
		w.put(ctx, "v1", "old", "unseen", "1")
		db.Cluster().LoseHistory()
		<-time.After(2 * time.Second)
		expectDirty(ctx, t, c, vrunner.ErrLost.Error())
		w.put(ctx, "v1", "old", "after", "1")
		expectDirty(ctx, t, c, "old:after")
	})
}

// TestBrokenForGood: a version that cannot be followed is tried at leisure.
func TestBrokenForGood(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		broken := faultstore.Count(faultstore.On(faultstore.Always(faultstore.Fault{Before: record.ErrBroken}), faultstore.Watch))
		_, views := following(ctx, w, map[string]vrunner.Database{"v1": {Client: w.db["v1"], Watcher: faultstore.Wrap(w.db["v1"], broken)}}, vrunner.Config{})
		c := subscribe(ctx, t, views["v1"], "old")
		defer c.Close()
		<-time.After(20 * time.Second)
		expectDirty(ctx, t, c, vrunner.ErrLost.Error())
		if n := broken.Fired(); n < 5 || n > 60 {
			t.Errorf("tried %d times in 20 s", n)
		}
	})
}

// TestMirror: a client that subscribes, lists and follows ends with what is there, whatever
// breaks meanwhile.
func TestMirror(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(ctx context.Context, t *testing.T) {
				db := memstore.New()
				w := newWorldOn(ctx, t, map[string]database{"v1": db, "v2": memstore.New()}, plain)
				faults := faultstore.NewToggle(faultstore.On(faultstore.Probability(seed, 0.2, faultstore.Down()), faultstore.Watch, faultstore.Next, faultstore.Position))
				faults.On()
				_, views := following(ctx, w, map[string]vrunner.Database{"v1": {Client: db, Watcher: faultstore.Wrap(db, faults)}}, vrunner.Config{})
				v := views["v1"]
				mirror, lost := map[string]string{}, 0
				list := func() {
					recs, err := v.List(ctx, "old", "", "", 0)
					w.check(err)
					clear(mirror)
					for _, r := range recs {
						mirror[r.Key.String()] = r.Doc.Lookup("value").StringValue()
					}
				}
				following, stop := context.WithCancel(ctx)
				c, done := subscribe(ctx, t, v, "old"), make(chan struct{})
				go func() {
					defer close(done)
					list()
					for {
						names, err := c.Next(following)
						if errors.Is(err, vrunner.ErrLost) {
							lost++
							list()
							continue
						}
						if err != nil {
							return
						}
						for _, d := range names {
							rec, err := v.Get(ctx, d.Kind, d.Name)
							if errors.Is(err, record.ErrNotFound) {
								delete(mirror, d.Name)
								continue
							}
							w.check(err)
							mirror[d.Name] = rec.Doc.Lookup("value").StringValue()
						}
					}
				}()
				for i := range 400 {
					name := fmt.Sprint(i * 7 % 40)
					if i%3 == 0 {
						w.remove(ctx, "v1", "old", name)
					} else {
						w.put(ctx, "v1", "old", name, fmt.Sprint(i))
					}
					if i%100 == 50 {
						db.Cluster().LoseHistory()
					}
					if i%5 == 0 {
						<-time.After(time.Duration(i) * time.Millisecond)
					}
				}
				faults.Off()
				<-time.After(5 * time.Second)
				stop()
				<-done
				c.Close()
				want := map[string]string{}
				recs, err := v.List(ctx, "old", "", "", 0)
				w.check(err)
				for _, r := range recs {
					want[r.Key.String()] = r.Doc.Lookup("value").StringValue()
				}
				if lost == 0 || len(want) == 0 || fmt.Sprint(mirror) != fmt.Sprint(want) {
					t.Errorf("%d losses\nmirror %v\nwant   %v", lost, mirror, want)
				}
			})
		})
	}
}

func TestSubscribingFails(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		db, app := memstore.New(), record.KindSpec{Name: "app", Fixed: true}
		if _, err := db.Provision(ctx, app, "app"); err != nil {
			t.Fatal(err)
		}
		w := newWorldOn(ctx, t, map[string]database{"v1": db, "v2": memstore.New()}, map[string][]record.KindSpec{"v1": {{Name: "old"}, app}, "v2": {{Name: "new"}}})
		down := faultstore.NewToggle(faultstore.Always(faultstore.Down()))
		databases := map[string]vrunner.Database{"v1": {Client: w.db["v1"], Watcher: faultstore.Wrap(w.db["v1"], down)}, "v2": {Client: w.db["v2"]}}
		_, views := following(ctx, w, databases, vrunner.Config{HoldCap: 3 * time.Second})
		if _, err := views["v2"].Changes(ctx, "new"); err == nil || !strings.Contains(err.Error(), "Watcher") {
			t.Errorf("without a watcher: %v", err)
		}
		if _, err := views["v1"].Changes(ctx); err == nil {
			t.Error("without kinds")
		}
		if _, err := views["v1"].Changes(ctx, "old", "none"); !errors.Is(err, record.ErrNotFound) {
			t.Errorf("an unknown kind: %v", err)
		}
		var unsupported *record.UnsupportedError
		if _, err := views["v1"].Changes(ctx, "app"); !errors.As(err, &unsupported) {
			t.Errorf("a fixed-name kind: %v", err)
		}
		down.On()
		start := time.Now()
		if _, err := views["v1"].Changes(ctx, "old"); !errors.Is(err, faultstore.ErrInjected) || time.Since(start) != 3*time.Second {
			t.Errorf("no database, after %s: %v", time.Since(start), err)
		}
		gone, leave := context.WithTimeout(ctx, time.Second)
		defer leave()
		if _, err := views["v1"].Changes(gone, "old"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("a client that went: %v", err)
		}
		down.Off()
		c := subscribe(ctx, t, views["v1"], "old")
		w.put(ctx, "v1", "old", "a", "1")
		expectDirty(ctx, t, c, "old:a")
		// One who joins must not list before the database was seen to be what the others
		// were told of.
		down.On()
		if _, err := views["v1"].Changes(ctx, "old"); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("joined without a database: %v", err)
		}
		down.Off()
		subscribe(ctx, t, views["v1"], "old").Close()
		c.Close()
	})
}

// TestChangesEndWithTheServer: nobody waits for a server that has stopped.
func TestChangesEndWithTheServer(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		runs, stop := context.WithCancel(ctx)
		_, views := following(runs, w, w.clients(), vrunner.Config{})
		c := subscribe(ctx, t, views["v1"], "old")
		ended := make(chan error, 1)
		go func() { _, err := c.Next(ctx); ended <- err }()
		stop()
		if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("the subscription ended with %v", err)
		}
		if _, err := views["v1"].Changes(ctx, "old"); err == nil {
			t.Error("subscribed to a server that has stopped")
		}
		c.Close()
	})
}
