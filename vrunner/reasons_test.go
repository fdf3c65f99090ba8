package vrunner_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"dbcontroller.dev/apiversion"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	libraryv2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/store/faultstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// refusing is a server each of whose calls is refused.
type refusing struct {
	door    door.Config // bounds, and what is served
	handler http.Handler
	path    string // of the call; empty: refusedCall
	before  func(url string)
	inside  chan struct{} // closed when the call has come to the handler
	during  func()        // after that
}

const refusedCall = "/refusals.v1.Refusals/Call"

// reasons are, for each reason that there is, what clients do about it, and how a server comes to
// give it.
var reasons = map[refusal.Reason]struct {
	code  connect.Code
	again bool // the same call can be made again
	meta  string
	serve func(ctx context.Context, t *testing.T) refusing
}{
	refusal.Held: {connect.CodeUnavailable, true, "", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, plain)
		w.begin(ctx)
		w.until(ctx, at(upgradestate.StepHold))
		return refusing{handler: w.serves(ctx, w.clients(), vrunner.Config{HoldCap: time.Millisecond}, writes("a"))}
	}},
	refusal.Fenced: {connect.CodeUnavailable, true, "", func(ctx context.Context, t *testing.T) refusing {
		var n atomic.Int64 // what has written cannot be run again by the server
		return failing(ctx, t, writes("a", "b"), func() faultstore.Fault {
			if n.Add(1)%2 == 1 {
				return faultstore.Fault{}
			}
			return faultstore.Fault{Before: record.ErrFenced}
		})
	}},
	refusal.OutcomeUnknown: {connect.CodeUnavailable, false, "", func(ctx context.Context, t *testing.T) refusing {
		return failing(ctx, t, writes("a"), faultstore.Lost)
	}},
	refusal.DatabaseUnavailable: {connect.CodeUnavailable, true, "", failsWith(record.ErrUnavailable)},
	refusal.Busy: {connect.CodeUnavailable, true, "", func(ctx context.Context, t *testing.T) refusing {
		inside, leave := make(chan struct{}), make(chan struct{})
		r := refusing{door: door.Config{Requests: 1}, handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(inside); <-leave })}
		r.before = func(url string) {
			left := make(chan struct{})
			go func() {
				defer close(left)
				if res, err := http.Get(url + refusedCall); err == nil {
					_ = res.Body.Close()
				}
			}()
			t.Cleanup(func() { close(leave); <-left })
			select {
			case <-inside:
			case <-left:
				t.Fatal("the call that keeps the server busy is answered")
			}
		}
		return r
	}},
	refusal.NotReady: {connect.CodeUnavailable, true, "active=v1", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, map[string][]record.KindSpec{"v2": plain["v2"]})
		return refusing{handler: w.serves(ctx, w.clients(), vrunner.Config{}, writes("a"))}
	}},
	refusal.ServerTooOld: {connect.CodeUnavailable, true, "active=v2", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, plain)
		w.begin(ctx)
		w.until(ctx, open("v2"))
		return refusing{handler: w.serves(ctx, map[string]vrunner.Database{"v1": {Client: w.db["v1"]}}, vrunner.Config{}, writes("a"))}
	}},
	refusal.Stopping: {connect.CodeUnavailable, true, "", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, plain)
		running, stop := context.WithCancel(ctx)
		r := w.serves(running, w.clients(), vrunner.Config{}, stream(func(context.Context, string, map[string]*vrunner.View) error { return nil }))
		stop()
		eventually(t, "the end", func() bool {
			return why(r.Stream(ctx, func(context.Context, string) error { return nil })) == refusal.Stopping
		})
		return refusing{handler: r}
	}},
	// It ends streams only: TestImportEnds has a server that gives it.
	refusal.PartlyDone: {connect.CodeAborted, false, "", func(context.Context, *testing.T) refusing {
		return refusing{handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			refusal.Write(w, req, refusal.New(refusal.PartlyDone, errors.New("after 1 messages that are done: held")))
		})}
	}},
	refusal.StreamEnded: {connect.CodeUnavailable, true, "", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, plain)
		inside := make(chan struct{})
		r := w.serves(ctx, w.clients(), vrunner.Config{}, stream(func(ctx context.Context, _ string, _ map[string]*vrunner.View) error {
			close(inside)
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		return refusing{handler: r, inside: inside, during: func() {
			w.begin(ctx)
			w.until(ctx, open("v2"))
		}}
	}},
	refusal.VersionNotActive: {connect.CodeFailedPrecondition, false, "service=refusals.v1.Refusals", func(context.Context, *testing.T) refusing {
		return refusing{handler: apiversion.ReadOnly(http.NotFoundHandler(), func(string) bool { return false }, "use v1")}
	}},
	refusal.VersionNotReady: {connect.CodeNotFound, false, "version=v2", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, map[string][]record.KindSpec{"v1": plain["v1"]})
		return refusing{handler: w.serves(ctx, w.clients(), vrunner.Config{}, reads("v2"))}
	}},
	refusal.VersionRetired: {connect.CodeNotFound, false, "version=v1", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, plain)
		w.begin(ctx)
		w.until(ctx, open("v2"))
		w.apply(ctx, upgradestate.Complete{Version: "v1"})
		return refusing{handler: w.serves(ctx, w.clients(), vrunner.Config{}, reads("v1"))}
	}},
	refusal.VersionNotServed: {connect.CodeUnimplemented, false, "newest=v2 oldest=v1 service=library version=v9", func(context.Context, *testing.T) refusing {
		v1, v2 := libraryServices()
		r := apiversion.NewRange([]protoreflect.ServiceDescriptor{v1, v2}, nil)
		return refusing{path: "/library.v9.LibraryService/GetBook", door: door.Config{Absent: r.Refusal, Table: access.Table{}}, handler: http.NotFoundHandler()}
	}},
	refusal.MethodDiscontinued: {connect.CodeUnimplemented, false, "method=library.v1.LibraryService.GetBook", func(_ context.Context, t *testing.T) refusing {
		v1, v2 := libraryServices()
		cfg := apiversion.Config{Old: v1, New: v2}
		for i := range v1.Methods().Len() {
			cfg.Methods = append(cfg.Methods, apiversion.Method{Old: string(v1.Methods().Get(i).Name()), Discontinued: "nothing"})
		}
		table, err := apiversion.NewTable(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return refusing{path: "/library.v1.LibraryService/GetBook", handler: apiversion.NewHandler(table, http.NotFoundHandler(), apiversion.Options{})}
	}},
	refusal.TooLarge:   {connect.CodeInvalidArgument, false, "", failsWith(record.ErrOversize)},
	refusal.NotUnique:  {connect.CodeFailedPrecondition, false, "", failsWith(record.ErrConflict)},
	refusal.Refused:    {connect.CodeInvalidArgument, false, "", failsWith(record.Refuse(errors.New("a validator")))},
	refusal.Unreadable: {connect.CodeDataLoss, false, "", failsWith(record.ErrUnreadable)},
	refusal.KeyMissing: {connect.CodeFailedPrecondition, false, "", failsWith(record.ErrNoKey)},
	refusal.StillReferenced: {connect.CodeFailedPrecondition, false, "referrers=2", func(ctx context.Context, t *testing.T) refusing {
		// As package resource does it.
		w := newWorld(ctx, t, plain)
		return refusing{handler: w.serves(ctx, w.clients(), vrunner.Config{}, call{do: func(context.Context, string, map[string]*vrunner.View) error {
			return refusal.New(refusal.StillReferenced, errors.New("2 referrers"), refusal.MetaReferrers, "2")
		}})}
	}},
	refusal.NotOwner: {connect.CodeFailedPrecondition, false, "region=eu", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, plain)
		return refusing{handler: w.serves(ctx, w.clients(), vrunner.Config{}, writesOfRegion())}
	}},
	refusal.Moving: {connect.CodeUnavailable, true, "region=eu", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, plain)
		return refusing{handler: w.serves(ctx, w.clients(), vrunner.Config{}, call{do: func(ctx context.Context, version string, views map[string]*vrunner.View) error {
			kind := kindOf[version]
			m := record.Mutation{Kind: kind, Key: record.StringKey("a")}
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "a"}, {Key: "home", Value: "eu"}, {Key: "move", Value: "leaving:eu:v1.1.a"}})
			if err != nil {
				return err
			}
			m.Doc = doc
			if err := views[version].Write(ctx, []record.Mutation{m}); err != nil {
				return err
			}
			store := region.Over(views[version], "us", nil, map[string]region.Kind{kind: {Field: "home", Move: "move"}})
			return store.Write(ctx, []record.Mutation{m})
		}})}
	}},
	refusal.RegionUnavailable: {connect.CodeUnavailable, true, "", func(ctx context.Context, t *testing.T) refusing {
		w := newWorld(ctx, t, plain)
		away := func(w http.ResponseWriter, req *http.Request, _ []byte, _ string) bool {
			refusal.Write(w, req, refusal.New(refusal.RegionUnavailable, errors.New("eu is away")))
			return true
		}
		return refusing{handler: w.serves(ctx, w.clients(), vrunner.Config{Forward: away}, writesOfRegion())}
	}},
}

