package etcdstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/integration/memetcd"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/record"
)

// TestFullEtcdOpens: an etcd whose quota is reached is opened with a warning, read and followed.
// Writes say what to do, and who may not write is refused all the same.
func TestFullEtcdOpens(t *testing.T) {
	ctx, secured := t.Context(), startSecured(t)
	conn := secured.root
	s := at(t, conn, "/records/")
	tok := lives(t, s, record.Owner{Deployment: "a", Version: "v1"})
	if _, err := s.Identify(ctx); err != nil {
		t.Fatal(err)
	}
	secured.application(t, "reader", "/app/")
	if err := second(conn.RoleGrantPermission(ctx, "reader", "/records/", clientv3.GetPrefixRangeEnd("/records/"), clientv3.PermissionType(clientv3.PermRead))); err != nil {
		t.Fatal(err)
	}
	status, err := conn.Status(ctx, secured.endpoint)
	if err == nil {
		_, err = pb.NewMaintenanceClient(conn.ActiveConnection()).Alarm(ctx,
			&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE})
	}
	if err != nil {
		t.Fatal(err)
	}
	core, logged := observer.New(zap.WarnLevel)
	opened, err := etcdstore.New(secured.login(t, "dbc"), etcdstore.Config{Prefix: "/records/", Log: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.Check(ctx); err != nil || logged.FilterMessageSnippet("etcd is full").Len() != 1 {
		t.Errorf("check: %v, logged %v", err, logged.All())
	}
	if page, err := opened.Scan(ctx, record.ScanRequest{Token: tok}); err != nil || len(page.Records) != 1 {
		t.Errorf("scan: %v, %v", page.Records, err)
	}
	follow(t, opened, "k")
	if _, err := opened.Provision(ctx, record.KindSpec{Name: "l"}, "l.n1"); !errors.Is(err, record.ErrUnavailable) || !strings.Contains(err.Error(), etcdconn.MakeRoom) {
		t.Errorf("a write: %v", err)
	}
	if err := at(t, secured.login(t, "reader"), "/records/").Check(ctx); !errors.Is(err, etcdconn.ErrDenied) {
		t.Errorf("check of a user who may only read: %v", err)
	}
}

// TestWriteThatFillsEtcd: the write that crosses the quota takes effect and has the answer of a
// refused one. So nobody may say that nothing was written, unless a read proves it.
func TestWriteThatFillsEtcd(t *testing.T) {
	exists := raw(t, bson.D{{Key: "_id", Value: "exists"}, {Key: "n", Value: 1}})
	next := raw(t, bson.D{{Key: "_id", Value: "exists"}, {Key: "n", Value: 2}})
	fresh := raw(t, bson.D{{Key: "_id", Value: "fresh"}})
	for name, tc := range map[string]struct {
		m       record.Mutation
		alarm   bool // etcd was full before
		unknown bool
	}{
		"a new record":                            {record.Mutation{Key: record.StringKey("fresh"), Doc: fresh, Absent: true}, false, true},
		"a replaced record":                       {record.Mutation{Key: record.StringKey("exists"), Doc: next, Exists: true}, false, true},
		"a replaced record, refused":              {record.Mutation{Key: record.StringKey("exists"), Doc: next, Exists: true}, true, false},
		"a new record, refused":                   {record.Mutation{Key: record.StringKey("fresh"), Doc: fresh, Absent: true}, true, true},
		"a write without a condition, if refused": {record.Mutation{Key: record.StringKey("exists"), Doc: next}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := memetcd.New(memetcd.Options{})
			s, client := inMemory(t, server)
			tok := provisioned(t, s, "k")
			toks := record.Tokens{"k": tok}
			if err := s.Write(t.Context(), toks, []record.Mutation{{Kind: "k", Key: record.StringKey("exists"), Doc: exists}}); err != nil {
				t.Fatal(err)
			}
			server.Fill()
			if tc.alarm {
				if _, err := client.Put(t.Context(), "/other", ""); !etcdconn.NoSpace(err) {
					t.Fatalf("the put that fills etcd: %v", err)
				}
			}
			tc.m.Kind = "k"
			err := s.Write(t.Context(), toks, []record.Mutation{tc.m})
			if errors.Is(err, record.ErrUnknown) != tc.unknown || errors.Is(err, record.ErrUnavailable) == tc.unknown ||
				!etcdstore.IsUnavailable(err) || !strings.Contains(fmt.Sprint(err), etcdconn.MakeRoom) {
				t.Errorf("write: %v, want unknown: %t", err, tc.unknown)
			}
			have, err := s.Get(t.Context(), tok, tc.m.Key)
			if stored := err == nil && bytes.Equal(have.Doc, tc.m.Doc); stored == tc.alarm {
				t.Errorf("the record is stored: %t, %v", stored, err)
			}
		})
	}
}

// TestFullEtcdEndsCalls: a call that repeats a write whose answer was lost does not repeat it in a full
// etcd. The first mark is one of those that its caller repeats.
func TestFullEtcdEndsCalls(t *testing.T) {
	server := memetcd.New(memetcd.Options{})
	s, client := inMemory(t, server)
	tok := provisioned(t, s, "k")
	server.Fill()
	if _, err := client.Put(t.Context(), "/other", ""); !etcdconn.NoSpace(err) {
		t.Fatalf("the put that fills etcd: %v", err)
	}
	mark := record.Mark{Owner: record.Owner{Deployment: "a", Version: "v1"}}
	if err := s.PutMark(t.Context(), mark); !errors.Is(err, record.ErrUnavailable) || errors.Is(err, record.ErrUnknown) {
		t.Errorf("first mark: %v", err)
	}
	for name, call := range map[string]func(context.Context) error{
		"identify":  func(ctx context.Context) error { return second(s.Identify(ctx)) },
		"provision": func(ctx context.Context) error { return second(s.Provision(ctx, record.KindSpec{Name: "l"}, "l.n1")) },
		"claim": func(ctx context.Context) error {
			return s.Claim(ctx, tok, record.Owner{Deployment: "a", Version: "v1"})
		},
		"fence": func(ctx context.Context) error { return s.Fence(ctx, record.Fence{Token: tok, To: "k.n2"}) },
		"prevent": func(ctx context.Context) error {
			return second(s.Prevent(ctx, record.Fence{Token: tok, To: "k.n2"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := call(ctx); !etcdstore.IsUnavailable(err) || !strings.Contains(err.Error(), etcdconn.MakeRoom) {
				t.Error(err)
			}
		})
	}
}
