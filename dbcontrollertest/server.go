package dbcontrollertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"dbcontroller.dev"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// Server is a server of a service, over data in memory. It serves all APIs of the service, over the
// data of the active version.
type Server struct {
	// URL is the address of the APIs, without a slash at its end.
	URL string

	t        testing.TB
	registry *transform.Registry
	dbs      map[string]*memstore.Store // by version
	runner   *vrunner.Runner
	http     *httptest.Server

	switching sync.Mutex // one Switch at a time

	mu   sync.Mutex
	d    upgradestate.Deployment
	news chan struct{} // closed and replaced when d changes
}

// Start starts a server whose oldest version is active. It ends with the test. A service that cannot
// be served fails the test.
func Start(t testing.TB, service dbcontroller.Service) *Server {
	t.Helper()
	server := service.Server()
	if len(service.Versions) == 0 {
		t.Fatal("dbcontrollertest: the service has no Versions")
	}
	s := &Server{
		t: t, registry: registryOf(t, service), dbs: map[string]*memstore.Store{}, news: make(chan struct{}),
		d: upgradestate.Deployment{Format: upgradestate.Format, Name: "services/test/deployments/test", CurrentVersion: service.Versions[0].Name, Epoch: 1, Revision: 1},
	}
	databases := map[string]vrunner.Database{}
	for _, version := range server.Versions {
		db := memstore.New()
		ns := upgradestate.Namespace{Version: version}
		for _, kind := range s.kinds(version) {
			tok, err := db.Provision(t.Context(), kind, record.PhysicalName(kind.Name, 1))
			if err != nil {
				t.Fatal(err)
			}
			ns.Kinds = append(ns.Kinds, upgradestate.Kind{Kind: kind.Name, Physical: tok.Name, ID: tok.ID})
		}
		s.dbs[version] = db
		s.d.Namespaces = append(s.d.Namespaces, ns)
		databases[version] = vrunner.Database{Client: db, Watcher: db, Indexed: server.Indexes[version]}
	}
	s.runner = vrunner.New(deployment{s}, databases, server.Bounded, vrunner.Config{ID: "test", Lead: lead}, nil)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.runner.Run(ctx); close(ended) }()
	mux := http.NewServeMux()
	mux.Handle("/", s.runner)
	server.Watches(mux, s.runner)
	s.http = httptest.NewServer(server.Front(mux))
	s.URL = s.http.URL
	t.Cleanup(func() {
		stop()
		s.http.CloseClientConnections()
		s.http.Close()
		<-ended //nolint:errcheck // the server was stopped
	})
	s.await("the server is ready", ended, func() bool { return s.runner.Ready() == nil })
	return s
}

// Client returns an HTTP client for URL.
func (s *Server) Client() *http.Client { return s.http.Client() }

// Active returns the active version.
func (s *Server) Active() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.CurrentVersion
}

// Switch makes a version active, as an upgrade or a rollback does. It fences the data of the active
// version, so that writes to it fail or wait. It then applies the transformers to all records, and
// flips. Requests and watches that run meanwhile are treated as by a real server. Switch fails the test
// if a record cannot be transformed: a real upgrade would park it and not begin the switch.
//
// It returns when the server serves the version. Call it from the goroutine of the test.
func (s *Server) Switch(version string) {
	s.t.Helper()
	s.switching.Lock()
	defer s.switching.Unlock()
	from := s.Active()
	if from == version {
		s.t.Fatalf("dbcontrollertest: %s is active already", version)
	}
	direction, err := s.registry.Direction(from, version)
	if err != nil {
		s.t.Fatalf("dbcontrollertest: switch from %s to %s: %v", from, version, err)
	}
	epoch := s.d.Epoch + 1
	source := s.fence(from, epoch)
	s.transfer(direction, source, epoch)
	s.mu.Lock()
	s.d.CurrentVersion, s.d.Epoch, s.d.Revision = version, epoch, s.d.Revision+1
	close(s.news)
	s.news = make(chan struct{})
	s.mu.Unlock()
	s.await(version+" is served", nil, func() bool { return s.runner.State().Active == version && s.runner.Ready() == nil })
}

// fence renames all kinds of a version, so that writes with the former names fail, and returns their
// new tokens.
func (s *Server) fence(version string, epoch uint64) record.Tokens {
	s.t.Helper()
	before := s.tokens(version)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Watchers may hold the former record, so its slices stay as they are.
	s.d.Namespaces = slices.Clone(s.d.Namespaces)
	after := record.Tokens{}
	for i := range s.d.Namespaces {
		ns := &s.d.Namespaces[i]
		if ns.Version != version {
			continue
		}
		ns.Kinds = slices.Clone(ns.Kinds)
		for k := range ns.Kinds {
			kind := &ns.Kinds[k]
			tok := before[kind.Kind]
			f := record.Fence{Class: record.FenceUUID, Token: tok, To: record.PhysicalName(kind.Kind, epoch)}
			if err := s.dbs[version].Fence(s.t.Context(), f); err != nil {
				s.t.Fatalf("dbcontrollertest: fence %s of %s: %v", kind.Kind, version, err)
			}
			tok.Name, kind.Physical = f.To, f.To
			after[kind.Kind] = tok
		}
	}
	return after
}

