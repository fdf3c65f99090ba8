package vrunner_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// world is a deployment in memory. The test itself is the controller.
type world struct {
	t     *testing.T
	store *deployment.Store
	db    map[string]database
}

// database is the whole face of one.
type database interface {
	record.Namespace
	record.Client
}

var plain = map[string][]record.KindSpec{"v1": {{Name: "old"}}, "v2": {{Name: "new"}}}

func newWorld(ctx context.Context, t *testing.T, kinds map[string][]record.KindSpec) *world {
	t.Helper()
	return newWorldOn(ctx, t, map[string]database{"v1": memstore.New(), "v2": memstore.New()}, kinds)
}

func newWorldOn(ctx context.Context, t *testing.T, db map[string]database, kinds map[string][]record.KindSpec) *world {
	t.Helper()
	w := &world{t: t, store: deployment.New(memcoord.New(), "services/s/deployments/d", deployment.Config{}), db: db}
	d, err := w.store.Create(ctx, "v1", 1)
	w.check(err)
	for v, specs := range kinds {
		ns, err := syncer.Provision(ctx, w.db[v], d, v, "mem:"+v, specs, func(string) record.FenceClass { return "" })
		w.check(err)
		w.apply(ctx, upgradestate.AnnounceNamespace{Namespace: ns})
	}
	w.apply(ctx, upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: "v2", TransformHash: "h"}})
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(ctx context.Context) upgradestate.Deployment {
	w.t.Helper()
	d, err := w.store.Get(ctx)
	w.check(err)
	return d
}

func (w *world) apply(ctx context.Context, ev upgradestate.Event) {
	w.t.Helper()
	_, err := w.store.Apply(ctx, ev)
	w.check(err)
}

// begin begins the upgrade to v2; nothing is switched yet.
func (w *world) begin(ctx context.Context) {
	w.t.Helper()
	w.apply(ctx, upgradestate.Begin{ID: "u1", TargetVersion: "v2"})
}

// prevent resolves an announced rename that an abort does not wait for.
func (w *world) prevent(ctx context.Context, a upgradestate.Prevent) {
	w.t.Helper()
	tok := record.Token{Kind: a.Place.Kind, Name: a.Place.Name, ID: a.Place.ID, Fixed: a.Place.Fixed}
	moved, err := w.db[a.Version].Prevent(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: tok, To: a.Pending.To})
	w.check(err)
	if moved {
		w.apply(ctx, upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
	} else {
		w.apply(ctx, upgradestate.Prevented{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To})
	}
}

// until does what a controller does, one record at a time, until the record is as wanted.
func (w *world) until(ctx context.Context, ok func(upgradestate.Deployment) bool) {
	w.t.Helper()
	for !ok(w.get(ctx)) {
		actions := upgradestate.Actions(w.get(ctx))
		if len(actions) == 0 {
			w.t.Fatal("nothing is left to do")
		}
		for _, a := range actions {
			switch a := a.(type) {
			case upgradestate.Hold:
				w.apply(ctx, upgradestate.Held{ID: a.ID})
			case upgradestate.Execute:
				w.execute(ctx, a)
				w.apply(ctx, upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
			case upgradestate.Prevent:
				w.prevent(ctx, a)
			case upgradestate.AwaitReports:
				w.apply(ctx, upgradestate.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: a.Shards})
			case upgradestate.FinishAbort:
				w.apply(ctx, upgradestate.Aborted{ID: a.ID})
			default:
				ev, is := a.(upgradestate.Event)
				if !is {
					w.t.Fatalf("unexpected action %T", a)
				}
				w.apply(ctx, ev)
			}
		}
	}
}

// execute does an announced operation, and does not confirm it.
func (w *world) execute(ctx context.Context, a upgradestate.Execute) {
	w.t.Helper()
	tok := record.Token{Kind: a.Place.Kind, Name: a.Place.Name, ID: a.Place.ID, Fixed: a.Place.Fixed}
	w.check(w.db[a.Version].Fence(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: tok, To: a.Pending.To, Restore: a.Restore}))
}

func at(step upgradestate.Step) func(upgradestate.Deployment) bool {
	return func(d upgradestate.Deployment) bool { return d.Upgrade != nil && d.Upgrade.Step == step }
}

func sealed(d upgradestate.Deployment) bool {
	ns, _ := d.Namespace("v1")
	return ns.Kinds[0].Sealed
}

func open(version string) func(upgradestate.Deployment) bool {
	return func(d upgradestate.Deployment) bool {
		v, places := upgradestate.WritePlaces(d)
		return v == version && len(places) > 0 && d.Upgrade == nil
	}
}

// tokens are where a version's kinds are now.
func (w *world) tokens(ctx context.Context, version string) record.Tokens {
	w.t.Helper()
	toks := record.Tokens{}
	for kind, places := range upgradestate.EnginePlaces(w.get(ctx), version) {
		p := places[0]
		toks[kind] = record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
	}
	return toks
}

// put writes into a database, past all servers.
func (w *world) put(ctx context.Context, version, kind, name, value string) {
	w.t.Helper()
	ms := []record.Mutation{{Kind: kind, Key: record.StringKey(name), Doc: doc(name, value)}}
	w.check(w.db[version].Write(ctx, w.tokens(ctx, version), ms))
}

