package door_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var table = access.Table{"/": {Least: access.Viewer}, "/x": {Least: access.Viewer}}

// open serves a handler until the end of the test.
func open(t *testing.T, cfg door.Config, h http.HandlerFunc) *door.Door {
	t.Helper()
	cfg.What, cfg.Address, cfg.Table = "API port", "127.0.0.1:0", table
	d, err := door.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, h) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	return d
}

func echo(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprint(w, len(b))
}

// TestReachableFromElsewhere: such a listener is refused without TLS and identities.
func TestReachableFromElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := accesstest.NewAuthority(t)
	cert, key := authority.Files(t, dir, "listener", accesstest.Leaf{Subject: pkix.Name{CommonName: "x"}})
	pair, err := access.OpenKeyPair("certificate", cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	someone := []access.Authenticator{access.Certificates{}}
	for name, tc := range map[string]struct {
		address    string
		lock       door.Lock
		want, warn string
	}{
		"loopback":                  {address: "127.0.0.1:0"},
		"IPv6 loopback":             {address: "[::1]:0"},
		"localhost":                 {address: "localhost:0"},
		"nothing":                   {address: "0.0.0.0:0", want: "has no TLS and identities: configure access in the configuration file (docs/security.md), listen on 127.0.0.1, or give --insecure"},
		"every address":             {address: ":0", want: "has no TLS and identities"},
		"TLS without identities":    {address: "0.0.0.0:0", lock: door.Lock{KeyPair: pair}, want: "has no identities"},
		"identities without TLS":    {address: "0.0.0.0:0", lock: door.Lock{Authenticators: someone}, want: "has no TLS:"},
		"both":                      {address: "0.0.0.0:0", lock: door.Lock{KeyPair: pair, Authenticators: someone}},
		"insecure":                  {address: "0.0.0.0:0", lock: door.Lock{Insecure: true}, warn: "anyone who reaches it may do everything"},
		"insecure, with identities": {address: "0.0.0.0:0", lock: door.Lock{Insecure: true, Authenticators: someone}, warn: "read and replay tokens"},
		"insecure loopback":         {address: "127.0.0.1:0", lock: door.Lock{Insecure: true}},
	} {
		t.Run(name, func(t *testing.T) {
			logs, seen := observer.New(zap.WarnLevel)
			d, err := door.Open(door.Config{What: "API port", Address: tc.address, Flag: "--api-listen", Lock: &tc.lock, Table: table, Log: zap.New(logs)})
			if err == nil {
				defer d.Close() //nolint:errcheck // nothing was served
			}
			switch {
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("%v, want %q", err, tc.want)
			case tc.want == "" && err != nil && !strings.Contains(err.Error(), "cannot assign"): // no IPv6 here
				t.Error(err)
			case err == nil && (!strings.Contains(d.Warning, tc.warn) || (d.Warning == "") != (tc.warn == "")):
				t.Errorf("it warns of %q, want %q", d.Warning, tc.warn)
			}
			if seen.Len() != map[bool]int{true: 0, false: 1}[tc.warn == ""] {
				t.Errorf("the log has %v", seen.All())
			}
		})
	}
}

// patience is longer than anything takes that does not stand still.
const patience = 2 * time.Minute

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestCertificatesAreReplaced: the next connection has the new certificate, and one whose
// key is not there yet changes nothing.
func TestCertificatesAreReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := accesstest.NewAuthority(t)
	cert, key := authority.Files(t, dir, "listener", accesstest.Leaf{Subject: pkix.Name{CommonName: "first"}})
	logs, seen := observer.New(zap.InfoLevel)
	pair, err := access.OpenKeyPair("certificate", cert, key, zap.New(logs))
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, door.Config{Lock: &door.Lock{KeyPair: pair}}, echo)
	shows := func() string {
		conn, err := tls.Dial("tcp", d.Addr(), &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := shows(); got != "first" {
		t.Fatalf("it shows %s", got)
	}
	newCert, newKey := authority.Sign(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "second"}})
	accesstest.Replace(t, cert, newCert)
	until(t, "the half-written pair is not noticed", func() bool {
		if got := shows(); got != "first" {
			t.Fatalf("with a half-written pair it shows %s", got)
		}
		return seen.FilterMessageSnippet("stays in force").Len() == 1
	})
	accesstest.Replace(t, key, newKey)
	until(t, "the new pair is not shown", func() bool { return shows() == "second" })

	// TLS 1.1 is too old.
	_, err = tls.Dial("tcp", d.Addr(), &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	if err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	// HTTP/2 is.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	res, err := client.Post("https://"+d.Addr()+"/x", "text/plain", strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.ProtoMajor != 2 || string(text) != "3" {
		t.Errorf("%s %q", res.Proto, text)
	}
}

