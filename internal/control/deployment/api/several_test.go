package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/upgradestate"
)

const (
	noController = "no controller runs"
	aController  = "a controller runs"
)

// replaceable is a Several behind real HTTP, with the two Services of one deployment. down answers first.
type replaceable struct {
	served
	several  *api.Several
	down, up *api.Service
	id       string        // of a registered application
	asked    chan string   // ids of applications whose calls have come to a Service
	broken   chan struct{} // calls of GetLocation that the caller broke off
	over     chan struct{} // such calls that the server is done with
}

func serveReplaceable(t *testing.T) replaceable {
	t.Helper()
	w := deploymenttest.New(t).WithVersions(t)
	r := replaceable{id: "client-shop-1", asked: make(chan string, 1000), broken: make(chan struct{}, 100), over: make(chan struct{}, 100)}
	store := deployment.New(lookups{w.Coord, r.asked}, name, deployment.Config{})
	service := func(waits string) *api.Service {
		return api.New(w.Coord, store, api.Config{Waits: func() []upgradestate.Blocker {
			return []upgradestate.Blocker{upgradestate.BlockerOf(upgradestate.BlockController, errors.New(waits))}
		}})
	}
	r.down, r.up = service(noController), service(aController)
	r.several = api.NewSeveral(r.down)
	path, handler := api.NewHandlerOf(r.several, r.several)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/GetLocation") {
			context.AfterFunc(req.Context(), func() { r.broken <- struct{}{} })
			defer func() { r.over <- struct{}{} }()
		}
		handler.ServeHTTP(w, req)
	}))
	r.served = served{World: w, url: server.URL + path, client: server.Client()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for _, s := range []*api.Service{r.down, r.up} {
		go func() { ended <- s.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel() // ends long calls, for which Close would wait
		<-ended
		<-ended
		server.Close()
	})
	// Until Run runs, clients are told to ask again.
	for status := 0; status != http.StatusOK; {
		var answer []byte
		var err error
		status, answer, err = r.call(t.Context(), "RegisterClient", fmt.Sprintf(`{"application": "shop", "clientId": %q, "ttlMs": 300000}`, r.id))
		if err != nil || status != http.StatusOK && status != http.StatusServiceUnavailable {
			t.Fatalf("%d %s %v", status, answer, err)
		}
	}
	for len(r.asked) > 0 {
		<-r.asked
	}
	return r
}

// wait calls for the application until the deployment changes. It returns when the call is under way.
func (r replaceable) wait(ctx context.Context, t *testing.T) (answer chan string) {
	t.Helper()
	d, err := r.Store.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answer = make(chan string, 1)
	go func() {
		_, text, err := r.call(ctx, "GetLocation", fmt.Sprintf(`{"clientId": %q, "waitRevision": "%d", "timeoutMs": 300000}`, r.id, d.Revision))
		answer <- fmt.Sprint(string(text), err)
	}()
	<-r.asked
	return answer
}

// TestReplacedServiceEndsLongCalls: one Service answers while no controller runs, and another one
// afterwards. Watches and waiting calls of the replaced one end, so that their callers come to the
// other. This holds also when the first one returns.
func TestReplacedServiceEndsLongCalls(t *testing.T) {
	t.Parallel()
	r := serveReplaceable(t)
	for _, step := range []struct {
		shown string
		next  *api.Service
	}{{noController, r.up}, {aController, r.down}, {noController, r.up}} {
		next, end, err := r.stream(t.Context(), "WatchDeployment", fmt.Sprintf(`{"name": %q}`, name))
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		var got struct{ Progress struct{ WaitsFor []string } }
		if err := next(&got); err != nil || !slices.Contains(got.Progress.WaitsFor, step.shown) {
			t.Fatalf("the watch shows %+v, %v; want that it waits for %q", got, err, step.shown)
		}
		answer := r.wait(t.Context(), t)
		r.several.Set(step.next)
		const stopping = "this controller is stopping: retry"
		if err := next(&got); err == nil || err.Error() != "unavailable: "+stopping {
			t.Errorf("the watch of %q goes on with %+v, %v", step.shown, got, err)
		}
		if text := <-answer; !strings.Contains(text, stopping) {
			t.Errorf("the call that %q answers ends with %s", step.shown, text)
		}
		// The application did not break its call off.
		if _, err := r.Store.RegisteredUnder(t.Context(), r.id); err != nil {
			t.Errorf("the application of that call: %v", err)
		}
	}
}

// TestReplacedServiceEndsNoRegistration: an application breaks its call off, and the Service of that
// call is replaced. It cannot notice that the application calls the other one, so the registration
// stays.
func TestReplacedServiceEndsNoRegistration(t *testing.T) {
	t.Parallel()
	r := serveReplaceable(t)
	ctx, breakOff := context.WithCancel(t.Context())
	defer breakOff()
	answer := r.wait(ctx, t)
	breakOff()
	<-answer
	<-r.broken
	r.several.Set(r.up)
	<-r.over
	if _, err := r.Store.RegisteredUnder(t.Context(), r.id); err != nil {
		t.Error(err)
	}
}
