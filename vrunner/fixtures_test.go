package vrunner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// fixture is a record of a version's start data.
func fixture(version, name string) record.Record {
	return record.Record{Kind: kindOf[version], Key: record.StringKey(name), Doc: doc(name, "fixture")}
}

// faulty puts an injector before CreateOnce of a version.
func faulty(w *world, version string, inj faultstore.Injector) map[string]vrunner.Database {
	clients := w.clients()
	clients[version] = vrunner.Database{Client: faultstore.WrapClient(w.db[version], faultstore.On(inj, faultstore.Once))}
	return clients
}

// TestFixtures are there when their version is active, and not before; before the writes
// that were held; and once, whatever becomes of them.
func TestFixtures(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		s := &service{}
		s.instead = func(version string, v *vrunner.View, r *http.Request) error {
			rec, err := v.Get(r.Context(), kindOf[version], "f")
			if err != nil {
				return err
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			// What a handler writes is made of the fixture.
			return v.Write(r.Context(), []record.Mutation{{Kind: kindOf[version], Key: record.StringKey(string(body)), Doc: doc(string(body), rec.Doc.Lookup("value").StringValue())}})
		}
		fixtures := map[string][]record.Record{"v1": {fixture("v1", "f")}, "v2": {fixture("v2", "f"), fixture("v2", "copied"), fixture("v2", "g")}}
		r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), s.stacks(nil, fixtures), vrunner.Config{}, nil)
		stored := func(v1, v2 string) {
			t.Helper()
			if one, two := w.stored(ctx, "v1", "old"), w.stored(ctx, "v2", "new"); one != v1 || two != v2 {
				t.Errorf("v1 holds %q, want %q; v2 %q, want %q", one, v1, two, v2)
			}
		}
		stored("f", "") // the first version of a service
		w.put(ctx, "v2", "new", "copied", "of v1")
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		held := send(ctx, r, put("x", "h"))
		w.until(ctx, sealed)
		stored("f", "copied")
		w.until(ctx, open("v2"))
		expect(t, "held", held, http.StatusOK, "v2")
		stored("f", "copied f g h")
		if rec, err := w.db["v2"].Get(ctx, w.tokens(ctx, "v2")["new"], record.StringKey("copied")); err != nil || rec.Doc.Lookup("value").StringValue() != "of v1" {
			t.Errorf("%s, %v: what was there was replaced", rec.Doc, err)
		}
		w.remove(ctx, "v2", kindOf["v2"], "g")
		w.flip(ctx, "u2", "v1")
		w.remove(ctx, "v1", kindOf["v1"], "f")
		w.flip(ctx, "u3", "v2")
		w.flip(ctx, "u4", "v1")
		// Another process knows it from the database.
		start(ctx, consumer{w.store, &announced{}}, w.clients(), s.stacks(nil, fixtures), vrunner.Config{ID: "other"}, nil)
		w.flip(ctx, "u5", "v2")
		stored("", "copied f h")
	})
}

// TestFixturesAfterAMove: another place of the same version starts with what the first one
// had become, also when other versions were active in between.
func TestFixturesAfterAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		db := map[string]database{"v1": memstore.New(), "v1@b": memstore.New(), "v2": memstore.New()}
		w := newWorldOn(ctx, t, db, map[string][]record.KindSpec{"v1": plain["v1"], "v1@b": plain["v1"], "v2": plain["v2"]})
		clients := w.clients()
		clients["v1@b"] = vrunner.Database{Client: db["v1@b"]}
		s := &service{}
		start(ctx, consumer{w.store, &announced{}}, clients, s.stacks(nil, map[string][]record.Record{"v1": {fixture("v1", "f"), fixture("v1", "g")}, "v2": {fixture("v2", "h")}}), vrunner.Config{}, nil)
		w.remove(ctx, "v1", "old", "f")
		w.put(ctx, "v1@b", "old", "g", "as copied")
		w.flip(ctx, "u1", "v1@b")
		w.flip(ctx, "u2", "v2")
		w.flip(ctx, "u3", "v1@b")
		if there, v2 := w.stored(ctx, "v1@b", "old"), w.stored(ctx, "v2", "new"); there != "g" || v2 != "h" {
			t.Errorf("v1@b holds %q, v2 %q", there, v2)
		}
	})
}