// TestClientAuthorityIsReplaced: a listener that runs takes clients of the authorities that
// the file has now, and no others, also where both are in it for a while.
func TestClientAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	former, next := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	cert, key := former.Files(t, dir, "listener", accesstest.Leaf{Subject: pkix.Name{CommonName: "listener"}})
	pair, err := access.OpenKeyPair("certificate", cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	ca := former.File(t, filepath.Join(dir, "ca.crt"))
	clients, err := access.OpenAuthorities("authorities of clients", ca, nil)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := access.NewPolicy([]access.Grant{{Role: access.Viewer, Identity: "cert:CN=alice"}})
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, door.Config{Lock: &door.Lock{KeyPair: pair, Clients: clients, Authenticators: []access.Authenticator{access.Certificates{}}, Policy: policy}}, echo)
	comesIn := func(a *accesstest.Authority) bool {
		t.Helper()
		alice := a.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "alice"}})
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: former.Pool(), Certificates: []tls.Certificate{alice}}}}
		res, err := client.Post("https://"+d.Addr()+"/x", "text/plain", strings.NewReader("abc"))
		if err != nil {
			return false // the handshake was refused
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	}
	for _, step := range []struct {
		name         string
		file         []*accesstest.Authority
		former, next bool
	}{
		{"at first", []*accesstest.Authority{former}, true, false},
		{"both", []*accesstest.Authority{former, next}, true, true},
		{"the next one alone", []*accesstest.Authority{next}, false, true},
	} {
		accesstest.Replace(t, ca, accesstest.Bundle(step.file...))
		until(t, step.name, func() bool { return comesIn(former) == step.former && comesIn(next) == step.next })
	}
}

// raw sends text as it is and returns what comes until the server ends the connection.
func raw(t *testing.T, d *door.Door, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open after %q", text[:min(len(text), 60)])
	}
	return string(answer)
}

