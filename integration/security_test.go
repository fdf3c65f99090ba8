package integration_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/config"
	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/examples/sample"
	"dbcontroller.dev/examples/secrets"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/control/controller"
	"dbcontroller.dev/internal/coord/memcoord"
	controllerapp "dbcontroller.dev/internal/program/dbcontroller/app"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
	serverapp "dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/internal/program/server/samples"
)

// These tests ask every call and every page of every listener as everybody, over real TLS,
// of a controller and a server in this process. No database is there: who may call is
// decided before anything is looked at.

const securityDocument = "../docs/security.md"

// caller is somebody who calls, and the role that it has.
type caller struct {
	name   string
	role   string // none: proven, without a role; nobody: not proven
	client *http.Client
	token  string
}

// secured is a controller and a server with TLS and every kind of identity.
type secured struct {
	authority *accesstest.Authority
	callers   []caller
	at        map[string]string // addresses, by the name that the log has for a listener
	audit     *observer.ObservedLogs
}

const unreachable = `
dbs:
- {namespace: sec/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"}}
- {namespace: sec/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"}}
`

func secure(t *testing.T) *secured {
	t.Helper()
	dir := t.TempDir()
	s := &secured{authority: accesstest.NewAuthority(t)}
	issuer := accesstest.NewIssuer(t)
	s.authority.File(t, filepath.Join(dir, "ca.crt"))
	s.authority.Files(t, dir, "listener", accesstest.Leaf{Subject: pkix.Name{CommonName: "controller"}})
	put(t, filepath.Join(dir, "tokens"), "viewer viewer-0123456789abcdef\nstranger stranger-0123456789abcdef\noperator operator-0123456789abcdef\n")
	s.start(t, dir, fmt.Sprintf(`deployment: services/sec/deployments/x
operator: {listen: "127.0.0.1:0", metrics: "127.0.0.1:0", pprof: true}
api: {listen: "127.0.0.1:0", applications: "127.0.0.1:0"}
access:
  tls: {cert: listener.crt, key: listener.key, clientCA: ca.crt}
  tokens: tokens
  issuers: [{name: cluster, issuer: %q, audience: dbcontroller}]
  roles:
    operator: ["cert:CN=ann,O=ops", "token:operator", "oidc:cluster:root"]
    viewer: ["token:viewer", "oidc:cluster:system:serviceaccount:monitoring:*"]
    application: ["spiffe://example.org/ns/shop/*", "oidc:cluster:system:serviceaccount:shop:billing"]
`, issuer.URL)+unreachable)

	plain := s.client(t, nil)
	bearer := func(name, role, token string) caller { return caller{name, role, plain, token} }
	certificate := func(name, role string, leaf accesstest.Leaf) caller {
		pair := s.authority.Certificate(t, leaf)
		return caller{name, role, s.client(t, &pair), ""}
	}
	s.callers = []caller{
		{"nobody", "nobody", plain, ""},
		bearer("a wrong token", "nobody", "operator-0123456789abcdeX"),
		bearer("a token for others", "nobody", issuer.Token(t, "others", map[string]any{"sub": "root"})),
		bearer("a token without a role", "none", "stranger-0123456789abcdef"),
		bearer("a token of a viewer", "viewer", "viewer-0123456789abcdef"),
		bearer("a token of an operator", "operator", "operator-0123456789abcdef"),
		bearer("OIDC of an operator", "operator", issuer.Token(t, "dbcontroller", map[string]any{"sub": "root"})),
		bearer("a service account that views", "viewer", issuer.Token(t, "dbcontroller", map[string]any{"sub": "system:serviceaccount:monitoring:prometheus"})),
		bearer("a service account of an application", "application", issuer.Token(t, "dbcontroller", map[string]any{"sub": "system:serviceaccount:shop:billing"})),
		bearer("another service account", "none", issuer.Token(t, "dbcontroller", map[string]any{"sub": "system:serviceaccount:shop:other"})),
		certificate("a certificate of an operator", "operator", accesstest.Leaf{Subject: pkix.Name{CommonName: "ann", Organization: []string{"ops"}}}),
		certificate("a certificate without a role", "none", accesstest.Leaf{Subject: pkix.Name{CommonName: "ann"}}),
		certificate("SPIFFE of an application", "application", accesstest.Leaf{Subject: pkix.Name{CommonName: "x"}, SPIFFE: []string{"spiffe://example.org/ns/shop/cart"}}),
		certificate("SPIFFE of another domain", "none", accesstest.Leaf{SPIFFE: []string{"spiffe://example.com/ns/shop/cart"}}),
	}
	return s
}

