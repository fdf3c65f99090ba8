package hooks_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/engine/hooks"
)

func send(t *testing.T, address, secret string, timeout time.Duration) error {
	t.Helper()
	w, err := hooks.NewWebhook(address, secret)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return w.Send(ctx, hooks.Event{ID: "event-1", Type: hooks.Switched}, []byte(`{"id":"event-1"}`))
}

// TestWebhookIsSigned: a receiver can tell that the request is ours, by any library for
// Standard Webhooks.
func TestWebhookIsSigned(t *testing.T) {
	t.Parallel()
	key := []byte("a key of many characters")
	for name, secret := range map[string]string{"plain": string(key), "standard": "whsec_" + base64.StdEncoding.EncodeToString(key), "none": ""} {
		var got http.Header
		var body []byte
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header
			body, _ = io.ReadAll(r.Body)
			w.WriteHeader(http.StatusAccepted)
		}))
		if err := send(t, s.URL+"/hook?token=hidden", secret, time.Minute); err != nil {
			t.Fatal(err)
		}
		s.Close()
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte("event-1." + got.Get("Webhook-Timestamp") + "." + string(body)))
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if secret == "" {
			want = ""
		}
		if got.Get("Webhook-Signature") != want || got.Get("Webhook-Id") != "event-1" || got.Get("Content-Type") != "application/json" || string(body) != `{"id":"event-1"}` {
			t.Errorf("%s: %v %s, want the signature %q", name, got, body, want)
		}
	}
	if _, err := hooks.NewWebhook("https://a", "whsec_hidden!"); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a secret that is no base64: %v", err)
	}
}

// TestHostileEndpoints: each fails in time, whatever it answers, and no error shows the
// address, which may be a secret.
func TestHostileEndpoints(t *testing.T) {
	t.Parallel()
	const short = 300 * time.Millisecond
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	released := make(chan struct{})
	handlers := map[string]http.HandlerFunc{
		"status 500": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"status 404": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) },
		"status 302": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"deadline":   func(_ http.ResponseWriter, r *http.Request) { <-released },
		"EOF": func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.Close()
		},
		"headers exceeded": func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				w.Header().Add("X-Long", strings.Repeat("a", 10_000))
			}
		},
	}
	for want, h := range handlers {
		s := httptest.NewServer(h)
		start, patience := time.Now(), time.Minute
		if want == "deadline" {
			patience = short
		}
		err := send(t, s.URL+"/hidden", "", patience)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", want, err)
		}
		if took := time.Since(start); want == "deadline" && took > 30*time.Second {
			t.Errorf("%s took %s", want, took)
		}
		defer s.Close()
	}
	// What it says after a status that takes the event is of no interest, however long.
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	if err := send(t, endless.URL, "", time.Minute); err != nil {
		t.Errorf("endless answer: %v", err)
	}
	close(released)
	for address, want := range map[string]string{
		"http://" + accesstest.ClosedPort(t) + "/hidden": "refused",
		"https://127.0.0.1:0/hidden":                     "",
		"http://[::1/hidden":                             "the address is not valid",
	} {
		err := send(t, address, "", time.Minute)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