// TestStalledClients: what stalls is ended, whatever it stalls at.
func TestStalledClients(t *testing.T) {
	t.Parallel()
	const soon = 100 * time.Millisecond
	// One short limit for each listener: on a busy machine a client passes it in what it does not stall at.
	raw(t, open(t, door.Config{HeaderTime: soon}, echo), "POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
	d := open(t, door.Config{BodyTime: soon}, echo)
	for _, head := range []string{"Content-Length: 100\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
		if got := raw(t, d, "POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\n"+head); !strings.Contains(got, "timeout") {
			t.Errorf("a stalled body is answered %q", got)
		}
	}
	// One that is not let in stalls as well.
	if got := raw(t, d, "POST /x HTTP/1.1\r\nHost: evil.example.com\r\nContent-Length: 100\r\n\r\nabc"); !strings.Contains(got, "403") {
		t.Errorf("a foreign host is answered %q", got)
	}
}

// TestLongCallsGoOn: once a request is complete, its answer may take as long as it likes.
func TestLongCallsGoOn(t *testing.T) {
	t.Parallel()
	bodies := map[string]func() io.Reader{
		"by length": func() io.Reader { return strings.NewReader("abc") },
		"chunked":   func() io.Reader { return struct{ io.Reader }{strings.NewReader("abc")} },
	}
	for what, body := range bodies {
		// On a busy machine a request may take longer than a short limit before it is complete.
		limit := 50 * time.Millisecond
		err := longCall(t, limit, body())
		for err != nil && limit < 10*time.Second {
			limit *= 5
			err = longCall(t, limit, body())
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// longCall makes a call whose answer takes longer than the limits of bodies and writes.
func longCall(t *testing.T, limit time.Duration, body io.Reader) error {
	t.Helper()
	failed := make(chan error, 4)
	d := open(t, door.Config{BodyTime: limit, WriteTime: limit}, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			failed <- err
		}
		for range 3 {
			select {
			case <-time.After(3 * limit):
			case <-r.Context().Done():
				failed <- errors.New("a call that waits is ended")
			}
			fmt.Fprintln(w, "news")
			w.(http.Flusher).Flush()
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Post("http://"+d.Addr()+"/x", "text/plain", body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || string(text) != "news\nnews\nnews\n" {
		return fmt.Errorf("it is answered %q, %w", text, err)
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// TestSlowReaders: who does not read what it asked for is given up.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	d := open(t, door.Config{WriteTime: 100 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				ended <- err
				return
			}
		}
	})
	conn, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it is still written to")
	}
}

// TestDecodedBodiesAreSettled: a handler that has decoded a compressed body gives back what it did not
// become, so that many can wait for news at the same time.
func TestDecodedBodiesAreSettled(t *testing.T) {
	t.Parallel()
	const requests = 5
	bomb := small(t, 900) // of which at most two fit
	hold, held := make(chan struct{}), make(chan struct{}, requests)
	d := open(t, door.Config{BodyBytes: 1000, BodiesBytes: 2500 * limits.BodyCopies}, func(w http.ResponseWriter, r *http.Request) {
		echo(w, r)
		memory.Of(r.Context()).Settle(20)
		held <- struct{}{}
		<-hold
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	done := make(chan string, requests)
	for range requests {
		go func() {
			req, err := http.NewRequest(http.MethodPost, "http://"+d.Addr()+"/x", bytes.NewReader(bomb))
			if err != nil {
				done <- err.Error()
				return
			}
			req.Header.Set("Content-Encoding", "gzip")
			res, err := client.Do(req)
			if err != nil {
				done <- err.Error()
				return
			}
			done <- res.Status
			_ = res.Body.Close()
		}()
		select {
		case <-held:
		case answer := <-done:
			t.Errorf("instead of waiting it gets %s", answer)
			done <- answer
		}
	}
	close(hold)
	for range requests {
		if answer := <-done; answer != "200 OK" {
			t.Errorf("%s", answer)
		}
	}
}

// TestLargeRequests: bodies, headers and all bodies together are bounded.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	d := open(t, door.Config{BodyBytes: 1000, BodiesBytes: 2500 * limits.BodyCopies, Requests: 4}, func(w http.ResponseWriter, r *http.Request) {
		echo(w, r)
		if r.URL.Query().Has("hold") {
			held <- struct{}{}
			<-hold
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(query string, body []byte, header ...string) (int, string) {
		req, err := http.NewRequest(http.MethodPost, "http://"+d.Addr()+"/x?"+query, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	post := func(query string, n int, header ...string) (int, string) {
		return send(query, make([]byte, n), header...)
	}
	expect := func(what string, want int, text string) func(int, string) {
		return func(code int, got string) {
			t.Helper()
			if code != want || !strings.Contains(got, text) {
				t.Errorf("%s: %d %q, want %d", what, code, got, want)
			}
		}
	}
	expect("as large as may be", 200, "1000")(post("", 1000))
	expect("larger", 400, "too large")(post("", 1001))
	expect("a long header", 431, "")(post("", 1, "X", strings.Repeat("x", 2*limits.HeaderBytes)))
	done := make(chan struct{}, 4)
	for range 2 {
		go func() { post("hold", 1000); done <- struct{}{} }()
		<-held
	}
	expect("what fits next to the others", 200, "500")(post("", 500))
	expect("what does not", 400, "too many large requests")(post("", 501))
	expect("compressed", 400, "too many large requests")(send("", small(t, 600), "Content-Encoding", "gzip"))
	expect("compressed, in gRPC", 400, "too many large requests")(send("", small(t, 600), "Grpc-Encoding", "gzip"))
	expect("compressed, and small", 200, "")(send("", small(t, 300), "Content-Encoding", "gzip"))
	expect("compressed in an unknown way", 400, "too many large requests")(post("", 1, "Content-Encoding", "zstd"))
	for range 2 {
		go func() { post("hold", 1); done <- struct{}{} }()
		<-held
	}
	expect("one too many", 503, "too many requests")(post("", 1))
	close(hold)
	for range 4 {
		<-done
	}
	expect("afterwards", 200, "1000")(post("", 1000))
}

// TestSmallCompressedRequests checks that a compressed body counts by what it becomes. Many small ones
// fit at the same time, where few of the largest do.
func TestSmallCompressedRequests(t *testing.T) {
	t.Parallel()
	const requests, body = 20, 1 << 20
	bomb := small(t, body/20) // a guess by its size would be 1,032 times that, and let half of them in
	hold := make(chan struct{})
	var held, ended atomic.Int64
	d := open(t, door.Config{BodyBytes: body, BodiesBytes: 2 * body * limits.BodyCopies}, func(w http.ResponseWriter, r *http.Request) {
		echo(w, r)
		held.Add(1)
		<-hold
	})
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			defer ended.Add(1)
			ask(t, d, "", "", bomb, "Content-Encoding", "gzip")
		})
	}
	until(t, "every request is held or refused", func() bool { return held.Load()+ended.Load() == requests })
	if n := held.Load(); n != requests {
		t.Errorf("%d of %d are held at the same time", n, requests)
	}
	close(hold)
	wg.Wait()
}
