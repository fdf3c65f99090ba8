package vrunner_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/examples/bbs"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// bbsStack is the sample service's.
func bbsStack(version string, views map[string]*vrunner.View) vrunner.Stack {
	h := bbs.StackV2(vrunner.StoreOf(views[bbs.V2]))
	if version == bbs.V1 {
		h = bbs.StackV1(vrunner.StoreOf(views[bbs.V1]), vrunner.StoreOf(views[bbs.V2]))
	}
	return vrunner.Stack{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Version", version)
			h.ServeHTTP(w, r)
		}),
		Write: func(r *http.Request) bool { return bbs.IsWrite(r.URL.Path) },
	}
}

// listen serves over HTTP/1.1 and HTTP/2 without TLS, and returns a client for each of
// the protocols, by name.
func listen(t *testing.T, h http.Handler) map[string]bbsv1connect.DesiredLRPServiceClient {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = &protocols
	srv.Config.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(t.Context()) }
	srv.Start()
	var only2 http.Protocols
	only2.SetUnencryptedHTTP2(true)
	h1, h2 := &http.Transport{}, &http.Transport{Protocols: &only2}
	t.Cleanup(func() { h1.CloseIdleConnections(); h2.CloseIdleConnections(); srv.Close() })
	c1, c2 := &http.Client{Transport: h1}, &http.Client{Transport: h2}
	return map[string]bbsv1connect.DesiredLRPServiceClient{
		"connect":      bbsv1connect.NewDesiredLRPServiceClient(c1, srv.URL),
		"connect json": bbsv1connect.NewDesiredLRPServiceClient(c1, srv.URL, connect.WithProtoJSON()),
		"connect h2c":  bbsv1connect.NewDesiredLRPServiceClient(c2, srv.URL),
		"grpc":         bbsv1connect.NewDesiredLRPServiceClient(c2, srv.URL, connect.WithGRPC()),
		"grpc-web":     bbsv1connect.NewDesiredLRPServiceClient(c1, srv.URL, connect.WithGRPCWeb()),
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-late:
			t.Fatalf("%s does not come", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// bring copies everything from v1 to v2, as the sync does.
func (w *world) bring(ctx context.Context) {
	w.t.Helper()
	reg := transform.NewRegistry(bbs.Service)
	w.check(bbs.Register(reg))
	dir, err := reg.Direction(bbs.V1, bbs.V2)
	w.check(err)
	recs, err := w.db["v1"].List(ctx, record.ListRequest{Token: w.tokens(ctx, "v1")[bbs.KindDesiredLRPs]})
	w.check(err)
	for _, rec := range recs {
		id, _, err := dir.GroupOf(rec.Kind, rec.Key)
		w.check(err)
		out, err := dir.Transform(id, transform.Group{Name: id.Name, Records: []record.Record{rec}}, transform.Group{Name: id.Name})
		w.check(err)
		var ms []record.Mutation
		for _, o := range out {
			ms = append(ms, record.Mutation{Kind: o.Kind, Key: o.Key, Doc: o.Doc})
		}
		w.check(w.db["v2"].Write(ctx, w.tokens(ctx, "v2"), ms))
	}
}

// TestSwapBehindAnOpenListener: clients of every protocol write during the switch, over
// the connections that they had, and see nothing but latency.
func TestSwapBehindAnOpenListener(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	kinds := func(names ...string) (specs []record.KindSpec) {
		for _, n := range names {
			specs = append(specs, record.KindSpec{Name: n})
		}
		return specs
	}
	w := newWorld(ctx, t, map[string][]record.KindSpec{"v1": kinds(bbs.KindDesiredLRPs), "v2": kinds(bbs.KindDeployments, bbs.KindDefinitions)})
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), bbsStack, vrunner.Config{ID: "server"}, nil)
	clients := listen(t, r)
	runs, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = r.Run(runs) }() // ends with its context
	defer func() { stop(); <-stopped }()
	eventually(t, "ready", func() bool { return r.Ready() == nil && r.GateOpen() })

	lrp := func(guid string) *bbsv1.DesiredLRP {
		return &bbsv1.DesiredLRP{ProcessGuid: guid, Domain: "d", Instances: 1, Definition: &bbsv1.Definition{Rootfs: "r", MemoryMb: 64}}
	}
	guid := func(name string, n int) string {
		return fmt.Sprintf("%s-%d", name[len(name)-3:], n) + fmt.Sprint(len(name))
	}
	for name, c := range clients {
		res, err := c.CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: lrp(guid(name, 1))}))
		if err != nil || res.Header().Get("Version") != "v1" {
			t.Fatalf("%s: %v", name, err)
		}
	}
	w.begin(ctx)
	w.until(ctx, at(upgradestate.StepDrain))
	eventually(t, "hold", func() bool { return !r.GateOpen() })

	type outcome struct {
		name, version string
		err           error
	}
	done := make(chan outcome, 3*len(clients))
	for name, c := range clients {
		go func() {
			res, err := c.CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: lrp(guid(name, 2))}))
			o := outcome{name: name + " create", err: err}
			if err == nil {
				o.version = res.Header().Get("Version")
			}
			done <- o
		}()
		go func() {
			res, err := c.UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: guid(name, 1), Instances: proto.Int32(7)}))
			o := outcome{name: name + " update", err: err}
			if err == nil {
				o.version = res.Header().Get("Version")
			}
			done <- o
		}()
		go func() { // an error of the application reaches its client as what it is
			_, err := c.DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: "none"}))
			o := outcome{name: name + " delete", version: "v2"}
			if connect.CodeOf(err) != connect.CodeNotFound {
				o.err = fmt.Errorf("want not found: %w", err)
			}
			done <- o
		}()
	}
	eventually(t, "all held", func() bool { return r.State().Held == cap(done) })
	for name, c := range clients { // reads go on
		if _, err := c.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: guid(name, 1)})); err != nil {
			t.Errorf("%s: read during the switch: %v", name, err)
		}
	}
	w.bring(ctx)
	w.until(ctx, open("v2"))
	for range cap(done) {
		if o := <-done; o.err != nil || o.version != "v2" {
			t.Errorf("%s: from %q, %v", o.name, o.version, o.err)
		}
	}
	for name, c := range clients {
		for n, instances := range map[int]int32{1: 7, 2: 1} {
			res, err := c.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: guid(name, n)}))
			if err != nil || res.Header().Get("Version") != "v2" || res.Msg.GetDesiredLrp().GetInstances() != instances {
				t.Errorf("%s: %d: %v, %v", name, n, res, err)
			}
		}
	}
	old, err := w.db["v1"].List(ctx, record.ListRequest{Token: w.tokens(ctx, "v1")[bbs.KindDesiredLRPs]})
	if err != nil || len(old) != len(clients) {
		t.Errorf("v1 holds %d records, %v; want the %d from before", len(old), err, len(clients))
	}
	if ms := r.State().RestartMillis; ms < 1 || ms > 5000 {
		t.Errorf("the swap took %d ms", ms)
	}
}