// writesOfRegion writes a record that region eu owns.
func writesOfRegion() call {
	return call{do: func(ctx context.Context, version string, views map[string]*vrunner.View) error {
		store := region.Over(views[version], "us", []string{"eu"}, map[string]region.Kind{kindOf[version]: {Collection: "regions"}})
		return store.Write(ctx, []record.Mutation{{Kind: kindOf[version], Key: record.StringKey("regions/eu/a/b"), Doc: doc("regions/eu/a/b", "1"), Absent: true}})
	}}
}

func libraryServices() (v1, v2 protoreflect.ServiceDescriptor) {
	return libraryv1.File_library_v1_library_proto.Services().ByName("LibraryService"), libraryv2.File_library_v2_library_proto.Services().ByName("LibraryService")
}

// call is what a handler does.
type call struct {
	do     func(ctx context.Context, version string, views map[string]*vrunner.View) error
	stream bool
}

func writes(names ...string) call {
	return call{do: func(ctx context.Context, version string, views map[string]*vrunner.View) error {
		for _, name := range names {
			if err := views[version].Write(ctx, []record.Mutation{{Kind: kindOf[version], Key: record.StringKey(name), Doc: doc(name, "1")}}); err != nil {
				return err
			}
		}
		return nil
	}}
}

func reads(version string) call {
	return call{do: func(ctx context.Context, _ string, views map[string]*vrunner.View) error {
		_, err := views[version].Get(ctx, kindOf[version], "a")
		return err
	}}
}

