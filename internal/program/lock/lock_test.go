package lock_test

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/program/lock"
)

// TestOpenConnectionOfARemovedAuthority: a client whose authority was removed is refused on the
// connection that it had before, too.
func TestOpenConnectionOfARemovedAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, theirs := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	cert, key := ours.Files(t, dir, "listener", accesstest.Leaf{Subject: pkix.Name{CommonName: "listener"}})
	clients := accesstest.Replace(t, filepath.Join(dir, "clients.crt"), accesstest.Bundle(ours, theirs))
	l, err := lock.New(config.Access{Cert: cert, Key: key, ClientCA: clients, Roles: []config.Role{{Role: "viewer", Identity: "cert:CN=alice"}}}, false, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	d, err := door.Open(door.Config{What: "API port", Address: "127.0.0.1:0", Lock: l, Table: access.Table{"/x": {Least: access.Viewer}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- d.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") }))
	}()
	alice := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{theirs.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "alice"}})}}, ForceAttemptHTTP2: true}
	t.Cleanup(func() {
		alice.CloseIdleConnections()
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	get := func() (status int, reused bool) {
		t.Helper()
		traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }})
		req, err := http.NewRequestWithContext(traced, http.MethodGet, "https://"+d.Addr()+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := alice.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, reused
	}
	for i := range 2 {
		if status, reused := get(); status != http.StatusOK || reused != (i == 1) {
			t.Fatalf("%d, on the former connection %t", status, reused)
		}
	}
	ours.File(t, clients)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for limit := time.After(time.Minute); ; {
		status, reused := get()
		if !reused {
			t.Fatal("it is another connection")
		}
		if status == http.StatusUnauthorized {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("%d a minute later", status)
		}
	}
}
