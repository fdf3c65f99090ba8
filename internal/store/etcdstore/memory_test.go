package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"dbcontroller.dev/integration/memetcd"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// This file holds what is seen over an etcd in memory: what takes time, and what has to happen
// in the middle of something.

// inMemory is a namespace over an etcd in memory, for as long as the test.
func inMemory(t *testing.T, s *memetcd.Server) (*etcdstore.Store, *clientv3.Client) {
	t.Helper()
	client := s.Client(t.Context())
	store, err := etcdstore.New(&etcdconn.Conn{Client: client}, etcdstore.Config{Prefix: "/records/"})
	if err != nil {
		t.Fatal(err)
	}
	return store, client
}

func provisioned(t *testing.T, s *etcdstore.Store, kind string) record.Token {
	t.Helper()
	tok, err := s.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func follow(t *testing.T, s *etcdstore.Store, kind string) record.Stream {
	t.Helper()
	pos, err := s.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.Watch(t.Context(), pos, []record.KindSpec{{Name: kind}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close(context.Background()) }) // nothing is left to close
	return stream
}

// TestSplitIsWorthIt: a few records are not cut into ranges of which each is a page.
func TestSplitIsWorthIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := inMemory(t, memetcd.New(memetcd.Options{}))
		tok := provisioned(t, s, "k")
		have := 0
		for _, want := range []struct{ records, ranges int }{{0, 1}, {900, 1}, {1700, 3}} {
			for ; have < want.records; have++ {
				id := fmt.Sprintf("%05d", have)
				doc, err := bson.Marshal(bson.D{{Key: "_id", Value: id}})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Write(t.Context(), record.Tokens{"k": tok}, []record.Mutation{{Kind: "k", Key: record.StringKey(id), Doc: doc, Absent: true}}); err != nil {
					t.Fatal(err)
				}
			}
			if ranges, err := s.Split(t.Context(), tok, 64); err != nil || len(ranges) != want.ranges {
				t.Errorf("%d records are %d ranges, %v; want %d", have, len(ranges), err, want.ranges)
			}
		}
	})
}

// TestStreamsShareNothing: each has a stream of etcd's of its own, and with it its own token and
// its own answers to requests for progress.
func TestStreamsShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memetcd.New(memetcd.Options{})
		s, _ := inMemory(t, server)
		tok := provisioned(t, s, "k")
		for range 3 {
			follow(t, s, tok.Kind)
		}
		synctest.Wait()
		if n := server.Streams(); n != 3 {
			t.Errorf("3 streams are %d of etcd's", n)
		}
	})
}

// TestProgress: an idle stream is told how far it has come, waits for a server that is busy, and
// gives one up that does not answer, or that is not connected.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memetcd.New(memetcd.Options{})
		s, client := inMemory(t, server)
		stream := follow(t, s, provisioned(t, s, "k").Kind)
		next := func() (record.Position, time.Duration, error) {
			if _, err := client.Put(t.Context(), "/others/"+fmt.Sprint(time.Now().UnixNano()), ""); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			b, err := stream.Next(t.Context())
			return b.Pos, time.Since(start), err
		}
		newest := func() record.Version {
			pos, err := s.Position(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return pos.At
		}
		if pos, took, err := next(); err != nil || pos.At != newest() || took != time.Second {
			t.Errorf("idle: at %s of %s after %s, %v", pos.At, newest(), took, err)
		}
		server.Silence(true)
		time.AfterFunc(5500*time.Millisecond, func() { server.Silence(false) })
		if pos, took, err := next(); err != nil || pos.At != newest() || took != 5500*time.Millisecond {
			t.Errorf("a busy server: at %s of %s after %s, %v", pos.At, newest(), took, err)
		}
		server.Silence(true)
		if _, took, err := next(); !errors.Is(err, record.ErrUnavailable) || took < 10*time.Second || took > 12*time.Second {
			t.Errorf("a server that does not answer: %v after %s", err, took)
		}
		server.Silence(false)
		server.Cut(true)
		if _, took, err := next(); !errors.Is(err, record.ErrUnavailable) || took != 2*time.Second {
			t.Errorf("no connection: %v after %s", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if _, err := stream.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, record.ErrUnavailable) {
			t.Errorf("the caller's time is over while it is asked: %v", err)
		}
	})
}

