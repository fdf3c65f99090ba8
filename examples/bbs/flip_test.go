package bbs

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/mongostore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// world is a deployment in memory with one server. The test itself is the controller.
type world struct {
	t      *testing.T
	store  *deployment.Store
	db     map[string]database
	runner *vrunner.Runner
	api    api
	held   func() // called while writes are held; nil: nothing
	// calls are those that have come to the server; only while a test waits for them.
	calls atomic.Pointer[chan string]
}

// database is the whole face of one.
type database interface {
	record.Namespace
	record.Client
}

// backends make the databases of worlds.
var backends = map[string]func(t *testing.T) database{
	"memory": func(*testing.T) database { return memstore.New() },
	"MongoDB": func(t *testing.T) database {
		uri, name := mongotest.Database(t)
		ns, err := mongostore.Open(t.Context(), mongostore.Config{URI: uri, Database: name, Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ns.Close(context.Background()) })
		return struct {
			*mongostore.Namespace
			*mongostore.Client
		}{ns, ns.Client()}
	},
}

// onBackends runs a test in a world on each database.
func onBackends(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, map[string]database{V1: open(t), V2: open(t)}))
		})
	}
}

func newWorld(t *testing.T, db map[string]database) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, store: deployment.New(memcoord.New(), "services/bbs/deployments/d", deployment.Config{}), db: db}
	d, err := w.store.Create(ctx, V1, 1)
	w.check(err)
	for version, kinds := range map[string][]string{V1: kindsV1, V2: kindsV2} {
		var specs []record.KindSpec
		for _, kind := range kinds {
			specs = append(specs, record.KindSpec{Name: kind})
		}
		ns, err := syncer.Provision(ctx, w.db[version], d, version, "mem:"+version, specs, func(string) record.FenceClass { return "" })
		w.check(err)
		w.apply(upgradestate.AnnounceNamespace{Namespace: ns})
	}
	w.apply(upgradestate.AnnounceAvailable{Available: upgradestate.Available{TargetVersion: V2, TransformHash: "h"}})

	databases := map[string]vrunner.Database{V1: {Client: w.db[V1], Watcher: w.db[V1]}, V2: {Client: w.db[V2], Watcher: w.db[V2]}}
	w.runner = vrunner.New(struct {
		*deployment.Store
		silent
	}{w.store, silent{}}, databases, func(version string, views map[string]*vrunner.View) vrunner.Stack {
		h := StackV2(vrunner.StoreOf(views[V2]))
		if version == V1 {
			h = StackV1(vrunner.StoreOf(views[V1]), vrunner.StoreOf(views[V2]))
		}
		return vrunner.Stack{Handler: h, Write: func(r *http.Request) bool { return IsWrite(r.URL.Path) }}
	}, vrunner.Config{ID: "server"}, nil)
	runs, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = w.runner.Run(runs) }() // ends with its context
	t.Cleanup(func() { stop(); <-stopped })
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(out http.ResponseWriter, req *http.Request) {
		if calls := w.calls.Load(); calls != nil {
			*calls <- req.URL.Path
		}
		w.runner.ServeHTTP(out, req)
	})
	MountWatches(mux, w.runner)
	w.api = serve(t, mux)
	w.await("ready", func() bool { return w.runner.Ready() == nil && w.runner.GateOpen() })
	return w
}

// silent is a registration that nobody reads.
type silent struct{}

func (silent) Announce(context.Context, upgradestate.ServerState) error { return nil }

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	late := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-late:
			w.t.Fatalf("%s does not come", what)
		case <-time.After(time.Millisecond):
		}
	}
}

func (w *world) apply(ev upgradestate.Event) {
	w.t.Helper()
	_, err := w.store.Apply(w.t.Context(), ev)
	w.check(err)
}

func (w *world) deployment() upgradestate.Deployment {
	w.t.Helper()
	d, err := w.store.Get(w.t.Context())
	w.check(err)
	return d
}