// transfer applies all groups of the source to the target, and removes those that the source lacks.
func (s *Server) transfer(direction transform.Direction, source record.Tokens, epoch uint64) {
	s.t.Helper()
	from, to, target := s.dbs[direction.From()], s.dbs[direction.To()], s.tokens(direction.To())
	groups := map[transform.GroupID]bool{}
	s.scan(from, source, direction.SourceKinds(), direction.GroupOf, groups)
	s.scan(to, target, direction.TargetKinds(), direction.GroupOfTarget, groups)
	t := transform.Transfer{
		Resolver: transform.Resolver{
			Direction: direction, Source: from, Target: to, From: transform.View{Tokens: source}, To: transform.View{Tokens: target},
			Epoch: epoch, Apart: map[transform.GroupID]bool{},
		},
		Write: to.Apply,
		Fail: func(_ context.Context, f transform.Failure, _ record.Version) error {
			s.t.Errorf("dbcontrollertest: switch from %s to %s: %s cannot be transformed: %v", direction.From(), direction.To(), f.Unit.Name, f.Err)
			return nil
		},
	}
	ids := make([]transform.GroupID, 0, len(groups))
	for id := range groups {
		ids = append(ids, id)
	}
	if _, err := transform.Until(ids, func(ids []transform.GroupID) ([]transform.GroupID, error) { return t.Once(s.t.Context(), ids) }); err != nil {
		s.t.Fatalf("dbcontrollertest: switch from %s to %s: %v", direction.From(), direction.To(), err)
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// scan adds the groups of all records of kinds.
func (s *Server) scan(db *memstore.Store, toks record.Tokens, kinds []record.KindSpec, groupOf func(string, record.Key) (transform.GroupID, bool, error), groups map[transform.GroupID]bool) {
	s.t.Helper()
	for _, kind := range kinds {
		err := record.ScanPages(s.t.Context(), db, toks[kind.Name], 0, func(p record.Page) error {
			for _, r := range p.Records {
				id, ok, err := groupOf(kind.Name, r.Key)
				if err != nil {
					return err
				}
				if ok {
					groups[id] = true
				}
			}
			return nil
		})
		if err != nil {
			s.t.Fatalf("dbcontrollertest: read %s: %v", kind.Name, err)
		}
	}
}

// tokens returns the present tokens of a version.
func (s *Server) tokens(version string) record.Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := record.Tokens{}
	for kind, places := range upgradestate.EnginePlaces(s.d, version) {
		out[kind] = record.Token{Kind: places[0].Kind, Name: places[0].Name, ID: places[0].ID}
	}
	return out
}

// kinds returns all kinds of a version: those that it declares, and those that transformers need to
// keep track of its groups.
func (s *Server) kinds(version string) []record.KindSpec {
	kinds := s.registry.Kinds(version)
	for _, other := range s.registry.Versions() {
		d, err := s.registry.Direction(other, version)
		if err != nil {
			continue // no transformers lead there; Switch reports it
		}
		kinds = append(kinds, d.TargetKinds()...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(kinds, func(k record.KindSpec) bool {
		twice := seen[k.Name]
		seen[k.Name] = true
		return twice
	})
}

// registryOf returns the transformers of a service.
func registryOf(t testing.TB, service dbcontroller.Service) *transform.Registry {
	t.Helper()
	r := transform.NewRegistry(service.Name)
	for i, v := range service.Versions {
		var kinds []record.KindSpec
		for _, k := range v.Kinds {
			kinds = append(kinds, record.KindSpec{Name: k, Indexed: v.Indexes[k]})
		}
		if len(kinds) > 0 {
			if err := r.Declare(v.Name, kinds...); err != nil {
				t.Fatalf("dbcontrollertest: %v", err)
			}
		}
		if i > 0 && len(v.Transformers) > 0 {
			if err := r.Add(service.Versions[i-1].Name, v.Name, v.Transformers...); err != nil {
				t.Fatalf("dbcontrollertest: %v", err)
			}
		}
	}
	return r
}

// lead runs work at once: there is no other server.
func lead(ctx context.Context, _ string, work func(context.Context) error) error { return work(ctx) }

// await waits until a condition holds. ended reports an early end of the server; nil: it is not looked at.
func (s *Server) await(what string, ended <-chan error, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !ok() {
		select {
		case err := <-ended:
			s.t.Fatalf("dbcontrollertest: the server has ended: %v", err)
		case <-limit:
			s.t.Fatalf("dbcontrollertest: waited a minute until %s: %v", what, s.runner.Ready())
		case <-tick.C:
		}
	}
}

// deployment is the Deployment as the runner sees it.
type deployment struct{ s *Server }

func (d deployment) Get(context.Context) (upgradestate.Deployment, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.s.d, nil
}

func (d deployment) Watch(ctx context.Context) <-chan upgradestate.Deployment {
	out := make(chan upgradestate.Deployment)
	go func() {
		defer close(out)
		for {
			d.s.mu.Lock()
			now, news := d.s.d, d.s.news
			d.s.mu.Unlock()
			select {
			case out <- now:
			case <-ctx.Done():
				return
			}
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (deployment) Announce(context.Context, upgradestate.ServerState) error { return nil }
