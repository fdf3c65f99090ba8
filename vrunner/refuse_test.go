package vrunner_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// body delivers who answered, and what.
func body(t *testing.T, done <-chan *httptest.ResponseRecorder) <-chan string {
	t.Helper()
	w := expect(t, "read", done, http.StatusOK, "v2")
	ch := make(chan string, 1)
	ch <- w.Header().Get("Version") + ": " + w.Body.String()
	return ch
}

// TestReadOfASealedNamespace waits no longer than a write would.
func TestReadOfASealedNamespace(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{HoldCap: 4 * time.Second}, func(ctx context.Context, w *world, _ *service, r *vrunner.Runner, _ *announced) {
		w.begin(ctx)
		w.until(ctx, sealed)
		synctest.Wait()
		start := time.Now()
		res := <-send(ctx, r, get("a"))
		if took := time.Since(start); took != 4*time.Second || res.Code == http.StatusOK || !strings.Contains(res.Body.String(), vrunner.ErrHeld.Error()) {
			t.Errorf("after %s: %d %s", took, res.Code, res.Body)
		}
	})
}

func TestBodyTooLarge(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{MaxBody: 10}, func(ctx context.Context, w *world, s *service, r *vrunner.Runner, _ *announced) {
		big := strings.Repeat("x", 11)
		expect(t, "plain", send(ctx, r, put("a", big)), http.StatusRequestEntityTooLarge, "")
		res := expect(t, "Connect", send(ctx, r, connectJSON(put("a", big))), http.StatusTooManyRequests, "")
		if c := code(t, res.Body.Bytes()); c != "resource_exhausted" {
			t.Errorf("Connect: code %s", c)
		}
		res = expect(t, "gRPC", send(ctx, r, grpc(put("a", big))), http.StatusOK, "")
		if status := res.Result().Trailer.Get("Grpc-Status"); status != "8" {
			t.Errorf("gRPC: status %q", status)
		}
		if s.ran("v1") != 0 {
			t.Error("a handler ran")
		}
		expect(t, "just small enough", send(ctx, r, put("a", big[1:])), http.StatusOK, "v1")
		if names := w.stored(ctx, "v1", "old"); names != "a" {
			t.Errorf("stored %q", names)
		}
	})
}

// TestReady: Ready reports what is missing, and requests are refused with the same error.
func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		store := deployment.New(memcoord.New(), "services/s/deployments/d", deployment.Config{})
		db, s := memstore.New(), &service{}
		r := run(ctx, consumer{store, &announced{}}, map[string]vrunner.Database{"v1": {Client: db}}, s, vrunner.Config{})
		missing := func(want, why string) {
			t.Helper()
			synctest.Wait()
			if err := r.Ready(); err == nil || err.Error() != want {
				t.Errorf("ready: %v, want %s", err, want)
			}
			for _, req := range []*http.Request{get("a"), put("a", "1")} {
				if res := expect(t, want, send(ctx, r, req), http.StatusServiceUnavailable, ""); !strings.Contains(res.Body.String(), want) {
					t.Errorf("%s: %s, want %s", req.Method, res.Body, want)
				} else if got := reason(t, res.Body.Bytes()); got != why {
					t.Errorf("%s: reason %s, want %s", req.Method, got, why)
				}
			}
			if s.ran("v1") != 0 {
				t.Error("a handler ran")
			}
		}
		missing("waiting for the Deployment in etcd", "NOT_READY")
		d, err := store.Create(ctx, "v1", 1)
		if err != nil {
			t.Fatal(err)
		}
		missing("waiting for a controller to make the namespace of v1", "NOT_READY v1")
		ns, err := syncer.Provision(ctx, db, d, "v1", "mem", plain["v1"], func(string) record.FenceClass { return "" })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := r.Ready(); err != nil || !r.GateOpen() {
			t.Errorf("ready: %v, gate open: %t", err, r.GateOpen())
		}
		expect(t, "write", send(ctx, r, put("a", "1")), http.StatusOK, "v1")
	})
}

// TestUnknownActiveVersion: a server that is too old for what is active serves nothing,
// and writes nothing with what it knew before.
func TestUnknownActiveVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		w, s, a := newWorld(ctx, t, plain), &service{}, &announced{}
		r := vrunner.New(consumer{w.store, a}, map[string]vrunner.Database{"v1": {Client: w.db["v1"]}}, s.stack, vrunner.Config{ID: "old server", HoldCap: time.Minute}, nil)
		go func() { _ = r.Run(ctx) }() // ends with ctx
		synctest.Wait()
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		held := send(ctx, r, put("a", "1"))
		w.until(ctx, open("v2"))
		synctest.Wait()
		want := "the database is at version v2, this binary knows only v1: use one that knows v2"
		if err := r.Ready(); err == nil || err.Error() != want {
			t.Errorf("ready: %v, want %s", err, want)
		}
		for _, req := range []*http.Request{get("a"), put("b", "1")} {
			if res := expect(t, req.Method, send(ctx, r, req), http.StatusServiceUnavailable, ""); !strings.Contains(res.Body.String(), want) {
				t.Errorf("%s: %s", req.Method, res.Body)
			} else if why := reason(t, res.Body.Bytes()); why != "SERVER_TOO_OLD v2" {
				t.Errorf("%s: reason %s", req.Method, why)
			}
		}
		if res := <-held; res.Code != http.StatusServiceUnavailable {
			t.Errorf("the held one: %d %s", res.Code, res.Body)
		}
		if a.last().Active != "v2" || s.ran("v1") != 0 || w.stored(ctx, "v1", "old")+w.stored(ctx, "v2", "new") != "" {
			t.Errorf("announced %+v, ran %v", a.last(), s.runs)
		}
	})
}
