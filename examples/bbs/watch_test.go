package bbs

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/examples/sampletest"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
)

// stream is a watch of either version.
type stream[Res any] interface {
	Receive() bool
	Msg() *Res
	Err() error
	Close() error
}

// follower is a client's open watch.
type follower[Res any] struct {
	t      testing.TB
	stream stream[Res]
}

// expect receives messages, which must be these.
func expect[Res any, P interface {
	*Res
	proto.Message
}](f follower[Res], want ...P) {
	f.t.Helper()
	for _, m := range want {
		if !f.stream.Receive() {
			f.t.Fatalf("instead of %v the stream ended: %v", m, f.stream.Err())
		}
		if got := P(f.stream.Msg()); !proto.Equal(got, m) {
			f.t.Errorf("watched %v, want %v", got, m)
		}
	}
}

func follow[Res any](t testing.TB, open func(context.Context) (*connect.ServerStreamForClient[Res], error)) follower[Res] {
	t.Helper()
	// What does not come in that time does not come.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	s, err := open(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = s.Close() // it was cancelled
	})
	return follower[Res]{t, s}
}

func followV1(t testing.TB, a api, req *bbsv1.WatchDesiredLRPsRequest) follower[bbsv1.WatchDesiredLRPsResponse] {
	t.Helper()
	return follow(t, func(ctx context.Context) (*connect.ServerStreamForClient[bbsv1.WatchDesiredLRPsResponse], error) {
		return a.v1.WatchDesiredLRPs(ctx, connect.NewRequest(req))
	})
}

func followV2(t testing.TB, a api, req *bbsv2.WatchLRPDeploymentsRequest) follower[bbsv2.WatchLRPDeploymentsResponse] {
	t.Helper()
	return follow(t, func(ctx context.Context) (*connect.ServerStreamForClient[bbsv2.WatchLRPDeploymentsResponse], error) {
		return a.v2.WatchLRPDeployments(ctx, connect.NewRequest(req))
	})
}

func putV1(p *bbsv1.DesiredLRP) *bbsv1.WatchDesiredLRPsResponse {
	return &bbsv1.WatchDesiredLRPsResponse{Event: bbsv1.WatchDesiredLRPsResponse_EVENT_PUT, ProcessGuid: p.GetProcessGuid(), DesiredLrp: p}
}

func deletedV1(guid string) *bbsv1.WatchDesiredLRPsResponse {
	return &bbsv1.WatchDesiredLRPsResponse{Event: bbsv1.WatchDesiredLRPsResponse_EVENT_DELETE, ProcessGuid: guid}
}

var levelV1 = &bbsv1.WatchDesiredLRPsResponse{Event: bbsv1.WatchDesiredLRPsResponse_EVENT_CAUGHT_UP}

func putV2(p *bbsv2.LRPDeployment) *bbsv2.WatchLRPDeploymentsResponse {
	return &bbsv2.WatchLRPDeploymentsResponse{Event: bbsv2.WatchLRPDeploymentsResponse_EVENT_PUT, ProcessGuid: p.GetProcessGuid(), LrpDeployment: p}
}

func deletedV2(guid string) *bbsv2.WatchLRPDeploymentsResponse {
	return &bbsv2.WatchLRPDeploymentsResponse{Event: bbsv2.WatchLRPDeploymentsResponse_EVENT_DELETE, ProcessGuid: guid}
}

var levelV2 = &bbsv2.WatchLRPDeploymentsResponse{Event: bbsv2.WatchLRPDeploymentsResponse_EVENT_CAUGHT_UP}

func updateV1(t testing.TB, a api, req *bbsv1.UpdateDesiredLRPRequest) *bbsv1.DesiredLRP {
	t.Helper()
	res, err := a.v1.UpdateDesiredLRP(context.Background(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetDesiredLrp()
}

func deleteV1(t testing.TB, a api, guid string) {
	t.Helper()
	if _, err := a.v1.DeleteDesiredLRP(context.Background(), connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: guid})); err != nil {
		t.Fatal(err)
	}
}

// v1Watch: each change is one event, over v2 data too, where a process is several records.
func v1Watch(t *testing.T, a api, _ *sampletest.Store) {
	first := createV1(t, a, lrpV1("a", "cf"))
	f := followV1(t, a, &bbsv1.WatchDesiredLRPsRequest{})
	expect(f, putV1(first), levelV1)
	second := createV1(t, a, lrpV1("b", "cf"))
	expect(f, putV1(second))
	expect(f, putV1(updateV1(t, a, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "a", Instances: proto.Int32(9)})))
	deleteV1(t, a, "b")
	expect(f, deletedV1("b"))
	again := createV1(t, a, lrpV1("b", "cf"))
	expect(f, putV1(again))
}

