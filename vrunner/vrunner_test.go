package vrunner_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// connectJSON makes a request one of the Connect protocol.
func connectJSON(r *http.Request) *http.Request {
	r.Method = http.MethodPost
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Connect-Protocol-Version", "1")
	return r
}

func grpc(r *http.Request) *http.Request {
	r.Method = http.MethodPost
	r.Header.Set("Content-Type", "application/grpc")
	return r
}

// code is that of a Connect error body.
func code(t *testing.T, body []byte) string {
	t.Helper()
	var e struct{ Code string }
	if err := json.Unmarshal(body, &e); err != nil {
		t.Errorf("body %s: %v", body, err)
	}
	return e.Code
}

// reason is that of a refusal, with what its metadata says of the active version.
func reason(t *testing.T, body []byte) string {
	t.Helper()
	var e struct {
		Details []struct {
			Debug struct {
				Reason   string
				Metadata struct{ Active string }
			}
		}
	}
	if err := json.Unmarshal(body, &e); err != nil || len(e.Details) != 1 {
		t.Errorf("body %s: %v", body, err)
		return ""
	}
	return strings.TrimSpace(e.Details[0].Debug.Reason + " " + e.Details[0].Debug.Metadata.Active)
}

// why is the reason that a client is told of an error, which may not be an answer yet.
func why(err error) refusal.Reason {
	if answer, ok := refusal.In(err); ok {
		err = answer
	}
	reason, _ := refusal.Of(err)
	return reason
}

// TestHeldTooLong: past the cap a write is refused in its own protocol, without effect.
func TestHeldTooLong(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{HoldCap: 7 * time.Second}, func(ctx context.Context, w *world, s *service, r *vrunner.Runner, _ *announced) {
		if r.Hold() != 0 {
			t.Errorf("writes were held for %s before any switch", r.Hold())
		}
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		if r.GateOpen() || r.Ready() != nil {
			t.Errorf("gate open %t, ready %v", r.GateOpen(), r.Ready())
		}
		start := time.Now()
		a := send(ctx, r, connectJSON(put("a", "1")))
		b := send(ctx, r, put("b", "1"))
		c := send(ctx, r, grpc(put("c", "1")))
		if held := r.State().Held; held != 3 {
			t.Errorf("%d are held", held)
		}
		<-time.After(7*time.Second - time.Millisecond)
		expectNone(t, "before the cap", a)
		res := <-a
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("held for %s", took)
		}
		if r.Hold() != 7*time.Second {
			t.Errorf("the pause felt is %s", r.Hold())
		}
		if res.Code != http.StatusServiceUnavailable || res.Header().Get("Retry-After") == "" || code(t, res.Body.Bytes()) != "unavailable" || reason(t, res.Body.Bytes()) != "HELD" {
			t.Errorf("Connect: %d %v %s", res.Code, res.Header(), res.Body)
		}
		if res = expect(t, "plain", b, http.StatusServiceUnavailable, ""); res.Header().Get("Retry-After") == "" || reason(t, res.Body.Bytes()) != "HELD" {
			t.Errorf("plain: %v %s", res.Header(), res.Body)
		}
		res = expect(t, "gRPC", c, http.StatusOK, "")
		if status := res.Result().Trailer.Get("Grpc-Status"); status != "14" {
			t.Errorf("gRPC: status %q, %v", status, res.Header())
		}
		if details, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(res.Result().Trailer.Get("Grpc-Status-Details-Bin"), "=")); err != nil ||
			!strings.Contains(string(details), "google.rpc.ErrorInfo") || !strings.Contains(string(details), "HELD") {
			t.Errorf("gRPC: details %q, %v", details, err)
		}
		w.apply(ctx, upgradestate.Abort{ID: "u1", Reason: "test"})
		w.until(ctx, open("v1"))
		synctest.Wait()
		if names := w.stored(ctx, "v1", "old") + w.stored(ctx, "v2", "new"); names != "" || s.ran("v1")+s.ran("v2") > 0 || r.State().Held != 0 {
			t.Errorf("%q were written, %v ran", names, s.runs)
		}
	})
}