// TestRefusalOverHTTP: clients of every protocol understand that they may try again.
func TestRefusalOverHTTP(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(ctx, t, map[string][]record.KindSpec{"v1": {{Name: bbs.KindDesiredLRPs}}, "v2": {{Name: bbs.KindDeployments}, {Name: bbs.KindDefinitions}}})
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), bbsStack, vrunner.Config{ID: "server", HoldCap: 50 * time.Millisecond, MaxBody: 1000}, nil)
	clients := listen(t, r)
	runs, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = r.Run(runs) }() // ends with its context
	defer func() { stop(); <-stopped }()
	eventually(t, "ready", func() bool { return r.Ready() == nil })
	w.begin(ctx)
	w.until(ctx, at(upgradestate.StepHold))
	eventually(t, "hold", func() bool { return !r.GateOpen() })
	for name, c := range clients {
		req := &bbsv1.CreateDesiredLRPRequest{DesiredLrp: &bbsv1.DesiredLRP{ProcessGuid: "p", Domain: "d", Definition: &bbsv1.Definition{}}}
		_, err := c.CreateDesiredLRP(ctx, connect.NewRequest(req))
		if connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
		req.DesiredLrp.Annotation = string(make([]byte, 1000))
		_, err = c.CreateDesiredLRP(ctx, connect.NewRequest(req))
		if connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v, want resource exhausted", name, err)
		}
	}
	if names := w.stored(ctx, "v1", bbs.KindDesiredLRPs); names != "" {
		t.Errorf("stored %q", names)
	}
}

