package door_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/door"
)

// TestPagesOfOtherControllers checks that the pages that a configuration names may call and read, and
// that they still need an identity. No other page may.
func TestPagesOfOtherControllers(t *testing.T) {
	const mine, foreign = "https://controller-2.example.org", "https://evil.example.org"
	reached := false
	h, _, err := door.Handler(door.Config{What: "API", Pages: []string{mine}, Table: access.Table{"/call": {Least: access.Viewer}}},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	type answer struct {
		status  string
		code    int
		allowed string
	}
	send := func(method, origin string) answer {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/call", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", origin)
		if method == http.MethodOptions {
			req.Header.Set("Access-Control-Request-Method", http.MethodPost)
			req.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
		}
		reached = false
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return answer{res.Status, res.StatusCode, res.Header.Get("Access-Control-Allow-Origin")}
	}

	if res := send(http.MethodOptions, mine); res.code != http.StatusNoContent || res.allowed != mine || reached {
		t.Errorf("a page of ours asks: %s, allowed %q, reached %v", res.status, res.allowed, reached)
	}
	if res := send(http.MethodPost, mine); res.code != http.StatusOK || res.allowed != mine || !reached {
		t.Errorf("a page of ours calls: %s, allowed %q, reached %v", res.status, res.allowed, reached)
	}
	for _, method := range []string{http.MethodOptions, http.MethodPost} {
		if res := send(method, foreign); res.code != http.StatusForbidden || res.allowed != "" || reached {
			t.Errorf("%s of a foreign page: %s, allowed %q, reached %v", method, res.status, res.allowed, reached)
		}
	}
}

// TestPagesNeedIdentities checks that permission for a page is none for its user.
func TestPagesNeedIdentities(t *testing.T) {
	const mine = "https://controller-2.example.org"
	lock := &door.Lock{Authenticators: []access.Authenticator{access.Certificates{}}}
	h, _, err := door.Handler(door.Config{What: "API", Pages: []string{mine}, Lock: lock, Table: access.Table{"/call": {Least: access.Viewer}}},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a caller without identity was let in") }))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/call", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", mine)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	// The page reads the refusal, and shows its login.
	if res.StatusCode != http.StatusUnauthorized || res.Header.Get("Access-Control-Allow-Origin") != mine {
		t.Errorf("%s, allowed %q", res.Status, res.Header.Get("Access-Control-Allow-Origin"))
	}
}
