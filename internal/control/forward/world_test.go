package forward_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/appclient/client"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/forward"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Deployments of the tests.
const (
	ours   = "services/shop/deployments/ours"
	theirs = "services/shop/deployments/theirs"
	far    = "services/shop/deployments/far"
)

// patience is the limit of a wait. The machine may run other tests.
const patience = 2 * time.Minute

// etcd returns a coordination store with deployments.
func etcd(t *testing.T, names ...string) *memcoord.Store {
	t.Helper()
	store := memcoord.New()
	for _, n := range names {
		if _, err := deployment.New(store, n, deployment.Config{}).Create(t.Context(), "v1", 1); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// planner plans, and says who has planned.
type planner string

func (p planner) Plan(context.Context, string, func(api.Work)) (*pb.PlanReport, error) {
	return &pb.PlanReport{ToVersion: string(p)}, nil
}

// setup is how a process of a test is made.
type setup struct {
	id        string
	runs      []string
	announces []string // instead of what it runs
	at        string   // announced address instead of its own; "none": none
	regions   []forward.Region
	peers     client.Config
	known     []string      // addresses that the configuration names
	patience  time.Duration // for a call without a deadline; 0: the usual

	authority *accesstest.Authority // nil: no TLS
	tokens    string                // lines; empty: everyone may do everything
	roles     []access.Grant
	broken    func(w http.ResponseWriter, r *http.Request) bool // answers instead, if it returns true
}

// process is a controller with the API of some deployments behind real HTTP.
type process struct {
	url   string
	audit *observer.ObservedLogs
	stop  func() // at once, without a farewell to callers
	end   func() // also of its announcement
	leave func() // ends its announcement alone
	halt  func() // as a process that stops does first: its listener still waits for calls

	mu    sync.Mutex
	calls []string
}

// arrived returns the methods of the calls that have come.
func (p *process) arrived() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *process) count(method string) (n int) {
	for _, c := range p.arrived() {
		if c == method {
			n++
		}
	}
	return n
}

// start starts a process until the end of the test.
func start(t *testing.T, store coord.Store, s setup) *process {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	log := zap.New(core)
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{audit: logs, halt: cancel}
	var running sync.WaitGroup
	services := make([]*api.Service, 0, len(s.runs))
	for _, n := range append(s.runs, "services/none/deployments/"+s.id)[:max(1, len(s.runs))] {
		own := api.New(store, deployment.New(store, n, deployment.Config{}), api.Config{Planner: planner(s.id)})
		services = append(services, own)
		running.Go(func() { _ = own.Run(ctx) })
	}
	several := api.NewSeveral(services...)
	server := httptest.NewUnstartedServer(nil)
	scheme := "http://"
	if s.authority != nil {
		scheme = "https://"
	}
	announced := deployment.Addressed{ID: s.id, Address: cmp.Or(s.at, scheme+server.Listener.Addr().String()), Deployments: s.announces}
	if s.announces == nil {
		announced.Deployments = s.runs
	}
	others, err := forward.Open(forward.Config{ID: s.id, Address: announced.Address, Known: s.known, Peers: s.peers, Regions: s.regions, Patience: s.patience, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	audit := access.NewAudit(log)
	mux := http.NewServeMux()
	mux.Handle(api.NewHandlerOf(several, forward.NewHandler(several, others), connect.WithInterceptors(access.NewInterceptor(access.Calls, audit))))
	guard := access.GuardConfig{Table: access.Calls, Audit: audit, Unproven: access.Loopback, Log: log}
	if s.tokens != "" {
		tokens, err := access.OpenTokens(accesstest.Replace(t, filepath.Join(t.TempDir(), "tokens"), []byte(s.tokens)), log)
		if err != nil {
			t.Fatal(err)
		}
		guard.Authenticators = []access.Authenticator{access.Certificates{}, tokens}
		if guard.Policy, err = access.NewPolicy(s.roles); err != nil {
			t.Fatal(err)
		}
	}
	g, err := access.NewGuard(guard)
	if err != nil {
		t.Fatal(err)
	}
	guarded := g.Handler(mux)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.calls = append(p.calls, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		p.mu.Unlock()
		if s.broken == nil || !s.broken(w, r) {
			guarded.ServeHTTP(w, r)
		}
	})
	if s.authority != nil {
		server.TLS = &tls.Config{Certificates: []tls.Certificate{s.authority.Certificate(t, accesstest.Leaf{})}, ClientCAs: s.authority.Pool(), ClientAuth: tls.VerifyClientCertIfGiven}
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	p.url = server.URL
	own := deployment.New(store, firstOf(s), deployment.Config{Log: log})
	running.Go(func() { others.Run(ctx, own) })
	p.leave = func() {}
	if s.at != "none" {
		presence := deployment.NewPresence(own)
		_ = presence.AnnounceAddress(ctx, announced)
		announcing, leave := context.WithCancel(ctx)
		var gone sync.WaitGroup
		gone.Go(func() { _ = presence.Run(announcing) })
		p.leave = func() { leave(); gone.Wait() }
	}
	var once sync.Once
	p.stop = func() {
		server.CloseClientConnections()
		_ = server.Listener.Close()
	}
	p.end = func() {
		once.Do(func() {
			p.leave()
			cancel()
			server.CloseClientConnections()
			running.Wait()
			server.Close()
		})
	}
	t.Cleanup(p.end)
	return p
}

// firstOf returns a deployment whose store the process follows announcements with.
func firstOf(s setup) string {
	if len(s.runs) > 0 {
		return s.runs[0]
	}
	return ours
}

// knows waits until a process has read the announcements, so that it forwards calls about a
// deployment to the process with an id.
func (p *process) knows(t *testing.T, name, id string) {
	t.Helper()
	eventually(t, "calls about "+name+" go to "+id, func() error {
		var plan struct{ ToVersion string }
		if code, text := p.call(t, "", "Plan", map[string]any{"name": name}, &plan); code != "" || plan.ToVersion != id {
			return fmt.Errorf("%s %s, planned by %q", code, text, plan.ToVersion)
		}
		return nil
	})
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	var err error
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// insecure trusts every server: the tests check who callers are.
var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // as it says

// call makes a unary call with JSON. code is empty if it succeeds.
func (p *process) call(t *testing.T, token, method string, req any, res any) (code, text string) {
	t.Helper()
	return p.callAs(t, insecure, token, method, req, res)
}

func (p *process) callAs(t *testing.T, as *http.Client, token, method string, msg any, res any) (code, text string) {
	t.Helper()
	body, err := json.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/dbcontroller.v1.DeploymentService/"+method, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := as.Do(req)
	if err != nil {
		return "no answer", err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		return "no answer", err.Error()
	}
	if answer.StatusCode == http.StatusOK {
		if res != nil {
			err = json.Unmarshal(all, res)
		}
		if err != nil {
			t.Fatal(err)
		}
		return "", ""
	}
	var failed struct {
		Code, Message string
		Details       []struct{ Debug struct{ Reason string } }
	}
	if err := json.Unmarshal(all, &failed); err != nil {
		return answer.Status, string(all)
	}
	for _, d := range failed.Details {
		if d.Debug.Reason != "" {
			return d.Debug.Reason, failed.Message
		}
	}
	return failed.Code, failed.Message
}

// client returns a client of the process, as the command line has.
func (p *process) client(t *testing.T) dbcontrollerv1connect.DeploymentServiceClient {
	t.Helper()
	c, err := client.Open(client.Config{Server: p.url})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// watch follows a deployment until the end of the test.
func (p *process) watch(t *testing.T, name string) <-chan *pb.Deployment {
	t.Helper()
	c := p.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := make(chan *pb.Deployment, 1000), make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		defer close(out)
		stream, err := c.WatchDeployment(ctx, connect.NewRequest(&pb.WatchDeploymentRequest{Name: name}))
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			out <- stream.Msg()
		}
		if err := stream.Err(); ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended: %v", err)
		}
	}()
	return out
}