// start runs a controller and a server until the end of the test; if they are insecure, two
// controllers, and a server that other machines can reach.
func (s *secured) start(t *testing.T, dir, text string, insecure ...bool) {
	t.Helper()
	put(t, filepath.Join(dir, "config.yaml"), text)
	cfg, err := config.Load(filepath.Join(dir, "config.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	log := zap.New(core)
	registry, _, err := cli.Transformers(cfg, sample.Register)
	if err != nil {
		t.Fatal(err)
	}
	store := memcoord.New()
	s.audit, s.at = logs, map[string]string{}
	run := func(f func(context.Context) error) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- f(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	controllers, listen := []string{"controller"}, "127.0.0.1:0"
	if len(insecure) > 0 {
		controllers, listen = []string{"first", "second"}, "0.0.0.0:0"
	}
	for _, id := range controllers {
		run(controllerapp.New(cfg, registry, store, controllerapp.Options{Options: controller.Options{ID: id, StartupWait: time.Hour}, Insecure: len(insecure) > 0}, log).Run)
	}
	server, err := serverapp.New(cfg, samples.Service().Server(), serverapp.Options{ID: "server", Listen: listen, OperatorListen: "127.0.0.1:0", Insecure: len(insecure) > 0}, log)
	if err != nil {
		t.Fatal(err)
	}
	run(func(ctx context.Context) error { return server.Serve(ctx, serverapp.Connected(store)) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for message, prefix := range map[string]string{"controller listens": "", "server runs": "server "} {
		eventually(ctx, t, message, func() error {
			found := logs.FilterMessage(message).All()
			if len(found) == 0 {
				return fmt.Errorf("%q is not logged", message)
			}
			for _, f := range found[0].Context {
				s.at[prefix+f.Key] = f.String
			}
			return nil
		})
	}
}

func (s *secured) client(t *testing.T, pair *tls.Certificate) *http.Client {
	t.Helper()
	cfg := &tls.Config{RootCAs: s.authority.Pool()}
	if pair != nil {
		cfg.Certificates = []tls.Certificate{*pair}
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}, Timeout: patience}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask makes a call with JSON, or asks for a page where there is no body, and returns the
// code of the answer in the words of ConnectRPC, or of HTTP.
func (c caller) ask(t *testing.T, url string, body string) (code, message string) {
	t.Helper()
	method, reader := http.MethodGet, io.Reader(nil)
	if body != "" {
		method, reader = http.MethodPost, strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.HasPrefix(body, "\x00"):
		req.Header.Set("Content-Type", "application/connect+json")
	case body != "":
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	// A stream may have no end: its first message is enough.
	buf := make([]byte, 16<<10)
	n, err := res.Body.Read(buf)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	text := buf[:n]
	if strings.HasPrefix(body, "\x00") && res.StatusCode == http.StatusOK {
		if n < 5 || text[0] != 2 { // 2 is the end of a stream
			return "ok", ""
		}
		var end struct {
			Error struct{ Code, Message string } `json:"error"`
		}
		if err := json.Unmarshal(text[5:], &end); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return end.Error.Code, end.Error.Message
	}
	var answer struct{ Code, Message string }
	if json.Unmarshal(text, &answer) == nil && answer.Code != "" {
		return answer.Code, answer.Message
	}
	switch res.StatusCode {
	case http.StatusOK:
		return "ok", ""
	case http.StatusUnauthorized:
		code = "unauthenticated"
	case http.StatusForbidden:
		code = "permission_denied"
	case http.StatusNotFound:
		code = "absent"
	default:
		code = fmt.Sprint(res.StatusCode)
	}
	return code, string(bytes.TrimSpace(text))
}

// row is what the document says of a call or a page: who gets an answer.
type row struct{ anyone, application, viewer, operator bool }

func (r row) allows(role string) bool {
	return r.anyone || map[string]bool{"application": r.application, "viewer": r.viewer, "operator": r.operator}[role]
}

var documentRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (yes|no) \\| (yes|no) \\| (yes|no) \\| (yes|no) \\|")

// documented are the rows of docs/security.md, by call or page.
func documented(t *testing.T) map[string]row {
	t.Helper()
	text, err := os.ReadFile(securityDocument)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for _, m := range documentRow.FindAllStringSubmatch(string(text), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("%s stands twice in %s", m[1], securityDocument)
		}
		rows[m[1]] = row{m[2] == "yes", m[3] == "yes", m[4] == "yes", m[5] == "yes"}
	}
	return rows
}

// check compares an answer with what is documented: a call needs no identity, a caller that
// lacks the role is told which one it is, and others get an answer of what they called.
func check(t *testing.T, who caller, what string, r row, code, message string) {
	t.Helper()
	want := "an answer"
	switch {
	case r.allows(who.role):
	case who.role == "nobody":
		want = "unauthenticated"
	default:
		want = "permission_denied"
	}
	refused := code == "unauthenticated" || code == "permission_denied" || code == "absent"
	switch {
	case want == "an answer" && !refused:
	case want == code && (code != "permission_denied" || strings.Contains(message, "wants the role ")):
	default:
		t.Errorf("%s asks for %s: %s %q, want %s", who.name, what, code, message, want)
	}
}

// TestSecurityCalls: each call of the API, by everybody, over both of its listeners.
func TestSecurityCalls(t *testing.T) {
	t.Parallel()
	s := secure(t)
	rows := documented(t)
	service := dbv1.File_dbcontroller_v1_deployment_proto.Services().ByName("DeploymentService")
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		name := string(method.Name())
		row, ok := rows[name]
		if !ok {
			t.Errorf("%s says nothing of %s: decide who may call it, in access.Calls, and write it down", securityDocument, name)
			continue
		}
		body := "{}"
		if method.IsStreamingServer() {
			body = "\x00\x00\x00\x00\x02{}"
		}
		for _, who := range s.callers {
			path := fmt.Sprintf("/%s/%s", service.FullName(), name)
			code, message := who.ask(t, "https://"+s.at["api"]+path, body)
			check(t, who, name, row, code, message)

			code, message = who.ask(t, "https://"+s.at["applications"]+path, body)
			switch {
			case row.application: // application calls are all that is there
				check(t, who, name+" at the applications' door", row, code, message)
			case who.role == "nobody" && code == "unauthenticated", who.role != "nobody" && code == "absent":
			default:
				t.Errorf("%s asks for %s at the applications' door: %s %q", who.name, name, code, message)
			}
		}
	}
	operator := s.callers[5]
	for _, path := range []string{"/dbcontroller.v1.DeploymentService/Unknown", "/dbcontroller.v1.DeploymentService/", "/", "/healthz", "/metrics",
		"/dbcontroller.v1.DeploymentService/Switch/", "//dbcontroller.v1.DeploymentService/Switch", "/x/../dbcontroller.v1.DeploymentService/Switch"} {
		if code, message := operator.ask(t, "https://"+s.at["api"]+path, "{}"); code != "absent" {
			t.Errorf("%s: %s %q", path, code, message)
		}
	}
	s.checkAudit(t)
}

// checkAudit: every call that changes something is told, with who made it and the answer.
func (s *secured) checkAudit(t *testing.T) {
	t.Helper()
	told := map[string]bool{}
	for _, e := range s.audit.All() {
		if !strings.HasSuffix(e.LoggerName, "audit") {
			continue
		}
		f := e.ContextMap()
		if f["from"] == "" || f["answer"] == nil || f["proof"] == nil {
			t.Errorf("the audit lacks something: %v", f)
		}
		if f["answer"] == "unknown" {
			t.Errorf("the audit does not say what the caller heard: %v", f)
		}
		told[fmt.Sprint(e.Message, " ", f["call"], " ", f["identity"])] = true
		if text := fmt.Sprint(f); strings.Contains(text, "0123456789abcde") || strings.Contains(text, "eyJ") {
			t.Errorf("the audit shows a token: %s", text)
		}
	}
	for path, r := range access.Calls {
		name := path[strings.LastIndex(path, "/")+1:]
		if want := "call " + name + " token:operator"; told[want] != r.Changes {
			t.Errorf("%q in the audit: %t, want %t", want, told[want], r.Changes)
		}
		if r.Least == access.Operator && (!told["refused "+name+" token:viewer"] || !told["refused "+name+" "]) {
			t.Errorf("the audit does not tell who was refused %s", name)
		}
	}
}

// TestSecurityPages: each page of each listener, by everybody.
func TestSecurityPages(t *testing.T) {
	t.Parallel()
	s := secure(t)
	rows := documented(t)
	for listener, pages := range map[string][]string{
		"operator":        {"/healthz", "/readyz", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/heap"},
		"metrics":         {"/healthz", "/readyz", "/metrics"},
		"server operator": {"/healthz", "/readyz", "/metrics", "/usage", "/search", "/search/verify", "/search/rebuild", "/debug/pprof/"},
	} {
		for _, page := range pages {
			documentedAs := page
			if strings.HasPrefix(page, "/debug/pprof/") {
				documentedAs = "/debug/pprof/"
			}
			row, ok := rows[documentedAs]
			if !ok {
				t.Errorf("%s says nothing of %s", securityDocument, documentedAs)
			}
			for _, who := range s.callers {
				body := ""
				if strings.HasPrefix(page, "/search/") {
					body = "{}" // they answer POST
				}
				code, message := who.ask(t, "https://"+s.at[listener]+page, body)
				check(t, who, page+" of "+listener, row, code, message)
				// Why a process is not ready names databases.
				if page == "/readyz" && code != "ok" && strings.Contains(message, "waiting") != (who.role == "viewer" || who.role == "operator") {
					t.Errorf("%s reads at /readyz of %s: %q", who.name, listener, message)
				}
			}
		}
	}
	for listener, absent := range map[string]string{"metrics": "/debug/pprof/", "operator": "/usage", "api": "/metrics"} {
		if code, _ := s.callers[5].ask(t, "https://"+s.at[listener]+absent, ""); code != "absent" {
			t.Errorf("%s of %s: %s", absent, listener, code)
		}
	}
}

// TestSecurityServers: each procedure of the samples, by everybody.
func TestSecurityServers(t *testing.T) {
	t.Parallel()
	s := secure(t)
	row, ok := documented(t)["APIs of a server"]
	if !ok {
		t.Fatalf("%s says nothing of the APIs of a server", securityDocument)
	}
	for _, service := range append(bbs.Services(), secrets.Services()...) {
		for i := range service.Methods().Len() {
			for _, who := range s.callers {
				// A caller that gets in waits for a Deployment: one of each is enough.
				if row.allows(who.role) && i > 0 {
					continue
				}
				method := service.Methods().Get(i)
				path := fmt.Sprintf("/%s/%s", service.FullName(), method.Name())
				code, message := who.ask(t, "https://"+s.at["server api"]+path, bodyOf(method))
				check(t, who, path, row, code, message)
			}
		}
	}
}

func bodyOf(m protoreflect.MethodDescriptor) string {
	if m.IsStreamingServer() {
		return "\x00\x00\x00\x00\x02{}"
	}
	return "{}"
}

// TestSecurityLoopback: the laptop. Nothing is configured, and a caller on this machine
// may do everything; a page in its browser may not.
func TestSecurityLoopback(t *testing.T) {
	t.Parallel()
	s := &secured{authority: accesstest.NewAuthority(t)}
	s.start(t, t.TempDir(), "deployment: services/sec/deployments/x\noperator: {listen: \"127.0.0.1:0\"}\napi: {listen: \"127.0.0.1:0\"}\n"+unreachable)
	local := caller{"loopback", "operator", s.client(t, nil), ""}
	for path := range access.Calls {
		if strings.HasSuffix(path, "/WatchDeployment") {
			continue // it has no Deployment to show, and waits
		}
		code, message := local.ask(t, "http://"+s.at["api"]+path, "{}")
		if slices.Contains([]string{"unauthenticated", "permission_denied", "absent"}, code) {
			t.Errorf("%s: %s %q", path, code, message)
		}
	}
	if code, _ := local.ask(t, "http://"+s.at["operator"]+"/debug/pprof/", ""); code != "absent" {
		t.Errorf("pprof is served although nobody asked for it: %s", code)
	}
	for listener, at := range s.at {
		for _, header := range []string{"Host", "Origin"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at+"/healthz", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if header == "Host" {
				req.Host = "rebound.example.com"
			} else {
				req.Header.Set("Origin", "http://page.example.com")
			}
			if listener != "api" && listener != "operator" && listener != "server api" && listener != "server operator" {
				continue
			}
			res, err := local.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusForbidden {
				t.Errorf("%s answers %d to a foreign %s", listener, res.StatusCode, header)
			}
		}
	}
}