// until does what a controller does until the record is as wanted.
func (w *world) until(ok func(upgradestate.Deployment) bool) {
	w.t.Helper()
	for !ok(w.deployment()) {
		for _, a := range upgradestate.Actions(w.deployment()) {
			switch a := a.(type) {
			case upgradestate.Hold:
				w.await("hold", func() bool { return !w.runner.GateOpen() })
				if w.held != nil {
					w.held()
				}
				w.apply(upgradestate.Held{ID: a.ID})
			case upgradestate.Execute:
				token := record.Token{Kind: a.Place.Kind, Name: a.Place.Name, ID: a.Place.ID}
				w.check(w.db[a.Version].Fence(w.t.Context(), record.Fence{Class: record.FenceClass(a.Class), Token: token, To: a.Pending.To, Restore: a.Restore}))
				w.apply(upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From})
			case upgradestate.AwaitReports:
				w.apply(upgradestate.Report{ID: a.ID, State: a.State, Attempt: a.Attempt, Fences: a.Fences, Shards: a.Shards})
			default:
				ev, is := a.(upgradestate.Event)
				if !is {
					w.t.Fatalf("unexpected action %T", a)
				}
				w.apply(ev)
			}
		}
	}
}

func (w *world) tokens(version string) record.Tokens {
	tokens := record.Tokens{}
	for kind, places := range upgradestate.EnginePlaces(w.deployment(), version) {
		tokens[kind] = record.Token{Kind: kind, Name: places[0].Name, ID: places[0].ID}
	}
	return tokens
}

// bring brings v2 in sync with v1, as the sync does: each process in one write.
func (w *world) bring() {
	w.t.Helper()
	ctx := w.t.Context()
	up, _ := directions(w.t)
	from, to := w.tokens(V1), w.tokens(V2)
	groups := map[transform.GroupID][]record.Record{}
	for _, kind := range []string{KindDesiredLRPs, KindActualLRPs} {
		recs, err := w.db[V1].List(ctx, record.ListRequest{Token: from[kind]})
		w.check(err)
		for _, rec := range recs {
			id, _, err := up.GroupOf(rec.Kind, rec.Key)
			w.check(err)
			groups[id] = append(groups[id], rec)
		}
	}
	for id, recs := range groups {
		transform.SortRecords(recs)
		out, err := up.Transform(id, transform.Group{Name: id.Name, Records: recs}, transform.Group{Name: id.Name})
		w.check(err)
		var ms []record.Mutation
		for _, o := range out {
			ms = append(ms, record.Mutation{Kind: o.Kind, Key: o.Key, Doc: o.Doc})
		}
		w.check(w.db[V2].Write(ctx, to, ms))
	}
}

// flip makes v2 the active version.
func (w *world) flip() {
	w.t.Helper()
	w.apply(upgradestate.Begin{ID: "u", TargetVersion: V2})
	w.until(func(d upgradestate.Deployment) bool {
		return d.Upgrade != nil && d.Upgrade.Step == upgradestate.StepDrain
	})
	w.bring()
	w.until(func(d upgradestate.Deployment) bool {
		version, places := upgradestate.WritePlaces(d)
		return version == V2 && len(places) > 0 && d.Upgrade == nil
	})
}

// TestWatchOverTheFlip: the watches of both versions go on over a flip. Nothing that was
// there is told twice, and nothing that changed is left out.
func TestWatchOverTheFlip(t *testing.T) { onBackends(t, watchOverTheFlip) }