// TestFixturesAfterAnAbort: the version was not active.
func TestFixturesAfterAnAbort(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		s := &service{}
		start(ctx, consumer{w.store, &announced{}}, w.clients(), s.stacks(nil, map[string][]record.Record{"v2": {fixture("v2", "f")}}), vrunner.Config{}, nil)
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepSealSource))
		w.apply(ctx, upgradestate.Abort{ID: "u1", Reason: "test"})
		w.until(ctx, open("v1"))
		<-time.After(time.Minute)
		if v2 := w.stored(ctx, "v2", "new"); v2 != "" {
			t.Errorf("v2 holds %q", v2)
		}
		w.flip(ctx, "u2", "v2")
		if v2 := w.stored(ctx, "v2", "new"); v2 != "f" {
			t.Errorf("v2 holds %q", v2)
		}
	})
}

// TestFixturesOfSeveralServers: whichever is first. Each lets its requests through when it
// has seen them.
func TestFixturesOfSeveralServers(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		s := &service{}
		build := s.stacks(nil, map[string][]record.Record{"v2": {fixture("v2", "f")}})
		slow := faultstore.NewGate(1)
		one, _ := start(ctx, consumer{w.store, &announced{}}, faulty(w, "v2", slow), build, vrunner.Config{ID: "one"}, nil)
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		held := send(ctx, one, put("h", "1"))
		w.until(ctx, open("v2"))
		<-slow.Held()
		expectNone(t, "held write", held)
		write, read := send(ctx, one, put("a", "1")), send(ctx, one, get("f"))
		expectNone(t, "write", write)
		expectNone(t, "read", read)
		two, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), build, vrunner.Config{ID: "two"}, nil)
		expect(t, "write at the other server", send(ctx, two, put("b", "1")), http.StatusOK, "v2")
		w.remove(ctx, "v2", kindOf["v2"], "f")
		slow.Open()
		expect(t, "held write", held, http.StatusOK, "v2")
		expect(t, "write", write, http.StatusOK, "v2")
		expect(t, "read", read, http.StatusNotFound, "v2")
		if v2 := w.stored(ctx, "v2", "new"); v2 != "a b h" {
			t.Errorf("v2 holds %q", v2)
		}
	})
}

// TestFixturesThatCannotBeMade hold requests up for a second, and are made when they can be.
func TestFixturesThatCannotBeMade(t *testing.T) {
	for label, fault := range map[string]faultstore.Fault{
		"fails at once": faultstore.Down(), "hangs": {Latency: time.Hour},
	} {
		t.Run(label, func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				j, s := &journal{}, &service{}
				down := faultstore.NewToggle(faultstore.Always(fault))
				down.On()
				r, _ := start(ctx, consumer{w.store, &announced{}}, faulty(w, "v2", down), s.stacks(keeper(j), map[string][]record.Record{"v2": {fixture("v2", "f")}}), vrunner.Config{}, nil)
				j.want(t, "v1 runs, writes: <nil>")
				w.flip(ctx, "u1", "v2")
				start := time.Now()
				write, read := send(ctx, r, put("a", "1")), send(ctx, r, get("f"))
				expectNone(t, "write", write)
				j.want(t, "v1 ended: true, writes: true")
				if res := <-write; res.Code != http.StatusOK || time.Since(start) != time.Second {
					t.Errorf("write: %d after %s", res.Code, time.Since(start))
				}
				expect(t, "read", read, http.StatusNotFound, "v2")
				j.want(t, "v2 runs, writes: <nil>")
				down.Off()
				<-time.After(20 * time.Second)
				expect(t, "read", send(ctx, r, get("f")), http.StatusOK, "v2")
			})
		})
	}
}

