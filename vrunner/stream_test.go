package vrunner_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// streamed runs a stream in the background that reports its versions, and the cause with
// which each run ended.
func streamed(ctx context.Context, r *vrunner.Runner) (runs <-chan string, ended <-chan error) {
	tell, end := make(chan string, 10), make(chan error, 1)
	go func() {
		end <- r.Stream(ctx, func(ctx context.Context, version string) error {
			tell <- version
			<-ctx.Done()
			tell <- context.Cause(ctx).Error()
			return ctx.Err()
		})
	}()
	synctest.Wait()
	return tell, end
}

func expectRuns(t *testing.T, runs <-chan string, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for len(runs) > 0 {
		got = append(got, <-runs)
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("runs: %q, want %q", got, want)
	}
}

// TestStream runs on the version that is active, and neither holds a switch nor ends with it.
func TestStream(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{}, func(ctx context.Context, w *world, _ *service, r *vrunner.Runner, a *announced) {
		client, leave := context.WithCancelCause(ctx)
		runs, ended := streamed(client, r)
		expectRuns(t, runs, "v1")
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		if said := a.last(); said.AckID != "u1" {
			t.Errorf("announced %+v: a stream keeps the server from acknowledging", said)
		}
		w.until(ctx, at(upgradestate.StepSealSource))
		expectRuns(t, runs)
		w.until(ctx, open("v2"))
		expectRuns(t, runs, vrunner.ErrFlipped.Error(), "v2")
		leave(errors.New("gone"))
		expectRuns(t, runs, "gone")
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestStreamEnds: a stream ends with what the function returns, unless that was because of
// a flip or a loss.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{}, func(ctx context.Context, w *world, _ *service, r *vrunner.Runner, _ *announced) {
		boom, runs := errors.New("boom"), 0
		for _, want := range []error{nil, boom} {
			runs = 0
			if err := r.Stream(ctx, func(context.Context, string) error { runs++; return want }); !errors.Is(err, want) || runs != 1 {
				t.Errorf("%d runs, ended with %v, want %v", runs, err, want)
			}
		}
		var versions []string
		err := r.Stream(ctx, func(ctx context.Context, version string) error {
			versions = append(versions, version)
			if version == "v1" {
				w.begin(ctx)
				w.until(context.WithoutCancel(ctx), open("v2"))
				synctest.Wait()
				return boom
			}
			return nil
		})
		if got := strings.Join(versions, " "); err != nil || got != "v1 v2" {
			t.Errorf("ran on %s: %v", got, err)
		}
	})
}

// TestStreamRunsAgainAfterALoss: a handler that lost changes begins anew.
func TestStreamRunsAgainAfterALoss(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		r, views := following(ctx, w, w.clients(), vrunner.Config{})
		runs := 0
		err := r.Stream(ctx, func(ctx context.Context, _ string) error {
			if runs++; runs == 2 {
				return nil
			}
			c := subscribe(ctx, t, views["v1"], "old")
			defer c.Close()
			toks := w.tokens(ctx, "v1")
			for i := range 10_001 {
				name := string(rune('a'+i%26)) + time.Duration(i).String()
				w.check(w.db["v1"].Write(ctx, toks, []record.Mutation{{Kind: "old", Key: record.StringKey(name), Doc: doc(name, "")}}))
			}
			synctest.Wait()
			_, err := c.Next(ctx)
			return err
		})
		if err != nil || runs != 2 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

// TestStreamPausesAfterLosses: a handler that finds no room for the name of a change lists again, and
// not at once each time.
func TestStreamPausesAfterLosses(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		r, views := following(ctx, w, w.clients(), vrunner.Config{})
		const losses = 20
		share := memory.NewBudget(10).Share(10)
		runs, began := 0, time.Now()
		err := r.Stream(ctx, func(ctx context.Context, _ string) error {
			if runs++; runs > losses {
				return nil
			}
			c := subscribe(memory.With(ctx, share), t, views["v1"], "old")
			defer c.Close()
			w.put(ctx, "v1", "old", "a", time.Duration(runs).String())
			_, err := c.Next(ctx)
			return err
		})
		if took := time.Since(began); err != nil || runs != losses+1 || took < 10*time.Second || took > 5*time.Minute {
			t.Errorf("%d runs within %s, %v", runs, took, err)
		}
	})
}