func watchOverTheFlip(t *testing.T, w *world) {
	ctx := context.Background()
	keep, gone := createV1(t, w.api, lrpV1("keep", "cf")), createV1(t, w.api, lrpV1("other", "tcp"))
	w.bring()
	old := followV1(t, w.api, &bbsv1.WatchDesiredLRPsRequest{})
	some := followV1(t, w.api, &bbsv1.WatchDesiredLRPsRequest{Filter: `domain == "cf"`, ReadMask: mask("instances")})
	now := followV2(t, w.api, &bbsv2.WatchLRPDeploymentsRequest{})
	put := func(guid string, instances int32) *bbsv1.WatchDesiredLRPsResponse {
		m := putV1(&bbsv1.DesiredLRP{Instances: instances})
		m.ProcessGuid = guid
		return m
	}
	expect(old, putV1(keep), putV1(gone), levelV1)
	expect(some, put("keep", 3), levelV1)
	expect(now, putV2(getV2(t, w.api, "keep")), putV2(getV2(t, w.api, "other")), levelV2)

	keep = updateV1(t, w.api, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "keep", Instances: proto.Int32(4)})
	expect(old, putV1(keep))
	expect(some, put("keep", 4))
	w.flip()
	// The sync has brought the change, and that is all that is new.
	expect(now, putV2(getV2(t, w.api, "keep")))

	add, err := w.api.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "keep", DefinitionId: "next", Definition: &bbsv2.Definition{}}))
	if err != nil {
		t.Fatal(err)
	}
	expect(now, putV2(add.Msg.GetLrpDeployment()))
	expect(old, putV1(getV1(t, w.api, "keep")))
	deleteV1(t, w.api, "other")
	expect(now, deletedV2("other"))
	expect(old, deletedV1("other"))
	fresh := createV1(t, w.api, lrpV1("fresh", "cf"))
	expect(old, putV1(fresh))
	expect(now, putV2(getV2(t, w.api, "fresh")))
	expect(some, put("fresh", 3)) // the definition that was added is none of its fields
}

// TestTrafficOverTheFlip: writers go on through a flip. Each watch tells the states of a
// process in their order, none twice, and ends at the latest.
func TestTrafficOverTheFlip(t *testing.T) { onBackends(t, trafficOverTheFlip) }

func trafficOverTheFlip(t *testing.T, w *world) {
	const processes = 4
	f := followV1(t, w.api, &bbsv1.WatchDesiredLRPsRequest{})
	expect(f, levelV1)
	var writers sync.WaitGroup
	var writes [processes]atomic.Int64
	stop := make(chan struct{})
	for i := range processes {
		createV1(t, w.api, lrpV1(fmt.Sprint("p", i), "cf"))
		writers.Go(func() {
			for n := int32(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := w.api.v1.UpdateDesiredLRP(context.Background(), connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: fmt.Sprint("p", i), Instances: proto.Int32(n % 100)}))
				if err != nil {
					t.Errorf("write %d: %v", n, err)
					return
				}
				writes[i].Add(1)
			}
		})
	}
	progress := func() {
		for i := range writes {
			want := writes[i].Load() + 5
			w.await("further writes", func() bool { return writes[i].Load() >= want || t.Failed() })
		}
	}
	progress()
	w.flip()
	progress()
	close(stop)
	writers.Wait()
	if t.Failed() {
		return
	}

	want := map[string]*bbsv1.DesiredLRP{}
	for i := range processes {
		p := getV1(t, w.api, fmt.Sprint("p", i))
		if got := int64(p.GetModificationTag().GetIndex()); got != writes[i].Load() {
			t.Errorf("%s: %d writes were acknowledged, %d are there", p.GetProcessGuid(), writes[i].Load(), got)
		}
		want[p.GetProcessGuid()] = p
	}
	seen := map[string]*bbsv1.DesiredLRP{}
	for len(want) > 0 {
		if !f.stream.Receive() {
			t.Fatalf("the watch has ended: %v", f.stream.Err())
		}
		m := f.stream.Msg()
		if m.GetEvent() != bbsv1.WatchDesiredLRPsResponse_EVENT_PUT {
			t.Fatalf("watched %v, want no more than what is there", m)
		}
		p := m.GetDesiredLrp()
		if before := seen[m.GetProcessGuid()]; before != nil && before.GetModificationTag().GetIndex() >= p.GetModificationTag().GetIndex() {
			t.Errorf("watched %v after %v", p, before)
		}
		seen[m.GetProcessGuid()] = p
		if proto.Equal(p, want[m.GetProcessGuid()]) {
			delete(want, m.GetProcessGuid())
		}
	}
}
