package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
)

// TestWatchesAreBounded: one more than may watch is refused in a line, and finds room when
// another one ends.
func TestWatchesAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t, deploymenttest.New(t))
	var ends []func()
	for i := range limits.Watches {
		next, end, err := a.stream(t.Context(), "WatchDeployment", "{}")
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		var message any
		if err := next(&message); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		ends = append(ends, end)
	}
	want := fmt.Sprintf("resource_exhausted: there are %d watches at this controller already, and no more may be: ", limits.Watches)
	if err := a.ask(t, "WatchDeployment", "{}"); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("one more: %v, want %s", err, want)
	}
	ends[0]()
	for since := time.Now(); ; {
		next, end, err := a.stream(t.Context(), "WatchDeployment", "{}")
		if err != nil {
			t.Fatal(err)
		}
		var message any
		err = next(&message)
		end()
		if err == nil {
			break
		}
		if time.Since(since) > 3*time.Minute { // a standstill
			t.Fatalf("after another one has ended: %v", err)
		}
	}
}

// TestRegistrationsAreBounded: those that there are go on, and another one finds room once one
// of them is not renewed.
func TestRegistrationsAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t, deploymenttest.New(t))
	var first struct{ ClientID string }
	a.ok(t, "RegisterClient", `{"application": "first", "ttlMs": 300000}`, &first)
	noted := make(chan struct{})
	defer close(noted)
	go func() { // nobody else asks which calls arrive
		for {
			select {
			case <-a.arrived:
			case <-noted:
				return
			}
		}
	}()
	var brief struct{ ClientID string }
	const own = limits.Clients / 2 // of one caller
	for range own - 1 {
		a.ok(t, "RegisterClient", `{"application": "brief", "ttlMs": 300000}`, &brief)
	}
	one := `{"application": "more", "ttlMs": 300000}`
	want := fmt.Sprintf("there are %d registrations of this caller at this controller already", own)
	if status, answer, err := a.call(t.Context(), "RegisterClient", one); err != nil || status == http.StatusOK || !strings.Contains(string(answer), want) {
		t.Fatalf("one more: %d %s %v, want %s", status, answer, err, want)
	}
	a.ok(t, "RegisterClient", `{"clientId": "`+first.ClientID+`", "ttlMs": 300000}`, &first)
	a.ok(t, "RegisterClient", `{"clientId": "`+brief.ClientID+`", "ttlMs": 1000}`, &brief) // its last call
	for since := time.Now(); ; {
		status, answer, err := a.call(t.Context(), "RegisterClient", one)
		if err == nil && status == http.StatusOK {
			break
		}
		if time.Since(since) > 3*time.Minute { // a standstill
			t.Fatalf("after another one has ended: %d %s %v", status, answer, err)
		}
	}
	// One that is ended by many calls gives its place back once.
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if status, answer, err := a.call(t.Context(), "DeregisterClient", `{"clientId": "`+first.ClientID+`"}`); err != nil || status != http.StatusOK {
				t.Errorf("it is not ended: %d %s %v", status, answer, err)
			}
		})
	}
	wg.Wait()
	a.ok(t, "RegisterClient", one, &first)
	if status, answer, err := a.call(t.Context(), "RegisterClient", one); err != nil || status == http.StatusOK {
		t.Errorf("many places for one: %d %s %v", status, answer, err)
	}
}

// TestDeploymentsAreBounded: one more than a list may hold is refused; those that there are can
// be created again, which changes nothing.
func TestDeploymentsAreBounded(t *testing.T) {
	t.Parallel()
	w := deploymenttest.New(t)
	for i := range limits.Deployments - 1 {
		if _, err := deployment.New(w.Coord, fmt.Sprintf("services/s/deployments/d%d", i), deployment.Config{}).Create(t.Context(), "v1", 4); err != nil {
			t.Fatal(err)
		}
	}
	a := serve(t, w)
	status, answer, err := a.call(t.Context(), "CreateDeployment", `{"name": "services/s/deployments/more", "version": "v1"}`)
	if want := fmt.Sprintf("there are %d deployments already", limits.Deployments); err != nil || status == http.StatusOK || !strings.Contains(string(answer), want) {
		t.Errorf("one more: %d %s %v, want %s", status, answer, err, want)
	}
	if status, answer, err := a.call(t.Context(), "CreateDeployment", `{"name": "services/s/deployments/d7", "version": "v1"}`); err != nil || strings.Contains(string(answer), "no more may be") {
		t.Errorf("one that is there: %d %s %v", status, answer, err)
	}
}
