package deployment_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

func TestServers(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	l, gone := deploymenttest.Lease(t, w.Coord), deploymenttest.Lease(t, w.Coord)
	for _, reg := range []struct {
		id string
		l  coord.Lease
	}{{"b", l}, {"a/x", gone}} {
		if err := w.Store.Register(t.Context(), reg.l, deploymenttest.Server(reg.id)); err != nil {
			t.Fatal(err)
		}
	}
	servers, err := w.Store.Servers(t.Context())
	if err != nil || len(servers) != 2 || servers[0].ID != "a/x" || servers[1].ID != "b" {
		t.Fatalf("got %+v, %v", servers, err)
	}
	holding := deploymenttest.Server("b")
	holding.AckID, holding.AckAttempt = "u1", 2
	if err := w.Store.Register(t.Context(), l, holding); err != nil {
		t.Fatal(err)
	}
	for attempt, want := range map[uint64]int{1: 0, 2: 1, 3: 0} {
		if acked, total, err := w.Store.Acks(t.Context(), "u1", attempt); acked != want || total != 2 || err != nil {
			t.Errorf("attempt %d: %d of %d, %v", attempt, acked, total, err)
		}
	}
	w.Coord.Expire(gone.ID())
	if acked, total, err := w.Store.Acks(t.Context(), "u1", 2); acked != 1 || total != 1 || err != nil {
		t.Errorf("after one died: %d of %d, %v", acked, total, err)
	}
	if err := w.Store.Register(t.Context(), gone, deploymenttest.Server("a/x")); !errors.Is(err, coord.ErrLeaseLost) {
		t.Errorf("under a lost lease: %v", err)
	}
	if err := w.Store.Register(t.Context(), l, deploymenttest.Server("")); err == nil {
		t.Error("a server without a name was registered")
	}
}

// TestDeregisterUnderALease: a client that has moved to another controller since stays.
func TestDeregisterUnderALease(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	here, there := deploymenttest.Lease(t, w.Coord), deploymenttest.Lease(t, w.Coord)
	if err := w.Store.Register(t.Context(), here, deploymenttest.Server("client-a")); err != nil {
		t.Fatal(err)
	}
	was, err := w.Store.RegisteredUnder(t.Context(), "client-a")
	if err != nil || was != here.ID() {
		t.Fatalf("lease %d, %v, want %d", was, err, here.ID())
	}
	if err := w.Store.TakeOver(t.Context(), there.ID(), deploymenttest.Server("client-a")); err != nil {
		t.Fatal(err)
	}
	if err := w.Store.Deregister(t.Context(), "client-a", was); err != nil {
		t.Error(err)
	}
	if is, err := w.Store.RegisteredUnder(t.Context(), "client-a"); err != nil || is != there.ID() {
		t.Errorf("lease %d, %v, want %d", is, err, there.ID())
	}
	for range 2 { // that it is gone is no error
		if err := w.Store.Deregister(t.Context(), "client-a", there.ID()); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.Store.RegisteredUnder(t.Context(), "client-a"); !errors.Is(err, deployment.ErrNotRegistered) {
		t.Errorf("after it: %v", err)
	}
}

func TestHeldWaitsForEveryServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t)
		l, dying := deploymenttest.Lease(t, w.Coord), deploymenttest.Lease(t, w.Coord)
		for id, l := range map[string]coord.Lease{"a": l, "b": dying} {
			if err := w.Store.Register(t.Context(), l, deploymenttest.Server(id)); err != nil {
				t.Fatal(err)
			}
		}
		held := make(chan error, 1)
		go func() { held <- w.Store.Held(t.Context(), "u1", 2) }()
		ack := deploymenttest.Server("a")
		ack.AckID, ack.AckAttempt = "u1", 2
		if err := w.Store.Register(t.Context(), l, ack); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-held:
			t.Fatalf("held before b: %v", err)
		default:
		}
		w.Coord.Expire(dying.ID())
		if err := <-held; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Store.Held(ctx, "u1", 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the next attempt: %v", err)
		}
	})
}

// TestPresence: a server whose lease is lost comes back by itself with what it said last.
func TestPresence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t)
		client := w.Coord.Client()
		p := deployment.NewPresence(deployment.New(client, name, deployment.Config{}))
		if err := p.Announce(t.Context(), deploymenttest.Server("a")); !errors.Is(err, deployment.ErrAbsent) {
			t.Errorf("before Run: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		registered := func(when string, n int, held int) {
			t.Helper()
			synctest.Wait()
			servers, err := w.Store.Servers(t.Context())
			if err != nil || len(servers) != n || n > 0 && servers[0].Held != held {
				t.Errorf("%s: %+v, %v", when, servers, err)
			}
		}
		registered("at first", 1, 0)
		s := deploymenttest.Server("a")
		s.Held = 3
		if err := p.Announce(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		registered("after a change", 1, 3)

		client.Cut()
		<-time.After(time.Minute)
		registered("cut off", 0, 0)
		s.Held = 5
		short, end := context.WithTimeout(t.Context(), time.Second)
		if err := p.Announce(short, s); err == nil {
			t.Error("announced without a connection")
		}
		end()
		client.Heal()
		<-time.After(10 * time.Second)
		registered("back", 1, 5)

		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		registered("after the end", 0, 0)
	})
}

// TestWarningsAreBounded: what a process says of itself is announced as far as there is room,
// for servers and for controllers, and gone with the process.
func TestWarningsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := deploymenttest.New(t)
		many := make([]string, limits.Warnings+1)
		for i := range many {
			many[i] = strings.Repeat("é", limits.WarningBytes) // does not fit in, and is cut within a letter
		}
		many[0] = "x" + many[0]
		warned := deploymenttest.Server("s")
		warned.Warnings = many
		ctx, stop := context.WithCancel(t.Context())
		for _, announce := range []func(*deployment.Presence) error{
			func(p *deployment.Presence) error { return p.Announce(ctx, warned) },
			func(p *deployment.Presence) error { return p.AnnounceInsecure(ctx, "c/1", many) },
		} {
			p := deployment.NewPresence(w.Store)
			if err := announce(p); !errors.Is(err, deployment.ErrAbsent) {
				t.Errorf("without a lease: %v", err)
			}
			go p.Run(ctx) //nolint:errcheck // it ends with ctx
		}
		synctest.Wait()
		servers, err := w.Store.Servers(ctx)
		if err != nil || len(servers) != 1 {
			t.Fatalf("%+v, %v", servers, err)
		}
		insecure := func() ([]deployment.Insecure, error) {
			s, err := w.Store.State(t.Context(), upgradestate.Deployment{})
			return s.Insecure, err
		}
		controllers, err := insecure()
		if err != nil || len(controllers) != 1 || controllers[0].ID != "c/1" {
			t.Fatalf("%+v, %v", controllers, err)
		}
		for _, got := range [][]string{servers[0].Warnings, controllers[0].Warnings} {
			if len(got) != limits.Warnings || len(got[0]) != limits.WarningBytes-1 || !utf8.ValidString(got[0]) {
				t.Errorf("%d texts, the first of %d bytes", len(got), len(got[0]))
			}
		}
		stop()
		synctest.Wait()
		if left, err := insecure(); err != nil || len(left) != 0 {
			t.Errorf("%+v is left, %v", left, err)
		}
	})
}
