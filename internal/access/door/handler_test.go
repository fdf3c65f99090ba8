package door_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/access/door"
)

// handler returns door.Handler for a handler that answers with the name of the caller.
func handler(t *testing.T, cfg door.Config) (http.Handler, []string) {
	t.Helper()
	cfg.What, cfg.Table = "API", table
	h, warnings, err := door.Handler(cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := access.CallerOf(r.Context())
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		fmt.Fprint(w, c.Name)
	}))
	if err != nil {
		t.Fatal(err)
	}
	return h, warnings
}

// TestHandlerConnections: without a listener, each request is admitted by the connection that it came
// on: one of another machine has TLS and an identity, or the program said that it need not.
func TestHandlerConnections(t *testing.T) {
	t.Parallel()
	here, there := &net.TCPAddr{IP: net.IPv6loopback}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}
	known := people(t, nil)
	insecure := *known
	insecure.Insecure = true
	for name, tc := range map[string]struct {
		at            net.Addr
		lock          *door.Lock
		tls           bool
		token         string
		want, warning string
	}{
		"loopback":                   {at: here, want: "200 loopback"},
		"a socket of this machine":   {at: &net.UnixAddr{}, want: "200 loopback"},
		"loopback, with identities":  {at: here, lock: known, want: "401"},
		"loopback, proven":           {at: here, lock: known, token: viewer, want: "200 token:app"},
		"another machine":            {at: there, want: "403 API: the request may come from another machine, and there is no TLS and identities"},
		"no listener":                {want: "403 API: the request may come from another machine"},
		"an unknown listener":        {at: &net.IPAddr{}, tls: true, want: "403 API: the request may come from another machine, and there is no identities"},
		"without TLS":                {at: there, lock: known, token: viewer, want: "403 API: the request may come from another machine, and there is no TLS:"},
		"TLS alone":                  {at: there, tls: true, want: "403 API: the request may come from another machine, and there is no identities"},
		"TLS, not proven":            {at: there, tls: true, lock: known, want: "401"},
		"TLS, proven":                {at: there, tls: true, lock: known, token: viewer, want: "200 token:app"},
		"insecure":                   {at: there, lock: &door.Lock{Insecure: true}, want: "200 anonymous", warning: "anyone who reaches it may do everything"},
		"insecure, on loopback":      {at: here, lock: &door.Lock{Insecure: true}, want: "200 loopback", warning: "anyone who reaches it may do everything"},
		"insecure, with identities":  {at: there, lock: &insecure, want: "401", warning: "read and replay tokens"},
		"insecure, proven":           {at: there, lock: &insecure, token: viewer, want: "200 token:app", warning: "read and replay tokens"},
		"a path that nobody may ask": {at: here, lock: known, token: viewer, want: "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logs, seen := observer.New(zap.WarnLevel)
			h, warnings := handler(t, door.Config{Lock: tc.lock, Log: zap.New(logs)})
			if (len(warnings) == 1) != (tc.warning != "") || !strings.Contains(strings.Join(warnings, "\n"), tc.warning) || seen.Len() != len(warnings) {
				t.Errorf("warnings %q, the log has %d lines", warnings, seen.Len())
			}
			ctx := t.Context()
			if tc.at != nil {
				ctx = context.WithValue(ctx, http.LocalAddrContextKey, tc.at)
			}
			path := "/x"
			if tc.want == "404" {
				path = "/other"
			}
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+path, strings.NewReader("text"))
			if tc.tls {
				r.TLS = &tls.ConnectionState{}
			}
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := fmt.Sprint(w.Code, " ", w.Body); !strings.HasPrefix(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestHandlerBounds: behind an http.Server of the program, bodies and parallel requests have the bounds
// of a listener, and a certificate of an authority that only the program's TLS trusts proves nothing.
func TestHandlerBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, theirs := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	clients, err := access.OpenClientAuthorities("authorities of clients", ours.File(t, filepath.Join(dir, "ca.crt")), nil)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := access.NewPolicy([]access.Grant{{Role: access.Viewer, Identity: "cert:CN=alice"}})
	if err != nil {
		t.Fatal(err)
	}
	h, _ := handler(t, door.Config{BodyBytes: 10, Requests: 1, Lock: &door.Lock{Clients: clients, Authenticators: []access.Authenticator{access.Certificates{}}, Policy: policy}})
	server := httptest.NewUnstartedServer(h)
	both := x509.NewCertPool()
	both.AppendCertsFromPEM(accesstest.Bundle(ours, theirs))
	certificate := ours.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "listener"}})
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: both}
	server.StartTLS()
	t.Cleanup(server.Close)
	client := func(a *accesstest.Authority) *http.Client {
		cfg := &tls.Config{RootCAs: ours.Pool()}
		if a != nil {
			cfg.Certificates = []tls.Certificate{a.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "alice"}})}
		}
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	alice := client(ours)
	post := func(c *http.Client, body io.Reader) string {
		t.Helper()
		res, err := c.Post(server.URL+"/x", "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return fmt.Sprint(res.StatusCode, " ", string(text))
	}
	for want, got := range map[string]string{
		"200 cert:CN=alice": post(alice, strings.NewReader("small")),
		"413 http: request": post(alice, strings.NewReader(strings.Repeat("x", 11))),
		"401 the client certificate is not signed by an authority that is known here": post(client(theirs), nil),
		"401 who calls": post(client(nil), nil),
	} {
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// A body that is not complete keeps the only place.
	rest, more := io.Pipe()
	first := make(chan string, 1)
	go func() { first <- post(alice, rest) }()
	if _, err := more.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	until(t, "the only place is not taken", func() bool { return strings.Contains(post(alice, nil), "too many requests") })
	_ = more.Close() // of memory
	if got := <-first; got != "200 cert:CN=alice" {
		t.Errorf("the first request: %s", got)
	}
}
