package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/deployment/deploymenttest"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/refusal"
)

// served is a world with its service behind real HTTP.
type served struct {
	deploymenttest.World
	url      string
	client   *http.Client
	verifier *verifier
	arrived  chan string // paths of requests
}

type upgrades struct{}

func (upgrades) TransformHash(from, to string) (string, error) {
	if from != "v1" || to == "v9" {
		return "", fmt.Errorf("no way from %s to %s is configured", from, to)
	}
	return "h1", nil
}

type verifier struct {
	started, finish chan struct{}
	report          verify.Report
	err             error
}

func (v *verifier) Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error) {
	progress(verify.Report{Compared: 1})
	progress(verify.Report{Compared: 2})
	close(v.started)
	select {
	case <-v.finish:
		return v.report, v.err
	case <-ctx.Done():
		return verify.Report{}, ctx.Err()
	}
}

func serve(t *testing.T, w deploymenttest.World) served {
	t.Helper()
	return serveWith(t, w, api.Config{})
}

// serveWith serves with the hooks of a configuration.
func serveWith(t *testing.T, w deploymenttest.World, cfg api.Config) served {
	t.Helper()
	v := &verifier{started: make(chan struct{}), finish: make(chan struct{})}
	if cfg.Upgrades == nil {
		cfg.Upgrades = upgrades{}
	}
	cfg.Verifier = v
	service := api.New(w.Coord, w.Store, cfg)
	path, handler := api.NewHandler(service)
	arrived := make(chan string, 1000)
	mux := http.NewServeMux()
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		// Whole: a caller that gives up from here on is one whose call is under way.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		arrived <- r.URL.Path[len(path):]
		handler.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	t.Cleanup(func() {
		cancel() // ends long calls, for which Close would wait
		<-done
		server.Close()
	})
	a := served{World: w, url: server.URL + path, client: server.Client(), verifier: v, arrived: arrived}
	// Until Run runs, clients are told to ask again.
	for {
		status, answer, err := a.call(t.Context(), "RegisterClient", `{"application": "probe", "ttlMs": 1000}`)
		if err != nil {
			t.Fatal(err)
		}
		if status == http.StatusServiceUnavailable {
			continue
		}
		// It would take a place of a later client until its time is over. In some tests it is refused.
		var probe struct{ ClientID string }
		if status == http.StatusOK && json.Unmarshal(answer, &probe) == nil {
			a.ok(t, "DeregisterClient", `{"clientId": "`+probe.ClientID+`"}`, &struct{}{})
		}
		return a
	}
}

// call is curl -H 'Content-Type: application/json' -d body.
func (a served) call(ctx context.Context, method, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+method, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := a.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close() //nolint:errcheck // read only
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// ok calls and decodes into v.
func (a served) ok(t *testing.T, method, body string, v any) {
	t.Helper()
	status, answer, err := a.call(t.Context(), method, body)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s(%s): %d %s %v", method, body, status, answer, err)
	}
	if err := json.Unmarshal(answer, v); err != nil {
		t.Fatalf("%s(%s): %s: %v", method, body, answer, err)
	}
}

// fails calls and compares code and message.
func (a served) fails(t *testing.T, method, body, want string) {
	t.Helper()
	status, answer, err := a.call(t.Context(), method, body)
	var e struct {
		Code, Message string
		Details       []struct{ Debug struct{ Reason string } }
	}
	if err == nil {
		err = json.Unmarshal(answer, &e)
	}
	if got := e.Code + ": " + e.Message; err != nil || status == http.StatusOK || got != want {
		t.Errorf("%s(%s)\n     %d %s %v\nwant %s", method, body, status, got, err, want)
	}
	reason := map[string]refusal.Reason{
		"failed_precondition": refusal.NotInThisState, "unavailable": refusal.CoordinationUnavailable,
		"resource_exhausted": refusal.Full, "data_loss": refusal.Unreadable,
	}[e.Code]
	if strings.Contains(want, "this controller is starting") && e.Code == "unavailable" {
		reason = refusal.NotReady
	}
	if strings.Contains(want, "newer format") { // no state, but a controller that is too old
		reason = refusal.ControllerTooOld
	}
	if reason != "" && (len(e.Details) != 1 || e.Details[0].Debug.Reason != string(reason)) {
		t.Errorf("%s(%s) says %q without the reason that programs read, %s: %+v", method, body, want, reason, e.Details)
	}
}
