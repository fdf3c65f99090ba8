package integration_test

import (
	"context"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

// TestEtcdUserMadeAnew: an administrator deletes the controllers' user of etcd and creates it again, and
// then takes its role's permission away and gives it back, each for longer than leases last. The same
// process goes on with every shard, and switches.
func TestEtcdUserMadeAnew(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m := startSomeMembers(ctx, t, 1, nil)
	s := newSystem(ctx, t, settings{etcd: m.endpoints(), copy: "{auto: true, workers: 2}"})
	const user, scope = "mover", "/dbcontroller/"
	root := m.rootOf(ctx, user, "p0", scope)
	s.write("password", "p0\n")
	s.edit(func(text string) string {
		return strings.Replace(text, "etcd: {", "etcd: {user: "+user+", passwordFile: password, ", 1)
	})
	as, err := etcdcoord.Open(ctx, etcdcoord.Config{
		Endpoints: m.endpoints(), Username: "root", Password: func() (string, error) { return "root", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	stranger := s.etcd // without a login
	t.Cleanup(func() {
		if err := stranger.Close(); err != nil {
			t.Error(err)
		}
	})
	s.etcd, s.record = as, deployment.New(as, s.name, deployment.Config{})
	insert(ctx, s, "v1", packageDoc("v1", "before", 1))
	c := s.run("controller").ready(ctx)
	s.awaitSync(ctx)

	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	loses := func(what string) {
		t.Helper()
		eventually(ctx, t, "the leases end without "+what, func() error {
			alive, err := s.record.Controllers(ctx)
			if err == nil && len(alive) > 0 {
				err = errTooFew
			}
			return err
		})
		insert(ctx, s, "v1", packageDoc("v1", what, 2))
	}
	must(root.UserDelete(ctx, user))
	loses("a user")
	must(root.UserAdd(ctx, user, "p0"))
	must(root.UserGrantRole(ctx, user, user))
	s.awaitShards(ctx, "controller")
	s.awaitSync(ctx)

	end := clientv3.GetPrefixRangeEnd(scope)
	must(root.RoleRevokePermission(ctx, user, scope, end))
	loses("a permission")
	must(root.RoleGrantPermission(ctx, user, scope, end, clientv3.PermissionType(clientv3.PermReadWrite)))
	s.awaitShards(ctx, "controller")
	s.awaitSync(ctx)
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	if n, err := s.db["v2"].Collection(packagesKind).CountDocuments(ctx, bson.D{}); err != nil || n != 3 {
		t.Errorf("v2 has %d documents of 3, %v", n, err)
	}
	if !c.Running() {
		t.Errorf("the controller has ended:\n%s", tail(c.output(), 5))
	}
}