// v1WatchSome: one that no longer meets the filter is sent as deleted, one that never did
// not at all, and of each only what the mask names.
func v1WatchSome(t *testing.T, a api, _ *sampletest.Store) {
	createV1(t, a, lrpV1("other", "tcp"))
	f := followV1(t, a, &bbsv1.WatchDesiredLRPsRequest{Filter: `domain == "cf" && instances > 0`, ReadMask: mask("instances", "definition.memory_mb")})
	expect(f, levelV1)
	updateV1(t, a, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "other", Instances: proto.Int32(7)})
	deleteV1(t, a, "other")
	createV1(t, a, lrpV1("p", "cf"))
	want := putV1(&bbsv1.DesiredLRP{Instances: 3, Definition: &bbsv1.Definition{MemoryMb: 256}})
	want.ProcessGuid = "p"
	expect(f, want)
	updateV1(t, a, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Instances: proto.Int32(0)})
	expect(f, deletedV1("p"))
	updateV1(t, a, &bbsv1.UpdateDesiredLRPRequest{ProcessGuid: "p", Instances: proto.Int32(5)})
	want.DesiredLrp.Instances = 5
	expect(f, want)
}

func v1WatchRefused(t *testing.T, a api, _ *sampletest.Store) {
	for field, req := range map[string]*bbsv1.WatchDesiredLRPsRequest{
		"filter":    {Filter: `active_definition_id == "x"`},
		"read_mask": {ReadMask: mask("definitions")},
	} {
		s, err := a.v1.WatchDesiredLRPs(context.Background(), connect.NewRequest(req))
		if err == nil {
			if s.Receive() {
				t.Errorf("%s: watched %v", field, s.Msg())
			}
			err = s.Err()
			_ = s.Close() // it has ended
		}
		sampletest.WantError(t, err, connect.CodeInvalidArgument, field)
	}
}

// TestV2Watch: a process is one event, however many of its records changed, and however
// the stream of changes takes them apart.
func TestV2Watch(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, s := v2API(t)
	all := followV2(t, a, &bbsv2.WatchLRPDeploymentsRequest{})
	small := followV2(t, a, &bbsv2.WatchLRPDeploymentsRequest{Filter: `!has(definitions.three) && definitions.one.memory_mb == 1`, ReadMask: mask("active_definition_id")})
	expect(all, levelV2)
	expect(small, levelV2)
	p := createV2(t, a, lrpV2("p"))
	expect(all, putV2(p))
	active := func(id string) *bbsv2.WatchLRPDeploymentsResponse {
		m := putV2(&bbsv2.LRPDeployment{ActiveDefinitionId: id})
		m.ProcessGuid = "p"
		return m
	}
	expect(small, active("two"))
	up, err := a.v2.UpdateLRPDeployment(ctx, connect.NewRequest(&bbsv2.UpdateLRPDeploymentRequest{ProcessGuid: "p", Instances: proto.Int32(8)}))
	if err != nil {
		t.Fatal(err)
	}
	expect(all, putV2(up.Msg.GetLrpDeployment()))
	act, err := a.v2.ActivateDefinition(ctx, connect.NewRequest(&bbsv2.ActivateDefinitionRequest{ProcessGuid: "p", DefinitionId: "one"}))
	if err != nil {
		t.Fatal(err)
	}
	expect(all, putV2(act.Msg.GetLrpDeployment()))
	expect(small, active("one")) // the update before was none of its fields
	add, err := a.v2.AddDefinition(ctx, connect.NewRequest(&bbsv2.AddDefinitionRequest{ProcessGuid: "p", DefinitionId: "three", Definition: &bbsv2.Definition{}}))
	if err != nil {
		t.Fatal(err)
	}
	expect(all, putV2(add.Msg.GetLrpDeployment()))
	expect(small, deletedV2("p"))
	if _, err := a.v2.DeleteLRPDeployment(ctx, connect.NewRequest(&bbsv2.DeleteLRPDeploymentRequest{ProcessGuid: "p"})); err != nil {
		t.Fatal(err)
	}
	expect(all, deletedV2("p"))
	q := createV2(t, a, lrpV2("q"))
	expect(all, putV2(q))
	m := active("two")
	m.ProcessGuid = "q"
	expect(small, m)
	if len(s.All(t, KindDefinitions)) != 2 {
		t.Error("definitions of a deleted process are left")
	}
}

// TestWatchOfABusyProcess: one that changes faster than it can be read does not end the
// watch, whose client gets the latest state in the end.
func TestWatchOfABusyProcess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, s := v2API(t)
	f := followV2(t, a, &bbsv2.WatchLRPDeploymentsRequest{})
	expect(f, levelV2)
	rec := func() record.Record {
		r, err := s.Get(ctx, KindDeployments, "p")
		if err != nil {
			t.Error(err)
		}
		return r
	}
	changes := 0
	s.OnList(func(kind string) {
		if kind != KindDefinitions || changes > resource.Attempts {
			return
		}
		changes++
		p := new(bbsv2.LRPDeployment)
		if err := protodoc.Unmarshal(rec().Doc, p); err != nil {
			t.Error(err)
		}
		p.Instances, p.ModificationTag.Index = p.Instances+1, p.ModificationTag.Index+1
		doc, err := protodoc.Merge(rec().Doc, p)
		if err == nil {
			err = s.Write(ctx, []record.Mutation{{Kind: KindDeployments, Key: record.StringKey("p"), Doc: doc}})
		}
		if err != nil {
			t.Error(err)
		}
	})
	createV2(t, a, lrpV2("p"))
	for {
		if !f.stream.Receive() {
			t.Fatalf("the watch has ended: %v", f.stream.Err())
		}
		if f.stream.Msg().GetLrpDeployment().GetInstances() == 2+resource.Attempts+1 {
			return
		}
	}
}
