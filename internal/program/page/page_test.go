package page

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/access"
)

// served returns the page behind a guard as a controller has it, for a viewer and an operator with
// tokens. Requests without one have no identity.
func served(t *testing.T, others ...string) *httptest.Server {
	t.Helper()
	p, err := New(others)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	p.Register(mux)
	policy, err := access.NewPolicy([]access.Grant{
		{Role: access.Viewer, Identity: "token:viewer"}, {Role: access.Operator, Identity: "token:operator"}, {Role: access.Application, Identity: "token:application"},
	})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := access.NewGuard(access.GuardConfig{Authenticators: []access.Authenticator{named{}}, Policy: policy, Table: access.Calls.With(Paths)})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(guard.Handler(mux))
	t.Cleanup(s.Close)
	return s
}

// answer is an answer whose body was read.
type answer struct {
	Status     string
	StatusCode int
	Header     http.Header
}

// get asks for a path, as the owner of a token if that is not empty.
func get(t *testing.T, s *httptest.Server, path, token string) (answer, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.Status, res.StatusCode, res.Header}, string(text)
}

func TestFiles(t *testing.T) {
	s := served(t)
	for path, kind := range map[string]string{
		"/ui/": "text/html", "/ui/index.html": "text/html", "/ui/main.js": "text/javascript", "/ui/page.css": "text/css",
		"/ui/icon.svg": "image/svg+xml", "/ui/uplot/uplot.js": "text/javascript", "/ui/uplot/LICENSE": "text/plain",
	} {
		res, text := get(t, s, path, "")
		if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), kind) || text == "" {
			t.Errorf("%s: %s, %s, %d bytes", path, res.Status, res.Header.Get("Content-Type"), len(text))
		}
	}
	if res, _ := get(t, s, "/ui", ""); res.StatusCode != http.StatusPermanentRedirect || res.Header.Get("Location") != "/ui/" {
		t.Errorf("/ui: %s to %q", res.Status, res.Header.Get("Location"))
	}
	for _, path := range []string{"/ui/absent", "/ui/page.go", "/ui/files/main.js", "/ui/uplot/", "/ui/%2e%2e/page.go"} {
		if res, _ := get(t, s, path, ""); res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

// TestHeaders checks that no foreign byte may run on the page, and that nobody can frame it.
func TestHeaders(t *testing.T) {
	s := served(t, "https://controller-2:7090")
	for _, path := range []string{"/ui/", "/ui/main.js", "/ui/absent"} {
		res, _ := get(t, s, path, "")
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' https://controller-2:7090; " +
				"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s: got %q, want %q", path, name, got, want)
			}
		}
	}
}

func TestFilesAreCached(t *testing.T) {
	s := served(t)
	res, _ := get(t, s, "/ui/main.js", "")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/ui/main.js", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("If-None-Match", res.Header.Get("ETag"))
	again, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Body.Close()
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("with its tag: %s", again.Status)
	}
}

func TestSession(t *testing.T) {
	s := served(t, "https://controller-2:7090")
	for token, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "application": http.StatusForbidden} {
		if res, _ := get(t, s, "/ui/session", token); res.StatusCode != want {
			t.Errorf("as %q: %s, want %d", token, res.Status, want)
		}
	}
	for _, token := range []string{"viewer", "operator"} {
		res, text := get(t, s, "/ui/session", token)
		var got Session
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v in %s", res.Status, err, text)
		}
		want := Session{Identity: "token:" + token, Proof: "token", Operator: token == "operator", Others: []string{"https://controller-2:7090"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("as %s (-want +got):\n%s", token, diff)
		}
		if res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("it may be cached: %s", res.Header.Get("Cache-Control"))
		}
	}
}

// TestForeignPagesAreRefused checks that another page cannot embed a file of this one.
func TestForeignPagesAreRefused(t *testing.T) {
	s := served(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/ui/main.js", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	req.Header.Set("Sec-Fetch-Dest", "script")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign page got %s", res.Status)
	}
}

// most is the limit of all files together.
const most = 300 << 10

var (
	foreign = regexp.MustCompile(`(?:src|href|from|import\()\s*[=(]?\s*["'](?:https?:)?//`)
	html    = regexp.MustCompile(`\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser`)
)

// TestFilesAreSmallAndSafe checks the size of the page, and that its own code loads nothing from
// elsewhere and makes no HTML of texts.
func TestFilesAreSmallAndSafe(t *testing.T) {
	p, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for path, f := range p.files {
		if path != Root {
			size += len(f.content)
		}
		if strings.HasPrefix(path, Root+"uplot/") {
			continue
		}
		for _, wrong := range []*regexp.Regexp{foreign, html} {
			if found := wrong.Find(f.content); found != nil {
				t.Errorf("%s contains %q", path, found)
			}
		}
		if strings.HasSuffix(path, ".html") && regexp.MustCompile(`<script>|<style|\sstyle=|\son[a-z]+=`).Match(f.content) {
			t.Errorf("%s has inline scripts or styles", path)
		}
	}
	if size > most {
		t.Errorf("the page has %d bytes, more than %d", size, most)
	}
}