func stream(do func(context.Context, string, map[string]*vrunner.View) error) call {
	return call{do: do, stream: true}
}

// serves returns a server that has read the deployment.
func (w *world) serves(ctx context.Context, databases map[string]vrunner.Database, cfg vrunner.Config, c call) *vrunner.Runner {
	w.t.Helper()
	cfg.ID = "server"
	r := vrunner.New(consumer{w.store, &announced{}}, databases, func(version string, views map[string]*vrunner.View) vrunner.Stack {
		h := connect.NewUnaryHandler(refusedCall, func(ctx context.Context, _ *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			return apiversion.Respond(&emptypb.Empty{}, c.do(ctx, version, views))
		})
		always := func(*http.Request) bool { return true }
		return vrunner.Stack{Handler: h, Write: always, Stream: func(*http.Request) bool { return c.stream }}
	}, cfg, nil)
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }() // ends with ctx
	w.t.Cleanup(func() { stop(); <-done })
	eventually(w.t, "the deployment", func() bool {
		err := r.Ready() // once: it may become nil at any time
		return err == nil || !strings.Contains(err.Error(), "Deployment in etcd")
	})
	return r
}

// failing is a server whose database does to writes what fault returns.
func failing(ctx context.Context, t *testing.T, c call, fault func() faultstore.Fault) refusing {
	w := newWorld(ctx, t, plain)
	injector := faultstore.On(faultstore.InjectorFunc(func(faultstore.Op) faultstore.Fault { return fault() }), faultstore.Write)
	dbs := w.clients()
	dbs["v1"] = vrunner.Database{Client: faultstore.WrapClient(w.db["v1"], injector)}
	return refusing{handler: w.serves(ctx, dbs, vrunner.Config{}, c)}
}

func failsWith(err error) func(context.Context, *testing.T) refusing {
	return func(ctx context.Context, t *testing.T) refusing {
		return failing(ctx, t, writes("a"), func() faultstore.Fault { return faultstore.Fault{Before: fmt.Errorf("write v1/old: %w", err)} })
	}
}

// refused is what a client reads of a refusal.
type refused struct {
	code   connect.Code
	reason string
	domain string
	meta   string
}

func (a *refused) read(info *errdetails.ErrorInfo) {
	var meta []string
	for _, name := range slices.Sorted(maps.Keys(info.GetMetadata())) {
		meta = append(meta, name+"="+info.GetMetadata()[name])
	}
	a.reason, a.domain, a.meta = info.GetReason(), info.GetDomain(), strings.Join(meta, " ")
}

// overConnect calls with a generated client, of whatever protocol.
func overConnect(protocols *http.Protocols, opts ...connect.ClientOption) func(ctx context.Context, url string) (a refused, err error) {
	return func(ctx context.Context, url string) (a refused, err error) {
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		_, err = connect.NewClient[emptypb.Empty, emptypb.Empty](&http.Client{Transport: transport}, url, opts...).CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
		var answer *connect.Error
		if !errors.As(err, &answer) || !connect.IsWireError(err) {
			return a, fmt.Errorf("no answer: %w", err)
		}
		a.code = answer.Code()
		for _, d := range answer.Details() {
			v, err := d.Value()
			if err != nil {
				return a, err
			}
			if info, ok := v.(*errdetails.ErrorInfo); ok && a.reason == "" {
				a.read(info)
			}
		}
		return a, nil
	}
}