// stored are the names that a kind of a version holds, past all servers.
func (w *world) stored(ctx context.Context, version, kind string) string {
	w.t.Helper()
	recs, err := w.db[version].List(ctx, record.ListRequest{Token: w.tokens(ctx, version)[kind]})
	w.check(err)
	var names []string
	for _, r := range recs {
		names = append(names, r.Key.String())
	}
	return strings.Join(names, " ")
}

func doc(name, value string) bson.Raw {
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "value", Value: value}})
	if err != nil {
		panic(err)
	}
	return b
}

// announced is a registration that remembers what was announced.
type announced struct {
	mu   sync.Mutex
	said []upgradestate.ServerState
}

func (a *announced) Announce(_ context.Context, s upgradestate.ServerState) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, s)
	return nil
}

func (a *announced) last() upgradestate.ServerState {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.said) == 0 {
		return upgradestate.ServerState{}
	}
	return a.said[len(a.said)-1]
}

// consumer is the Deployment as a server sees it.
type consumer struct {
	*deployment.Store
	*announced
}

var _ vrunner.Deployments = consumer{}

// deaf is a consumer whose watch died unnoticed after the first record.
type deaf struct{ consumer }

func (d deaf) Watch(ctx context.Context) <-chan upgradestate.Deployment {
	inner, cancel := context.WithCancel(ctx)
	first := <-d.consumer.Watch(inner)
	cancel()
	ch := make(chan upgradestate.Deployment, 1)
	ch <- first
	go func() { <-ctx.Done(); close(ch) }()
	return ch
}

// service has a record for each path: PUT stores the body, GET shows it.
type service struct {
	mu    sync.Mutex
	runs  map[string]int // of handlers that write, by version
	parts int            // that a response is written in; 0: one
	// instead, if not nil, writes in place of the handler.
	instead func(version string, v *vrunner.View, r *http.Request) error
}

var kindOf = map[string]string{"v1": "old", "v2": "new"}

func (s *service) stack(version string, views map[string]*vrunner.View) vrunner.Stack {
	serve := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Version", version)
		name := strings.TrimPrefix(r.URL.Path, "/")
		if r.Method == http.MethodGet {
			rec, err := views[version].Get(r.Context(), kindOf[version], name)
			if err == nil {
				value := []byte(rec.Doc.Lookup("value").StringValue())
				for part := range slices.Chunk(value, len(value)/max(s.parts, 1)+1) {
					if _, err = w.Write(part); err != nil {
						break
					}
				}
			}
			answer(w, err)
			return
		}
		s.mu.Lock()
		if s.runs == nil {
			s.runs = map[string]int{}
		}
		s.runs[version]++
		instead := s.instead
		s.mu.Unlock()
		if instead != nil {
			answer(w, instead(version, views[version], r))
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = views[version].Write(r.Context(), []record.Mutation{{
				Kind: kindOf[version], Key: record.StringKey(name), Doc: doc(name, string(body)),
			}})
		}
		answer(w, err)
	}
	return vrunner.Stack{Handler: http.HandlerFunc(serve), Write: func(r *http.Request) bool { return r.Method != http.MethodGet }}
}

func answer(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
	case errors.Is(err, record.ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func (s *service) ran(version string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[version]
}

// clients are both databases as a server reaches them.
func (w *world) clients() map[string]vrunner.Database {
	return map[string]vrunner.Database{
		"v1": {Client: w.db["v1"], Watcher: w.db["v1"]}, "v2": {Client: w.db["v2"], Watcher: w.db["v2"]},
	}
}

// run starts a runner.
func run(ctx context.Context, d vrunner.Deployments, clients map[string]vrunner.Database, s *service, cfg vrunner.Config) *vrunner.Runner {
	cfg.ID = "server"
	r := vrunner.New(d, clients, s.stack, cfg, nil)
	go func() { _ = r.Run(ctx) }() // ends with ctx
	synctest.Wait()
	return r
}

// inBubble runs a test in simulated time, with a server that runs.
func inBubble(t *testing.T, cfg vrunner.Config, test func(ctx context.Context, w *world, s *service, r *vrunner.Runner, a *announced)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		w, s, a := newWorld(ctx, t, plain), &service{}, &announced{}
		test(ctx, w, s, run(ctx, consumer{w.store, a}, w.clients(), s, cfg), a)
	})
}

// send serves a request in the background; the channel delivers the response.
func send(ctx context.Context, r *vrunner.Runner, req *http.Request) <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req.WithContext(ctx))
		done <- w
	}()
	synctest.Wait()
	return done
}

func put(name, value string) *http.Request {
	return httptest.NewRequest(http.MethodPut, "/"+name, strings.NewReader(value))
}

func get(name string) *http.Request { return httptest.NewRequest(http.MethodGet, "/"+name, nil) }

// expect checks a response that is there by now, and which version gave it.
func expect(t *testing.T, what string, done <-chan *httptest.ResponseRecorder, code int, version string) *httptest.ResponseRecorder {
	t.Helper()
	synctest.Wait()
	select {
	case w := <-done:
		if w.Code != code || w.Header().Get("Version") != version {
			t.Errorf("%s: %d from %q, want %d from %q: %s", what, w.Code, w.Header().Get("Version"), code, version, w.Body)
		}
		return w
	default:
		t.Fatalf("%s: no response", what)
		return nil
	}
}

func expectNone(t *testing.T, what string, done <-chan *httptest.ResponseRecorder) {
	t.Helper()
	synctest.Wait()
	select {
	case w := <-done:
		t.Fatalf("%s: responded with %d %s", what, w.Code, w.Body)
	default:
	}
}
