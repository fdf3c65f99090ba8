package app

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/engine/copies"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// answered is what the client gets.
type answered struct {
	sent    bool
	status  int
	header  http.Header
	body    string
	trailer http.Header
}

// forwarded sends a write to region eu, and returns the answer of this server.
func forwarded(t *testing.T, eu config.Region, header http.Header) answered {
	t.Helper()
	return forwardedIn(t.Context(), t, eu, header)
}

func forwardedIn(ctx context.Context, t *testing.T, eu config.Region, header http.Header) answered {
	t.Helper()
	eu.Name = "eu"
	o, err := newOtherRegion(eu, "us", regionPing, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	c := &regionCopies{cfg: config.Regions{Name: "us", Forward: true}, others: map[string]*otherRegion{"eu": o}}
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/s.v1.S/Update?x=1", strings.NewReader("the body was read"))
	req.Header = header
	w := httptest.NewRecorder()
	sent := c.forwarder()(w, req, []byte("body"), "eu")
	res := w.Result()
	defer res.Body.Close() //nolint:errcheck // it is in memory
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{sent, res.StatusCode, res.Header, string(body), res.Trailer}
}

// TestForwardOverTLS: the region sees the certificate of this one, the body, and nothing that proves
// the client here. Without a certificate it answers nothing.
func TestForwardOverTLS(t *testing.T) {
	t.Parallel()
	ca := accesstest.NewAuthority(t)
	dir := t.TempDir()
	seen := make(chan *http.Request, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- r
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("Access-Control-Allow-Origin", "https://other.example")
		_, _ = w.Write(append([]byte("answer to "), body...))
		w.Header().Set("Grpc-Status", "7")
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Certificate(t, accesstest.Leaf{})}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	cert, key := ca.Files(t, dir, "us", accesstest.Leaf{Subject: pkix.Name{CommonName: "us"}})
	region := config.Region{Endpoint: srv.URL, CAFile: ca.File(t, dir+"/ca.pem"), CertFile: cert, KeyFile: key}
	res := forwarded(t, region, http.Header{"Authorization": {"Bearer secret"}, "Cookie": {"secret"}, "Content-Type": {"application/json"},
		"Origin": {"https://page.example"}, "Referer": {"https://page.example/a"}, "Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"cors"}})
	if !res.sent || res.body != "answer to body" || res.trailer.Get("Grpc-Status") != "7" {
		t.Fatalf("answered %+v", res)
	}
	if len(res.header["Access-Control-Allow-Origin"]) != 0 {
		t.Errorf("the region decides which pages read an answer of this one: %v", res.header)
	}
	r := <-seen
	for name := range r.Header {
		if name == "Origin" || name == "Referer" || strings.HasPrefix(name, "Sec-Fetch-") {
			t.Errorf("the region sees %s, which a browser said to this one", name)
		}
	}
	if r.ProtoMajor != 2 || r.TLS.PeerCertificates[0].Subject.CommonName != "us" || r.URL.String() != "/s.v1.S/Update?x=1" {
		t.Errorf("the region sees %s of %v over %s", r.URL, r.TLS.PeerCertificates[0].Subject, r.Proto)
	}
	if r.Header.Get(ForwardedHeader) != "us" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization")+r.Header.Get("Cookie") != "" {
		t.Errorf("the region sees %v", r.Header)
	}
	if res := forwarded(t, region, http.Header{ForwardedHeader: {"asia"}}); res.sent {
		t.Error("a forwarded request is forwarded again")
	}
	region.CertFile, region.KeyFile = "", ""
	if res := forwarded(t, region, http.Header{}); res.status != http.StatusServiceUnavailable {
		t.Errorf("without a certificate the answer is %+v", res)
	}
	region.CAFile = "/nothing"
	if _, err := newOtherRegion(region, "us", regionPing, zap.NewNop()); err == nil {
		t.Error("a missing file is accepted")
	}
}

// reasonOf returns the reason of a refusal in the JSON of Connect.
func reasonOf(t *testing.T, res answered) refusal.Reason {
	t.Helper()
	reason, _ := refusal.Of(errorOf(t, res))
	return reason
}

// errorOf returns what a client of Connect makes of an answer.
func errorOf(t *testing.T, res answered) error {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", res.header.Get("Content-Type"))
		w.WriteHeader(res.status)
		_, _ = io.WriteString(w, res.body)
	}))
	defer srv.Close()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](srv.Client(), srv.URL, connect.WithProtoJSON())
	_, err := client.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
	return err
}