// TestTooManyHeld: one more than may wait is refused at once; the others go on.
func TestTooManyHeld(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{MaxHeld: 2}, func(ctx context.Context, w *world, _ *service, r *vrunner.Runner, _ *announced) {
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		a, b := send(ctx, r, put("a", "1")), send(ctx, r, put("b", "1"))
		start := time.Now()
		res := expect(t, "the third", send(ctx, r, connectJSON(put("c", "1"))), http.StatusServiceUnavailable, "")
		if code(t, res.Body.Bytes()) != "unavailable" || res.Header().Get("Retry-After") == "" || time.Since(start) != 0 {
			t.Errorf("after %s: %v %s", time.Since(start), res.Header(), res.Body)
		}
		w.apply(ctx, upgradestate.Abort{ID: "u1", Reason: "test"})
		w.until(ctx, open("v1"))
		expect(t, "the first", a, http.StatusOK, "v1")
		expect(t, "the second", b, http.StatusOK, "v1")
		if names := w.stored(ctx, "v1", "old"); names != "a b" {
			t.Errorf("stored %q", names)
		}
	})
}

// TestAcknowledgement comes when the writes in flight are finished, and not before.
func TestAcknowledgement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		w, s, a := newWorld(ctx, t, plain), &service{}, &announced{}
		slow := faultstore.NewGate(1)
		clients := w.clients()
		clients["v1"] = vrunner.Database{Client: faultstore.WrapClient(w.db["v1"], faultstore.On(slow, faultstore.Write))}
		r := run(ctx, consumer{w.store, a}, clients, s, vrunner.Config{})
		if said := a.last(); said.ID != "server" || said.Active != "v1" || said.Protocol != vrunner.Protocol || strings.Join(said.Versions, " ") != "v1 v2" {
			t.Errorf("announced %+v", said)
		}
		inFlight := send(ctx, r, put("a", "1"))
		<-slow.Held()
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		synctest.Wait()
		held := send(ctx, r, put("b", "1"))
		<-time.After(5 * time.Second)
		expectNone(t, "in flight", inFlight)
		if said := a.last(); said.AckID != "" {
			t.Fatalf("acknowledged %+v with a write in flight", said)
		}
		slow.Open()
		expect(t, "in flight", inFlight, http.StatusOK, "v1")
		attempt := w.get(ctx).Upgrade.Attempt
		if said := a.last(); said.AckID != "u1" || said.AckAttempt != attempt {
			t.Errorf("announced %+v, want an acknowledgement of attempt %d", said, attempt)
		}
		expectNone(t, "held", held)
		w.until(ctx, open("v2"))
		expect(t, "held", held, http.StatusOK, "v2")
		if said := a.last(); said.AckID != "" || said.Active != "v2" || said.RestartMillis == 0 {
			t.Errorf("announced %+v after the flip", said)
		}
		if v1, v2 := w.stored(ctx, "v1", "old"), w.stored(ctx, "v2", "new"); v1 != "a" || v2 != "b" {
			t.Errorf("v1 holds %q, v2 %q", v1, v2)
		}
	})
}

// TestMissedSwitch: a server that does not know of the switch is refused by the database,
// asks, and runs the request once more, on the new stack.
func TestMissedSwitch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		w, s := newWorld(ctx, t, plain), &service{}
		r := run(ctx, deaf{consumer{w.store, &announced{}}}, w.clients(), s, vrunner.Config{})
		w.begin(ctx)
		w.until(ctx, open("v2"))
		synctest.Wait()
		if r.State().Active != "v1" {
			t.Fatal("the server knows already")
		}
		expect(t, "write", send(ctx, r, put("a", "1")), http.StatusOK, "v2")
		if s.ran("v1") != 1 || s.ran("v2") != 1 {
			t.Errorf("ran %v, want once on each", s.runs)
		}
		if v1, v2 := w.stored(ctx, "v1", "old"), w.stored(ctx, "v2", "new"); v1 != "" || v2 != "a" {
			t.Errorf("v1 holds %q, v2 %q", v1, v2)
		}
		if r.State().Active != "v2" {
			t.Error("the server does not know yet")
		}
	})
}

// TestMissedSwitchReading: the same for reads.
func TestMissedSwitchReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		w, s := newWorld(ctx, t, plain), &service{}
		r := run(ctx, deaf{consumer{w.store, &announced{}}}, w.clients(), s, vrunner.Config{})
		w.put(ctx, "v1", "old", "a", "stale")
		w.begin(ctx)
		w.put(ctx, "v2", "new", "a", "fresh")
		w.until(ctx, open("v2"))
		if res := expect(t, "read", send(ctx, r, get("a")), http.StatusOK, "v2"); res.Body.String() != "fresh" {
			t.Errorf("read %s", res.Body)
		}
	})
}