// TestOldAPIWatchesOverTheFlip: a client of v1 watches, and its one stream goes from v1's
// own handler to the one that serves v1 over v2 data, without a word of it.
func TestOldAPIWatchesOverTheFlip(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(ctx, t, map[string][]record.KindSpec{"v1": {{Name: bbs.KindDesiredLRPs}}, "v2": {{Name: bbs.KindDeployments}, {Name: bbs.KindDefinitions}}})
	r := vrunner.New(consumer{w.store, &announced{}}, w.clients(), bbsStack, vrunner.Config{ID: "server"}, nil)
	mux := http.NewServeMux()
	mux.Handle("/", r)
	bbs.MountWatches(mux, r)
	clients := listen(t, mux)
	runs, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = r.Run(runs) }() // ends with its context
	defer func() { stop(); <-stopped }()
	eventually(t, "ready", func() bool { return r.Ready() == nil && r.GateOpen() })

	create := func(guid string) {
		t.Helper()
		lrp := &bbsv1.DesiredLRP{
			ProcessGuid: guid, Domain: "d", Instances: 1, Routes: map[string]string{"r": "1", "q": ""},
			Definition: &bbsv1.Definition{Rootfs: "r", MemoryMb: 64, Env: []*bbsv1.EnvVar{{Name: "E"}}, Action: &bbsv1.Action{Path: "/a"}, Ports: []uint32{1}},
		}
		if _, err := clients["connect"].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: lrp})); err != nil {
			t.Fatal(err)
		}
	}
	create("a")
	create("b")
	streams := map[string]*connect.ServerStreamForClient[bbsv1.WatchDesiredLRPsResponse]{}
	expect := func(want ...string) {
		t.Helper()
		for name, s := range streams {
			for _, m := range want {
				if !s.Receive() {
					t.Fatalf("%s: the stream ended instead of %s: %v", name, m, s.Err())
				}
				if got := fmt.Sprintf("%s %s %d", s.Msg().GetEvent(), s.Msg().GetProcessGuid(), s.Msg().GetDesiredLrp().GetInstances()); got != m {
					t.Errorf("%s: got %s, want %s: %v", name, got, m, s.Msg())
				}
			}
		}
	}
	for name, c := range clients {
		watching, leave := context.WithCancel(ctx)
		s, err := c.WatchDesiredLRPs(watching, connect.NewRequest(&bbsv1.WatchDesiredLRPsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { leave(); _ = s.Close() }()
		streams[name] = s
	}
	expect("EVENT_PUT a 1", "EVENT_PUT b 1", "EVENT_CAUGHT_UP  0")
	w.begin(ctx)
	w.bring(ctx)
	w.until(ctx, open("v2"))
	eventually(t, "swap", func() bool { return r.State().Active == "v2" && r.GateOpen() })
	// Nothing of a and b, which are as they were.
	_, err := clients["grpc"].UpdateDesiredLRP(ctx, connect.NewRequest(&bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "b", Instances: proto.Int32(7)}))
	if err != nil {
		t.Fatal(err)
	}
	expect("EVENT_PUT b 7")
	if _, err := clients["grpc"].DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: "a"})); err != nil {
		t.Fatal(err)
	}
	expect("EVENT_DELETE a 0")
}
