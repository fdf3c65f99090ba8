// Package page serves the page for operators: a view of all deployments in a browser, with the verbs
// of the command line. The files are part of the binary. The page loads nothing from elsewhere, and
// talks to the Deployment API like every other client, with the roles of its user.
//
// The files themselves contain no data, so callers without an identity may load them. Everything else
// comes from the API.
//
// The package does not own the API or the checks on callers (package access). Begin to read at New,
// and in the browser at files/main.js.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"dbcontroller.dev/internal/access"
)

// Root is the path of the page. Its files lie below.
const Root = "/ui/"

// SessionPath answers who calls, and with which roles.
const SessionPath = Root + "session"

// Paths is the access table of the page. A browser sends no token with the address that its user
// opens, so everyone may load the files.
var Paths = access.Table{
	"/ui":       {Least: access.Anyone},
	Root:        {Least: access.Anyone},
	SessionPath: {Least: access.Viewer},
}

//go:embed files
var embedded embed.FS

// Session is the answer at SessionPath.
type Session struct {
	Identity string   `json:"identity"`
	Proof    string   `json:"proof"`
	Operator bool     `json:"operator"` // may change deployments
	Others   []string `json:"others"`   // addresses of all controllers, for the time when this one is gone
}

// file is one file of the page.
type file struct {
	content []byte
	tag     string // of its content, for caches
}

// Page serves the files and the session.
type Page struct {
	files  map[string]file // by path
	others []string
	policy string
}

// New returns the page. others are the addresses of all controllers, such as
// https://controller-2:7090. The page goes to them when its own controller is gone.
func New(others []string) (*Page, error) {
	p := &Page{files: map[string]file{}, others: others, policy: policy(others)}
	err := fs.WalkDir(embedded, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		p.files[Root+strings.TrimPrefix(name, "files/")] = file{content, `"` + hex.EncodeToString(sum[:16]) + `"`}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("files of the page: %w", err)
	}
	p.files[Root] = p.files[Root+"index.html"]
	return p, nil
}

// Register adds the paths of the page to a mux.
func (p *Page) Register(mux *http.ServeMux) {
	mux.Handle("GET /ui", http.RedirectHandler(Root, http.StatusPermanentRedirect))
	mux.HandleFunc("GET "+Root, p.serve)
	mux.HandleFunc("GET "+SessionPath, p.session)
}

// policy returns the content security policy. No script, style or image comes from elsewhere, none is
// inline, and texts never become HTML (trusted types). Only API calls may go to other controllers.
func policy(others []string) string {
	connect := append([]string{"connect-src 'self'"}, others...)
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", strings.Join(connect, " "),
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; ")
}

func (p *Page) headers(h http.Header) {
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
}

// types are the media types of the files. The table of the machine may have others.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", "": "text/plain; charset=utf-8",
}

func (p *Page) serve(w http.ResponseWriter, r *http.Request) {
	p.headers(w.Header())
	f, ok := p.files[r.URL.Path]
	if !ok {
		http.Error(w, "the page has no such file", http.StatusNotFound)
		return
	}
	name := r.URL.Path
	if name == Root {
		name += "index.html"
	}
	w.Header().Set("Content-Type", types[path.Ext(name)])
	// A controller of another build has other files, so browsers ask each time.
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", f.tag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.content))
}

func (p *Page) session(w http.ResponseWriter, r *http.Request) {
	p.headers(w.Header())
	caller, ok := access.CallerOf(r.Context())
	if !ok {
		http.Error(w, "no guard has asked who calls", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	s := Session{Identity: caller.Name, Proof: caller.Proof, Operator: caller.May(access.Operator), Others: p.others}
	_ = json.NewEncoder(w).Encode(s) // it fails only if the caller has gone
}
