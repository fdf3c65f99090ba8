package etcdcoord_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is an etcd that answers every transaction with one error.
type answering struct {
	pb.UnimplementedKVServer
	err  error
	kvs  []*mvccpb.KeyValue // the answer to each read
	asks atomic.Int64
}

func (a *answering) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}, Kvs: a.kvs}, nil
}

func (a *answering) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	a.asks.Add(1)
	return nil, a.err
}

// The client library would repeat some of these, though the transaction may have gone
// through.
func TestCommitIsSentOnce(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		unknown bool
	}{
		"canceled on the way": {status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL"), true},
		"deadline of a proxy": {status.Error(codes.DeadlineExceeded, "upstream timed out"), true},
		"lost connection":     {status.Error(codes.Unavailable, "error reading from server: EOF"), true},
		"no leader":           {status.Error(codes.Unavailable, "etcdserver: no leader"), true},
		"timed out":           {status.Error(codes.Unavailable, "etcdserver: request timed out"), true},
		"something new":       {status.Error(codes.InvalidArgument, "etcdserver: something new"), true},
		"full database":       {status.Error(codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded"), true},
		"no permission":       {status.Error(codes.PermissionDenied, "etcdserver: permission denied"), false},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := &answering{err: c.err}
			s := open(t, func(server *grpc.Server) { pb.RegisterKVServer(server, etcd) })
			_, err := s.Commit(t.Context(), nil, []coord.Op{{Key: "k"}})
			if err == nil || errors.Is(err, coord.ErrUnknown) != c.unknown {
				t.Errorf("Commit = %v, want ErrUnknown: %t", err, c.unknown)
			}
			if n := etcd.asks.Load(); n != 1 {
				t.Errorf("the transaction was sent %d times", n)
			}
		})
	}
}

// TestCommitIntoFullStore: etcd gives one answer to a commit that it refuses and to the one that
// fills it. A read tells them apart.
func TestCommitIntoFullStore(t *testing.T) {
	at := func(mod int64) []*mvccpb.KeyValue { return []*mvccpb.KeyValue{{Key: []byte("k"), ModRevision: mod}} }
	for name, c := range map[string]struct {
		conditions []coord.Condition
		kvs        []*mvccpb.KeyValue
		unknown    bool
	}{
		"as it was":           {[]coord.Condition{{Key: "k", Revision: 7}}, at(7), false},
		"changed":             {[]coord.Condition{{Key: "k", Revision: 7}}, at(8), true},
		"gone":                {[]coord.Condition{{Key: "k", Revision: 7}}, nil, true},
		"still absent":        {[]coord.Condition{{Key: "k"}}, nil, false},
		"created":             {[]coord.Condition{{Key: "k"}}, at(8), true},
		"nothing is compared": {nil, at(7), true},
		"another key":         {[]coord.Condition{{Key: "l", Revision: 7}}, at(7), true},
		"only its creation":   {[]coord.Condition{{Key: "k", Create: true, Revision: 7}}, at(7), true},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := &answering{err: status.Error(codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded"), kvs: c.kvs}
			s := open(t, func(server *grpc.Server) { pb.RegisterKVServer(server, etcd) })
			_, err := s.Commit(t.Context(), c.conditions, []coord.Op{{Key: "k"}})
			if !errors.Is(err, coord.ErrNoSpace) || errors.Is(err, coord.ErrUnknown) != c.unknown || !strings.Contains(err.Error(), etcdconn.MakeRoom) {
				t.Errorf("commit: %v, want ErrUnknown: %t", err, c.unknown)
			}
		})
	}
}

// open connects to a simulated etcd.
func open(t *testing.T, register func(*grpc.Server)) *etcdcoord.Store {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	s, err := etcdcoord.Open(t.Context(), etcdcoord.Config{Endpoints: []string{"http://" + l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
