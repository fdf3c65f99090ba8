package etcdstore_test

import (
	"errors"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

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