// overHTTP calls as a program does that knows nothing of Connect.
func overHTTP(ctx context.Context, url string) (a refused, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte("{}")))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	var body struct {
		Code    string
		Details []struct{ Type, Value string }
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return a, fmt.Errorf("status %d: %w", res.StatusCode, err)
	}
	if err := a.code.UnmarshalText([]byte(body.Code)); err != nil {
		return a, err
	}
	if want := map[connect.Code]int{
		connect.CodeUnavailable: 503, connect.CodeFailedPrecondition: 400, connect.CodeInvalidArgument: 400,
		connect.CodeNotFound: 404, connect.CodeUnimplemented: 501, connect.CodeDataLoss: 500, connect.CodeResourceExhausted: 429, connect.CodeAborted: 409,
	}[a.code]; res.StatusCode != want {
		return a, fmt.Errorf("status %d with %s, want %d", res.StatusCode, a.code, want)
	}
	for _, d := range body.Details {
		value, err := base64.RawStdEncoding.DecodeString(d.Value)
		info := &errdetails.ErrorInfo{}
		if err = errors.Join(err, proto.Unmarshal(value, info)); err != nil {
			return a, err
		}
		if d.Type == "google.rpc.ErrorInfo" && a.reason == "" {
			a.read(info)
		}
	}
	return a, nil
}

// TestReasonsInEveryProtocol: what a server refuses, for each reason that there is, clients read
// over each protocol with the same code, reason, domain and metadata, by which they know whether
// the same call can be made again.
func TestReasonsInEveryProtocol(t *testing.T) {
	t.Parallel()
	var only2 http.Protocols
	only2.SetUnencryptedHTTP2(true)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	protocols := map[string]func(context.Context, string) (refused, error){
		"HTTP":         overHTTP,
		"connect":      overConnect(nil),
		"connect json": overConnect(nil, connect.WithProtoJSON()),
		"grpc":         overConnect(&only2, connect.WithGRPC()),
		"grpc-web":     overConnect(nil, connect.WithGRPCWeb()),
	}
	// Controllers refuse by these, and no service: package internal/control/deployment/api tests them.
	ofControllers := []refusal.Reason{refusal.NotInThisState, refusal.ControllerTooOld, refusal.Full, refusal.CoordinationUnavailable}
	ofServices := slices.DeleteFunc(slices.Clone(refusal.Reasons()), func(r refusal.Reason) bool { return slices.Contains(ofControllers, r) })
	for _, reason := range ofServices {
		row, ok := reasons[reason]
		if !ok {
			t.Errorf("no server of this test gives the reason %s: add it to reasons", reason)
			continue
		}
		want := refused{row.code, string(reason), "dbcontroller.dev", row.meta}
		for protocol, ask := range protocols {
			t.Run(string(reason)+" over "+protocol, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				t.Cleanup(cancel)
				r := row.serve(ctx, t)
				url := r.open(ctx, t)
				if r.before != nil {
					r.before(url)
				}
				type answer struct {
					refused
					err error
				}
				done := make(chan answer, 1)
				go func() {
					got, err := ask(ctx, url+r.path)
					done <- answer{got, err}
				}()
				if r.during != nil {
					select {
					case <-r.inside:
						r.during()
					case early := <-done:
						t.Fatalf("answered before anything happened: %+v, %v", early.refused, early.err)
					}
				}
				got := <-done
				if got.err != nil || got.refused != want {
					t.Errorf("%+v, %v, want %+v", got.refused, got.err, want)
				}
				if again := refusal.Reason(got.reason).Again(); again != row.again {
					t.Errorf("can be called again: %t, want %t", again, row.again)
				}
			})
		}
	}
	if len(reasons) != len(ofServices) {
		t.Errorf("%d reasons are tested, and there are %d", len(reasons), len(ofServices))
	}
}

// open lets clients in.
func (r *refusing) open(ctx context.Context, t *testing.T) (url string) {
	t.Helper()
	r.door.What, r.door.Address, r.door.Unencrypted2 = "API port", "127.0.0.1:0", true
	if r.path == "" {
		r.path = refusedCall
	}
	if r.door.Table == nil {
		r.door.Table = access.Table{r.path: {Least: access.Application}}
	}
	d, err := door.Open(r.door)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Serve(ctx, r.handler) }() // ends with ctx
	t.Cleanup(func() { stop(); <-done })
	return "http://" + d.Addr()
}