// TestForwardFails: nothing was sent without a connection; after that nobody knows.
func TestForwardFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 1)
			_, _ = c.Read(buf) // something was sent
			_ = c.Close()
		}
	}()
	if res := forwarded(t, config.Region{Endpoint: "http://" + l.Addr().String()}, http.Header{}); reasonOf(t, res) != refusal.OutcomeUnknown {
		t.Errorf("a broken connection: %+v", res)
	}
	_ = l.Close()
	<-broken
	if res := forwarded(t, config.Region{Endpoint: "http://" + accesstest.ClosedPort(t)}, http.Header{}); reasonOf(t, res) != refusal.RegionUnavailable {
		t.Errorf("no connection: %+v", res)
	}
}

// TestForwardEnded: a request that ends while its owner works has an answer, and not an empty success.
func TestForwardEnded(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	for _, c := range []struct {
		name  string
		cause error
		code  connect.Code
	}{
		{"the proof is revoked", connect.NewError(connect.CodeUnauthenticated, errors.New("revoked")), connect.CodeUnauthenticated},
		{"another cause", errors.New("the server ends"), connect.CodeUnavailable},
		{"the client has gone", nil, connect.CodeUnavailable},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			<-arrived
			end(c.cause)
		})
		res := forwardedIn(ctx, t, config.Region{Endpoint: srv.URL}, http.Header{})
		waiting.Wait()
		if code := connect.CodeOf(errorOf(t, res)); res.status == http.StatusOK || code != c.code {
			t.Errorf("%s: answered %+v, want %s", c.name, res, c.code)
		}
	}
}

// TestCutOff: an idle stream over a connection that nothing ends, and that carries nothing any more,
// fails after the pings.
func TestCutOff(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-r.Context().Done()
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cut := make(chan struct{})
	var pumps sync.WaitGroup
	pumps.Go(func() {
		in, err := relay.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			return
		}
		pump := func(to, from net.Conn) {
			buf := make([]byte, 4096)
			for {
				n, err := from.Read(buf)
				if err != nil {
					return
				}
				select {
				case <-cut: // the network loses everything
				default:
					_, _ = to.Write(buf[:n])
				}
			}
		}
		pumps.Go(func() { pump(in, out) })
		pump(out, in)
		_ = in.Close()
		_ = out.Close()
	})
	o, err := newOtherRegion(config.Region{Name: "eu", Endpoint: "http://" + relay.Addr().String()}, "us", 100*time.Millisecond, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	res, err := o.client.Get("http://" + relay.Addr().String() + "/watch")
	if err != nil {
		t.Fatal(err)
	}
	<-began
	close(cut)
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the stream ends without an error")
	}
	_ = res.Body.Close()
	o.close()
	_ = relay.Close()
	srv.CloseClientConnections()
	srv.Close()
	pumps.Wait()
}

