package vrunner_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// mute is a registration that fails while it is broken.
type mute struct {
	*announced
	broken atomic.Bool
}

func (m *mute) Announce(ctx context.Context, s upgradestate.ServerState) error {
	if m.broken.Load() {
		return errors.New("no lease")
	}
	return m.announced.Announce(ctx, s)
}

// TestAnnouncedInTheEnd: what could not be announced is announced as soon as that is
// possible, as it is then, however long it took. It is worth a warning once it takes longer
// than a process needs to have a lease.
func TestAnnouncedInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		w, m := newWorld(ctx, t, plain), &mute{announced: &announced{}}
		m.broken.Store(true)
		core, logged := observer.New(zap.WarnLevel)
		warnings := func() int { return logged.FilterMessage("state is not announced").Len() }
		r := vrunner.New(struct {
			*deployment.Store
			*mute
		}{w.store, m}, w.clients(), (&service{}).stack, vrunner.Config{ID: "server"}, zaplog.New(zap.New(core)))
		go func() { _ = r.Run(ctx) }() // ends with ctx
		<-time.After(time.Second)
		if n := warnings(); n != 0 {
			t.Errorf("%d warnings right after the start", n)
		}
		<-time.After(time.Minute)
		if n := warnings(); n != 1 {
			t.Errorf("%d warnings after a minute", n)
		}
		m.broken.Store(false)
		<-time.After(1500 * time.Millisecond)
		if said := m.last(); said.Active != "v1" {
			t.Errorf("announced %+v", said)
		}
		m.broken.Store(true)
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		<-time.After(100 * time.Millisecond)
		m.broken.Store(false)
		<-time.After(1500 * time.Millisecond)
		if n := warnings(); n != 1 {
			t.Errorf("%d warnings, of which those after a short break are none", n)
		}
		if said, u := m.last(), w.get(ctx).Upgrade; said.AckID != u.ID || said.AckAttempt != u.Attempt {
			t.Errorf("announced %+v, want an acknowledgement", said)
		}
	})
}

// TestTrailers: a response comes as its handler made it, with headers before and trailers
// after the body, and without what came too late.
func TestTrailers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := newWorld(ctx, t, plain)
	handler := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Checksum")
		w.Header().Set("Before", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set("Checksum", "sum")
		w.Header().Set(http.TrailerPrefix+"Undeclared", "too")
		w.Header().Set("Late", "1")
	}
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), func(string, map[string]*vrunner.View) vrunner.Stack {
		return vrunner.Stack{Handler: http.HandlerFunc(handler), Write: func(*http.Request) bool { return false }}
	}, vrunner.Config{ID: "server"}, nil)
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }() // ends with ctx
	defer func() { cancel(); <-done }()
	eventually(t, "ready", func() bool { return r.Ready() == nil })
	server := httptest.NewServer(r)
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != "body" || res.StatusCode != http.StatusAccepted {
		t.Errorf("%d %q, %v", res.StatusCode, body, err)
	}
	if res.Header.Get("Before") != "1" || res.Header.Get("Late") != "" || res.Header.Get("Checksum") != "" {
		t.Errorf("headers %v", res.Header)
	}
	if res.Trailer.Get("Checksum") != "sum" || res.Trailer.Get("Undeclared") != "too" {
		t.Errorf("trailers %v", res.Trailer)
	}
}
