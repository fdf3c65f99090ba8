package access_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
)

// TestIssuerHangs: while an issuer does not answer it is asked once for all who wait. A caller who
// leaves waits no longer, and a token that cannot be of that issuer waits for nothing.
func TestIssuerHangs(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	issuer, err := access.OpenIssuer(access.IssuerConfig{Name: "corp", Issuer: server.URL, Audience: "dbcontroller"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	stranger := accesstest.NewIssuer(t)
	for _, audience := range []string{"billing", "expired"} {
		claims := map[string]any{"iss": server.URL, "sub": "alice"}
		if audience == "expired" {
			audience, claims["exp"] = "dbcontroller", time.Now().Add(-time.Minute).Unix()
		}
		if _, err := issuer.Authenticate(t.Context(), with("Bearer "+stranger.Token(t, audience, claims))); err == nil || asked.Load() > 0 {
			t.Errorf("a token for %s asks the issuer: %v", audience, err)
		}
	}
	token := stranger.Token(t, "dbcontroller", map[string]any{"iss": server.URL, "sub": "alice"})
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if _, err := issuer.Authenticate(ctx, with("Bearer "+token)); err == nil {
				t.Error("it proves somebody")
			}
		})
	}
	for end := time.Now().Add(time.Minute); asked.Load() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	leave()
	wg.Wait() // each would wait for its own try behind the others
	if n := asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

// TestIssuersKeysHang: tokens whose key is not known wait for the keys, and no more of them than may.
func TestIssuersKeysHang(t *testing.T) {
	t.Parallel()
	const tokens, most = 200, 64
	asked, release := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	issuer, err := access.OpenIssuer(access.IssuerConfig{Name: "corp", Issuer: server.URL, Audience: "dbcontroller", KeysURL: server.URL + "/keys"}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	token := with("Bearer " + accesstest.NewIssuer(t).Token(t, "dbcontroller", map[string]any{"iss": server.URL, "sub": "alice"}))
	ctx, leave := context.WithCancel(t.Context())
	begun := time.Now()
	answers := make(chan error, tokens+1)
	call := func() {
		_, err := issuer.Authenticate(ctx, token)
		answers <- err
	}
	go call()
	<-asked // from now on it is the keys that they wait for
	for range tokens {
		go call()
	}
	busy := 0
	for range tokens + 1 - most {
		if err := <-answers; err != nil && strings.Contains(err.Error(), "try again") {
			busy++
		}
	}
	took := time.Since(begun)
	leave()
	for range most {
		<-answers
	}
	// Those that wait give up after five seconds, and leave room to others.
	if busy == 0 || took < 4*time.Second && busy != tokens+1-most {
		t.Errorf("%d of %d are refused after %s, want %d", busy, tokens+1, took, tokens+1-most)
	}
}

// TestTokenForTheIssuer goes to the issuer's host alone, whatever address that names for its keys.
func TestTokenForTheIssuer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]string{}
	note := func(what string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[what] = r.Header.Get("Authorization")
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { note("keys elsewhere", r) }))
	t.Cleanup(elsewhere.Close)
	var home *httptest.Server
	home = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("issuer", r)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"issuer":"` + home.URL + `","jwks_uri":"` + elsewhere.URL + `/keys"}`))
	}))
	t.Cleanup(home.Close)
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("of-the-issuer"), 0o600); err != nil {
		t.Fatal(err)
	}
	issuer, err := access.OpenIssuer(access.IssuerConfig{Name: "corp", Issuer: home.URL, Audience: "dbcontroller", TokenFile: path}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	token := accesstest.NewIssuer(t).Token(t, "dbcontroller", map[string]any{"iss": home.URL, "sub": "alice"})
	if _, err := issuer.Authenticate(t.Context(), with("Bearer "+token)); err == nil {
		t.Error("it proves somebody")
	}
	mu.Lock()
	defer mu.Unlock()
	if elsewhere, asked := got["keys elsewhere"]; !strings.HasSuffix(got["issuer"], "of-the-issuer") || !asked || elsewhere != "" {
		t.Errorf("tokens: %q", got)
	}
}