// TestNeverAgainAfterAnEffect: what may have had an effect is not run again, whatever
// the second write of the same request gets the error.
func TestNeverAgainAfterAnEffect(t *testing.T) {
	t.Parallel()
	for label, tc := range map[string]struct {
		fault  faultstore.Fault // of the first write
		absent bool             // the first write needs absence, and there is a record
		again  bool
	}{
		"written":              {},
		"lost acknowledgement": {fault: faultstore.Lost()},
		"broken connection":    {fault: faultstore.Cut()},
		"not sent":             {fault: faultstore.Down()}, // the error does not say so for certain
		"refused":              {absent: true, again: true},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer func() { cancel(); synctest.Wait() }()
				w := newWorld(ctx, t, plain)
				w.put(ctx, "v1", "old", "taken", "0")
				s := &service{}
				s.instead = func(version string, v *vrunner.View, r *http.Request) error {
					first := record.Mutation{Kind: kindOf[version], Key: record.StringKey("first"), Doc: doc("first", "1")}
					if tc.absent {
						first = record.Mutation{Kind: kindOf[version], Key: record.StringKey("taken"), Doc: doc("taken", "1"), Absent: true}
					}
					firstErr := v.Write(r.Context(), []record.Mutation{first})
					if version == "v1" {
						w.until(ctx, open("v2"))
					}
					err := v.Write(r.Context(), []record.Mutation{{Kind: kindOf[version], Key: record.StringKey("second"), Doc: doc("second", "1")}})
					if version == "v1" && !errors.Is(err, record.ErrFenced) {
						t.Errorf("first %v, second %v: want it fenced", firstErr, err)
					}
					return err
				}
				clients := w.clients()
				clients["v1"] = vrunner.Database{Client: faultstore.WrapClient(w.db["v1"], faultstore.On(faultstore.Nth(1, tc.fault), faultstore.Write))}
				r := run(ctx, consumer{w.store, &announced{}}, clients, s, vrunner.Config{})
				w.begin(ctx)
				if done := send(ctx, r, put("x", "1")); tc.again {
					expect(t, "write", done, http.StatusOK, "v2")
				} else {
					expect(t, "write", done, http.StatusConflict, "v1")
				}
				if again := s.ran("v2") > 0; s.ran("v1") != 1 || again != tc.again {
					t.Errorf("ran %v, want again: %t", s.runs, tc.again)
				}
			})
		})
	}
}

// TestReadsDuringTheSwitch answer in every step from what is true then, and wait only
// while the old version is sealed.
func TestReadsDuringTheSwitch(t *testing.T) {
	t.Parallel()
	inBubble(t, vrunner.Config{}, func(ctx context.Context, w *world, _ *service, r *vrunner.Runner, _ *announced) {
		w.put(ctx, "v1", "old", "a", "of v1")
		w.put(ctx, "v2", "new", "a", "of v2")
		w.begin(ctx)
		for _, step := range []upgradestate.Step{upgradestate.StepHold, upgradestate.StepFence, upgradestate.StepDrain, upgradestate.StepSealTarget} {
			w.until(ctx, at(step))
			synctest.Wait()
			expect(t, string(step), send(ctx, r, get("a")), http.StatusOK, "v1")
			if step == upgradestate.StepFence { // moved, and nobody has confirmed it
				for _, a := range upgradestate.Actions(w.get(ctx)) {
					w.execute(ctx, a.(upgradestate.Execute))
				}
				expect(t, "moved", send(ctx, r, get("a")), http.StatusOK, "v1")
			}
		}
		w.until(ctx, at(upgradestate.StepSealSource))
		synctest.Wait()
		expect(t, "announced", send(ctx, r, get("a")), http.StatusOK, "v1")
		for _, a := range upgradestate.Actions(w.get(ctx)) {
			w.execute(ctx, a.(upgradestate.Execute))
		}
		early := send(ctx, r, get("a")) // sealed, and not confirmed yet
		expectNone(t, "moved for the last time", early)
		w.until(ctx, sealed)
		late := send(ctx, r, get("a"))
		<-time.After(3 * time.Second)
		expectNone(t, "sealed, early", early)
		expectNone(t, "sealed, late", late)
		w.until(ctx, open("v2"))
		for _, done := range []<-chan string{body(t, early), body(t, late)} {
			if got := <-done; got != "v2: of v2" {
				t.Errorf("read %q", got)
			}
		}
	})
}