// TestCopiesAreWaitedFor: a switch waits for copies as long as configured, and only those of its target.
func TestCopiesAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := &regionCopies{cfg: config.Regions{Name: "us", Wait: time.Hour}, versions: map[string]*copiedVersion{"v2": {version: "v2"}}}
	var none *regionCopies
	if none.prepares() != nil || none.reporter() != nil || none.forwarder() != nil {
		t.Error("a server without regions has copies")
	}
	none.close()
	if got := c.prepares(); len(got) != 0 {
		t.Errorf("another server makes the copies, and this one prepares %v", got)
	}
	c.versions["v2"].set([]follower{{"books", "eu", copies.New(copies.Config{})}})
	if got := c.prepares(); got["v2"] == "" {
		t.Error("incomplete copies are not waited for")
	}
	if got := both(map[string]string{"v2": "search index"}, c.prepares()); got["v2"] != "search index and its copies of other regions" {
		t.Errorf("it prepares %v", got)
	}
	c.upgrades.note(upgrading("a", true))
	if got := c.prepares(); got["v2"] == "" {
		t.Error("the wait ends at once")
	}
	c.cfg.Wait = time.Nanosecond
	if got := c.prepares(); len(got) != 0 {
		t.Errorf("after the wait it prepares %v", got)
	}
	c.cfg.Wait = 0
	c.upgrades.note(upgradestate.New("services/s/deployments/d", "v1", 1))
	if got := c.prepares(); len(got) != 0 {
		t.Errorf("without a wait it prepares %v", got)
	}
	if reports := c.reporter()(); len(reports) != 0 {
		t.Errorf("reported %+v before anything is known", reports)
	}
}

// TestServersWaitForCollections: a server is not ready while controllers without the declaration have made
// no collections for copies. A server that was ready stays so without etcd.
func TestServersWaitForCollections(t *testing.T) {
	t.Parallel()
	store := memcoord.New()
	deployments := deployment.New(store, "services/s/deployments/d", deployment.Config{})
	if _, err := deployments.Create(t.Context(), "v1", 1); err != nil {
		t.Fatal(err)
	}
	v := &copiedVersion{version: "v1", kinds: map[string]Copied{"books": {}}}
	c := &regionCopies{deployments: deployments, versions: map[string]*copiedVersion{"v1": v}}
	var none *regionCopies
	if err := none.ready(t.Context(), "v1"); err != nil {
		t.Error(err)
	}
	ns := upgradestate.Namespace{Version: "v1", Location: "mongodb:shop"}
	add := func(kinds ...string) {
		t.Helper()
		for _, kind := range kinds {
			ns.Kinds = append(ns.Kinds, upgradestate.Kind{Kind: kind, Physical: kind + ".n1", NextSeq: 2, Fence: "uuid"})
		}
		if _, err := deployments.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: ns}); err != nil {
			t.Fatal(err)
		}
	}
	add("books")
	if err := c.ready(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), "v1 has no collection copies_state") || !strings.Contains(err.Error(), "controllers first") {
		t.Errorf("without collections it is ready with %v", err)
	}
	if err := c.ready(t.Context(), "v2"); err != nil {
		t.Errorf("a version without copies: %v", err)
	}
	add("books_copies", "copies_state")
	for range 2 {
		if err := c.ready(t.Context(), "v1"); err != nil {
			t.Error(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := c.ready(ended, "v1"); err != nil {
			t.Errorf("without etcd: %v", err)
		}
	}
}

// TestRegionsOfNothing: a service without copies refuses the section.
func TestRegionsOfNothing(t *testing.T) {
	t.Parallel()
	a := &App{cfg: config.Config{Regions: config.Regions{Name: "us", Others: []config.Region{{Name: "eu"}}}}}
	if _, err := a.regions(); err == nil || !strings.Contains(err.Error(), "leave the section out") {
		t.Errorf("refused with %v", err)
	}
	a.service.Copied = map[string]map[string]Copied{"v1": {"books": {}}}
	here, err := a.regions()
	if err != nil || here.Name != "us" || len(here.Others) != 1 {
		t.Errorf("%+v, %v", here, err)
	}
	if long := problem(errors.New(strings.Repeat("é", 200)).Error()); len(long) > 210 {
		t.Errorf("a problem has %d bytes", len(long))
	}
}