// TestFixturesOfASleepingServer: it slept over two flips and is refused.
func TestFixturesOfASleepingServer(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		s := &service{}
		asleep := faultstore.NewGate(1)
		build := s.stacks(nil, map[string][]record.Record{"v1": {fixture("v1", "f")}})
		r, _ := start(ctx, deaf{consumer{w.store, &announced{}}}, faulty(w, "v1", asleep), build, vrunner.Config{}, nil)
		<-asleep.Held()
		w.begin(ctx)
		w.until(ctx, open("v2"))
		asleep.Open()
		<-time.After(time.Minute)
		if all := w.stored(ctx, "v1", "old") + w.stored(ctx, "v2", "new"); all != "" {
			t.Errorf("%q was written", all)
		}
		if active := r.State().Active; active != "v2" {
			t.Errorf("%s is active at the server", active)
		}
	})
}

// TestFixturesWithLostAnswers are made once.
func TestFixturesWithLostAnswers(t *testing.T) {
	for label, fault := range map[string]faultstore.Fault{"unknown": faultstore.Lost(), "cut": faultstore.Cut(), "never sent": faultstore.Down()} {
		t.Run(label, func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				s := &service{}
				fault := faultstore.Count(faultstore.Nth(1, fault))
				r, _ := start(ctx, consumer{w.store, &announced{}}, faulty(w, "v1", fault), s.stacks(nil, map[string][]record.Record{"v1": {fixture("v1", "f")}}), vrunner.Config{}, nil)
				<-time.After(500 * time.Millisecond)
				if fault.Seen() != 2 || w.stored(ctx, "v1", "old") != "f" {
					t.Errorf("after %d attempts v1 holds %q", fault.Seen(), w.stored(ctx, "v1", "old"))
				}
				expect(t, "read", send(ctx, r, get("f")), http.StatusOK, "v1")
			})
		})
	}
}

// TestRetired: a server goes on when one of its versions is retired; what a handler asks
// of that version is not there, at once.
func TestRetired(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		asked := map[string]error{}
		build := func(version string, views map[string]*vrunner.View) vrunner.Stack {
			return vrunner.Stack{
				Write: func(*http.Request) bool { return false },
				Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("Version", version)
					_, asked["get"] = views["v1"].Get(r.Context(), "old", "a")
					_, asked["list"] = views["v1"].List(r.Context(), "old", "", "", 1)
					_, asked["changes"] = views["v1"].Changes(r.Context(), "old")
				}),
			}
		}
		w.put(ctx, "v1", "old", "a", "1")
		r, _ := start(ctx, consumer{w.store, &announced{}}, w.clients(), build, vrunner.Config{}, nil)
		w.flip(ctx, "u1", "v2")
		for _, ev := range []upgradestate.Event{upgradestate.Complete{Version: "v1"}, upgradestate.Dropped{Version: "v1"}} {
			w.apply(ctx, ev)
			if kinds := w.tokens(ctx, "v1"); len(kinds) > 0 {
				w.check(w.db["v1"].Drop(ctx, kinds["old"]))
			}
			synctest.Wait()
			start := time.Now()
			expect(t, "request", send(ctx, r, get("a")), http.StatusOK, "v2")
			for what, err := range asked {
				if want := "v1/old is gone, v1 is retired"; !errors.Is(err, record.ErrNotFound) || fmt.Sprint(err) != want+": "+record.ErrNotFound.Error() || why(err) != refusal.VersionRetired {
					t.Errorf("%s: %v, %s, want %s", what, err, why(err), want)
				}
			}
			if r.Ready() != nil || time.Since(start) != 0 {
				t.Errorf("after %s: ready %v", time.Since(start), r.Ready())
			}
		}
	})
}

// TestNotReadyYet: what is asked of a version that no controller has made is told so.
func TestNotReadyYet(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, map[string][]record.KindSpec{"v1": plain["v1"]})
		_, views := following(ctx, w, w.clients(), vrunner.Config{})
		if _, err := views["v2"].Get(ctx, "new", "a"); !errors.Is(err, record.ErrNotFound) || why(err) != refusal.VersionNotReady {
			t.Errorf("%v, %s", err, why(err))
		}
	})
}