// TestStreamWithoutRoomEnds: a stream whose further runs find no room ends after a minute, and gives
// back what it remembers of its client.
func TestStreamWithoutRoomEnds(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		r, views := following(ctx, w, w.clients(), vrunner.Config{})
		share := memory.NewBudget(10).Share(10)
		runs, began := 0, time.Now()
		err := r.Stream(ctx, func(ctx context.Context, _ string) error {
			if runs++; runs > 1 {
				return refusal.New(refusal.Busy, errors.New("no room"))
			}
			c := subscribe(memory.With(ctx, share), t, views["v1"], "old")
			defer c.Close()
			w.put(ctx, "v1", "old", "a", "1")
			_, err := c.Next(ctx)
			return err
		})
		reason, _ := refusal.Of(err)
		if took := time.Since(began); reason != refusal.Busy || took < time.Minute || took > 2*time.Minute {
			t.Errorf("after %d runs within %s: %v", runs, took, err)
		}
	})
}

// TestStreamCannotWrite: it has passed no gate.
func TestStreamCannotWrite(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T) {
		w := newWorld(ctx, t, plain)
		r, views := following(ctx, w, w.clients(), vrunner.Config{})
		err := r.Stream(ctx, func(ctx context.Context, _ string) error {
			return views["v1"].Write(ctx, []record.Mutation{{Kind: "old", Key: record.StringKey("a"), Doc: doc("a", "1")}})
		})
		if err == nil || w.stored(ctx, "v1", "old") != "" {
			t.Errorf("%v; stored %q", err, w.stored(ctx, "v1", "old"))
		}
	})
}

// TestStreamIsRefused, with an error that asks the client to try elsewhere.
func TestStreamIsRefused(t *testing.T) {
	t.Parallel()
	unavailable := func(t *testing.T, err error, want string, reason refusal.Reason) {
		t.Helper()
		if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), want) || why(err) != reason {
			t.Errorf("ended with %v, %s, want unavailable: %s, %s", err, why(err), want, reason)
		}
	}
	for _, err := range []error{vrunner.ErrFlipped, vrunner.ErrLost} {
		if why(err) != refusal.StreamEnded {
			t.Errorf("%v: reason %s", err, why(err))
		}
	}
	t.Run("after the flip to an unknown version", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(ctx context.Context, t *testing.T) {
			w := newWorld(ctx, t, plain)
			r, _ := following(ctx, w, map[string]vrunner.Database{"v1": {Client: w.db["v1"]}}, vrunner.Config{})
			runs, ended := streamed(ctx, r)
			w.begin(ctx)
			w.until(ctx, open("v2"))
			expectRuns(t, runs, "v1", vrunner.ErrFlipped.Error())
			unavailable(t, <-ended, "the database is at version v2, this binary knows only v1: use one that knows v2", refusal.ServerTooOld)
		})
	})
	t.Run("when the server stops", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(ctx context.Context, t *testing.T) {
			w := newWorld(ctx, t, plain)
			running, stop := context.WithCancel(ctx)
			r, _ := following(running, w, w.clients(), vrunner.Config{})
			_, ended := streamed(ctx, r)
			stop()
			unavailable(t, <-ended, "server stops", refusal.Stopping)
			unavailable(t, r.Stream(ctx, func(context.Context, string) error { t.Error("ran"); return nil }), "server stops", refusal.Stopping)
		})
	})
}

// TestRawStream: a streaming response comes as it is written, and ends with the version.
func TestRawStream(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := newWorld(ctx, t, plain)
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		_, _ = io.WriteString(w, context.Cause(r.Context()).Error())
	}
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), func(string, map[string]*vrunner.View) vrunner.Stack {
		return vrunner.Stack{
			Handler: http.HandlerFunc(handler), Write: func(*http.Request) bool { return true },
			Stream: func(r *http.Request) bool { return r.URL.Path == "/stream" },
		}
	}, vrunner.Config{ID: "server"}, nil)
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }() // ends with ctx
	defer func() { cancel(); <-done }()
	eventually(t, "ready", func() bool { return r.Ready() == nil })
	server := httptest.NewServer(r)
	defer server.Close()
	res, err := server.Client().Get(server.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 6)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first\n" {
		t.Fatalf("%s, %v", first, err)
	}
	w.begin(ctx)
	w.until(ctx, open("v2"))
	if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != vrunner.ErrFlipped.Error() {
		t.Errorf("%s, %v", rest, err)
	}
}