// TestWatchThatIsNotWanted: a caller that has given up gets no stream, and none is left.
func TestWatchThatIsNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memetcd.New(memetcd.Options{})
		s, client := inMemory(t, server)
		tok := provisioned(t, s, "k")
		pos, err := s.Position(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		client.KV = hooked{client.KV, cancel} // once it has read the gates
		if _, err := s.Watch(ctx, pos, []record.KindSpec{{Name: tok.Kind}}); !errors.Is(err, context.Canceled) {
			t.Errorf("watch: %v", err)
		}
		synctest.Wait()
		if n := server.Streams(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// hooked calls after behind each read, and at the beginning of each transaction.
type hooked struct {
	clientv3.KV
	after func()
}

func (h hooked) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	defer h.after()
	return h.KV.Get(ctx, key, opts...)
}

func (h hooked) Txn(ctx context.Context) clientv3.Txn {
	h.after()
	return h.KV.Txn(ctx)
}

// TestPurgeOverCompactions: what is purged is more than one page, and the revision that it was
// begun at is compacted behind each.
func TestPurgeOverCompactions(t *testing.T) {
	ctx := t.Context()
	server := memetcd.New(memetcd.Options{})
	s, client := inMemory(t, server)
	tok := provisioned(t, s, "k")
	const n = 300
	b := record.Batch{Tokens: record.Tokens{tok.Kind: tok}, Epoch: 1}
	doc := func(i int) bson.Raw {
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: name(i)}})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for i := range n {
		w := record.Write{Kind: tok.Kind, Key: record.StringKey(name(i))}
		if i%10 == 0 {
			w.Doc = doc(i)
		}
		b.Groups = append(b.Groups, record.GroupWrite{Group: name(i), Version: record.Version{1}, Writes: []record.Write{w}})
	}
	if _, err := s.Apply(ctx, b); err != nil {
		t.Fatal(err)
	}
	plain := client.KV
	other, err := etcdstore.New(&etcdconn.Conn{Client: server.Client(ctx)}, etcdstore.Config{Prefix: "/records/"})
	if err != nil {
		t.Fatal(err)
	}
	transactions := 0
	client.KV = hooked{plain, func() {
		if transactions++; transactions == 4 {
			// A client creates a record over a tombstone that was seen, and is about to go.
			err := other.Write(ctx, b.Tokens, []record.Mutation{{Kind: tok.Kind, Key: record.StringKey(name(1)), Doc: doc(1), Absent: true}})
			if err != nil {
				t.Error(err)
			}
		}
		if _, err := plain.Put(ctx, "/others", ""); err != nil {
			t.Error(err)
		}
		server.Compact()
	}}
	if err := s.Purge(ctx, tok); err != nil {
		t.Fatalf("purge: %v", err)
	}
	client.KV = plain
	page, err := s.Scan(ctx, record.ScanRequest{Token: tok, Guards: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		if r.Tombstone {
			t.Errorf("the tombstone %s is left", r.Key)
		}
	}
	if want := n/10 + 1; len(page.Records) != want {
		t.Errorf("%d records are left, want %d", len(page.Records), want)
	}
}

func name(i int) string { return fmt.Sprintf("n%04d", i) }

// member answers what version it is of, and that it would allow what it is asked for.
type member struct {
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedKVServer
	version string
}

func (m member) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return &pb.TxnResponse{Header: &pb.ResponseHeader{}}, nil
}

func (m member) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (m member) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Version: m.version}, nil
}

func startMember(t *testing.T, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, member{version: version})
	pb.RegisterKVServer(server, member{version: version})
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestCheckAsksEveryMember: one that may lose changes is refused, wherever it stands in the list.
func TestCheckAsksEveryMember(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		versions []string
		refused  string
	}{
		{[]string{"3.5.13"}, ""},
		{[]string{"3.6.0", "3.5.21", "4.0.0"}, ""},
		{[]string{"3.5.12"}, "etcd 3.5.12"},
		{[]string{"3.6.1", "3.4.40"}, "etcd 3.4.40"},
		{[]string{"3.5.9", "3.6.1"}, "etcd 3.5.9"},
		{[]string{"", "3.5.12"}, "etcd 3.5.12"},
		{[]string{"3.6.1", ""}, ""}, // one member may be away
		{[]string{"3.6.1", "none"}, `version "none"`},
		{[]string{"", ""}, record.ErrUnavailable.Error()},
	} {
		t.Run(strings.Join(tc.versions, ","), func(t *testing.T) {
			t.Parallel()
			var endpoints []string
			for _, v := range tc.versions {
				if v == "" {
					l, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						t.Fatal(err)
					}
					endpoints = append(endpoints, l.Addr().String())
					_ = l.Close() // nobody listens there
					continue
				}
				endpoints = append(endpoints, startMember(t, v))
			}
			client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: time.Second, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close() //nolint:errcheck // nothing was written
			s, err := etcdstore.New(&etcdconn.Conn{Client: client}, etcdstore.Config{Prefix: "/records/"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err = s.Check(ctx)
			if tc.refused == "" && err != nil || tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("check: %v, want %q", err, tc.refused)
			}
			var unsupported *record.UnsupportedError
			if strings.HasPrefix(tc.refused, "etcd") && !errors.As(err, &unsupported) {
				t.Errorf("check: %T", err)
			}
		})
	}
}

// TestReadsOverCompactions: etcd discards the revision between the requests of one call.
func TestReadsOverCompactions(t *testing.T) {
	const n = 100
	for what, call := range map[string]func(*etcdstore.Store, record.Token) (int, error){
		"list": func(s *etcdstore.Store, tok record.Token) (int, error) {
			rs, err := s.List(t.Context(), record.ListRequest{Token: tok, Limit: n})
			return len(rs), err
		},
		"a transaction of many": func(s *etcdstore.Store, tok record.Token) (int, error) {
			var ms []record.Mutation
			for i := range n {
				ms = append(ms, record.Mutation{Kind: "k", Key: record.StringKey(name(i)), Exists: true})
			}
			return n, s.Write(t.Context(), record.Tokens{"k": tok}, ms)
		},
	} {
		t.Run(what, func(t *testing.T) {
			server := memetcd.New(memetcd.Options{})
			s, client := inMemory(t, server)
			tok := provisioned(t, s, "k")
			var ms []record.Mutation
			for i := range n {
				ms = append(ms, record.Mutation{Kind: "k", Key: record.StringKey(name(i)), Doc: raw(t, bson.D{{Key: "_id", Value: name(i)}})})
			}
			if err := s.Write(t.Context(), record.Tokens{"k": tok}, ms); err != nil {
				t.Fatal(err)
			}
			kv, requests := client.KV, 0
			client.KV = hooked{kv, func() {
				// The first revision that the call reads at is gone for its second request.
				if requests++; requests == 2 {
					if _, err := kv.Put(t.Context(), "/other", ""); err != nil {
						t.Error(err)
					}
					server.Compact()
				}
			}}
			if got, err := call(s, tok); err != nil || got != n {
				t.Errorf("%d of %d, %v", got, n, err)
			}
			if requests < 3 {
				t.Errorf("%d requests, so nothing was compacted in between", requests)
			}
		})
	}
}
