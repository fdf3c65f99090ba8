package etcdstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/store/etcdstore"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

const password = "secret"

// TestConformanceOfApplications is the suite, as far as it is about kinds, with those of an application.
func TestConformanceOfApplications(t *testing.T) {
	for format, topics := range map[etcdstore.Format][]string{
		etcdstore.JSON: {"scan", "read", "apply", "converge", "load", "commits", "changes", "fence", "fixed", "provision", "swap", "forget"},
		etcdstore.BSON: {"read", "apply", "fixed"},
	} {
		t.Run(string(format), func(t *testing.T) {
			if format == etcdstore.BSON {
				raced.Leave(t)
			}
			t.Parallel()
			server := startSecured(t)
			var made atomic.Int64
			recordtest.ExerciseTopics(t, func(t *testing.T) recordtest.Backend {
				n := made.Add(1)
				prefix := fmt.Sprintf("/app/%d/", n)
				fixed := map[string]etcdstore.Keys{}
				var prefixes []string
				for i := range 60 { // as the suite names them
					kind := fmt.Sprintf("kind%d", i)
					fixed[kind] = etcdstore.Keys{Prefix: prefix + kind + "/", Format: format}
					prefixes = append(prefixes, fixed[kind].Prefix)
				}
				open := func() *etcdstore.Store {
					s, err := etcdstore.New(server.root, etcdstore.Config{
						Prefix: fmt.Sprintf("/records/%d/", n), Operations: mostOperations, Bytes: documentBytes, Fixed: fixed,
					})
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				s := open()
				return recordtest.Backend{
					Namespace: s, Client: s, NoIndexes: true, NoOptions: true, MaxDocument: documentBytes, TextKeys: true,
					App:    writer{server.application(t, fmt.Sprintf("app%d", n), prefixes...), prefix, format, s},
					Reopen: func() record.Namespace { return open() },
				}
			}, topics...)
		})
	}
}

// orders is one kind of an application on an etcd of its own.
type orders struct {
	secured
	store *etcdstore.Store
	app   *clientv3.Client
	tok   record.Token
}

func newOrders(t *testing.T) orders {
	t.Helper()
	o := orders{secured: startSecured(t)}
	o.app = o.application(t, "shop", "/app/orders/")
	if _, err := o.app.Put(t.Context(), "/app/orders/a", `{"n":1}`); err != nil {
		t.Fatal(err)
	}
	o.store = o.open(t, o.root)
	info, err := o.store.Describe(t.Context(), record.KindSpec{Name: "orders", Fixed: true}, "orders")
	if err != nil || !info.Exists {
		t.Fatalf("describe: %+v, %v", info, err)
	}
	o.tok = info.Token
	return o
}

func (o orders) open(t *testing.T, conn *etcdconn.Conn) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.New(conn, etcdstore.Config{
		Prefix: "/records/", Fixed: map[string]etcdstore.Keys{"orders": {Prefix: "/app/orders/", Format: etcdstore.JSON}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (o orders) fence(t *testing.T, to string) record.Fence {
	t.Helper()
	class, restore, err := o.store.Prepare(t.Context(), o.tok, "")
	if err != nil || class != record.FenceRole {
		t.Fatalf("prepare: %s, %v", class, err)
	}
	return record.Fence{Class: class, Token: o.tok, To: to, Restore: restore}
}

// TestWhatAFenceOfRolesStops: everything that an application sends behind it, by a login from
// before it, and nothing that a lease does. So a record with a lease is none.
func TestWhatAFenceOfRolesStops(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := newOrders(t)
	lease, err := o.app.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.app.Put(ctx, "/app/orders/leased", `{"n":2}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := o.app.Put(ctx, "/app/orders/text", "secret"); err != nil {
		t.Fatal(err)
	}
	page, err := o.store.Scan(ctx, record.ScanRequest{Token: o.tok})
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, r := range page.Records {
		said[r.Key.String()] = fmt.Sprint(r.Err)
	}
	if len(said) != 3 || said["a"] != "<nil>" || !strings.Contains(said["leased"], "lease") || !strings.Contains(said["text"], "not a JSON object") || strings.Contains(said["text"], "secret") {
		t.Errorf("records: %v", said)
	}
	f := o.fence(t, "orders.n1")
	if err := o.store.Fence(ctx, f); err != nil {
		t.Fatal(err)
	}
	_, inTxn := o.app.Txn(ctx).If(clientv3.Compare(clientv3.Version("/app/orders/a"), ">", 0)).Then(clientv3.OpDelete("/app/orders/a")).Commit()
	_, otherwise := o.app.Txn(ctx).If(clientv3.Compare(clientv3.Version("/app/orders/a"), "=", 0)).Else(clientv3.OpPut("/app/orders/a", "{}")).Commit()
	for what, err := range map[string]error{
		"put":                        second(o.app.Put(ctx, "/app/orders/b", "{}")),
		"delete":                     second(o.app.Delete(ctx, "/app/orders/a")),
		"delete of a range":          second(o.app.Delete(ctx, "/app/orders/", clientv3.WithPrefix())),
		"transaction":                inTxn,
		"the other half of one":      otherwise,
		"the end of its own lease":   second(o.app.Revoke(ctx, lease.ID)),
		"a right that it would like": second(o.app.RoleGrantPermission(ctx, "shop", "/app/orders/", "/app/orders0", clientv3.PermissionType(clientv3.PermReadWrite))),
	} {
		if !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s by the application: %v", what, err)
		}
	}
	if resp, err := o.app.Get(ctx, "/app/orders/a"); err != nil || len(resp.Kvs) != 1 {
		t.Errorf("the application reads %+v, %v", resp, err)
	}
	// As if its time were over: etcd itself revokes it then, with all rights.
	if _, err := o.root.Revoke(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	if resp, err := o.app.Get(ctx, "/app/orders/leased"); err != nil || len(resp.Kvs) != 0 {
		t.Errorf("the key of a lease that is over: %+v, %v", resp, err)
	}
	if err := o.store.Unfence(ctx, f); err != nil {
		t.Fatal(err)
	}
	if _, err := o.app.Put(ctx, "/app/orders/b", "{}"); err != nil {
		t.Errorf("put after the fence: %v", err)
	}
	// Who slept with the fence in its hand takes nothing from the application of now.
	if err := o.store.Fence(ctx, f); err == nil {
		t.Error("a fence that was ended was set")
	}
	if _, err := o.app.Put(ctx, "/app/orders/c", "{}"); err != nil {
		t.Errorf("put after a fence of the past: %v", err)
	}
	// Nor gives who slept with its end something back.
	g := o.fence(t, "orders.n2")
	if err := o.store.Fence(ctx, g); err != nil {
		t.Fatal(err)
	}
	if err := o.store.Unfence(ctx, f); err != nil {
		t.Errorf("the end of an earlier fence: %v", err)
	}
	if _, err := o.app.Put(ctx, "/app/orders/d", "{}"); err == nil {
		t.Error("the end of an earlier fence has ended this one")
	}
	o.upheld(t, g)
}

// upheld: what an administrator does to a fence is found and taken back.
func (o orders) upheld(t *testing.T, f record.Fence) {
	t.Helper()
	ctx := t.Context()
	f.Token.Name = f.To
	for what, do := range map[string]func() error{
		"role shop got": func() error {
			return second(o.root.RoleGrantPermission(ctx, "shop", "/app/orders/", "/app/orders0", clientv3.PermissionType(clientv3.PermReadWrite)))
		},
		"authentication was turned off": func() error { return second(o.root.AuthDisable(ctx)) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		look := f
		look.Look = true
		for range 2 { // it stays until it is recorded
			if found, err := o.store.Uphold(ctx, look, nil); err != nil || len(found) != 1 || !strings.Contains(found[0].What, what) {
				t.Errorf("%s: a look found %+v, %v", what, found, err)
			}
		}
		found, err := o.store.Uphold(ctx, f, nil)
		if err != nil || len(found) != 1 || !strings.Contains(found[0].What, what) {
			t.Errorf("%s: found %+v, %v", what, found, err)
		}
		if found, err := o.store.Uphold(ctx, f, nil); err != nil || len(found) != 0 {
			t.Errorf("again: found %+v, %v", found, err)
		}
		if _, err := o.app.Put(ctx, "/app/orders/e", "{}"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("put behind a fence that was put back: %v", err)
		}
	}
}

// TestForgedRights: a login that writes records forges the note of the rights that a fence took.
// The controllers have the role root, and give no right to keys beyond the application's.
func TestForgedRights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := newOrders(t)
	mallory := o.application(t, "mallory", "/records/")
	for what, keys := range map[string][2]string{
		"other keys":                   {"/other/", "/other0"},
		"one other key":                {"/other/x", ""},
		"these keys and those behind":  {"/app/orders/", "/app0"},
		"these keys and those before":  {"/app/", "/app/orders0"},
		"all keys from the first one":  {"/app/orders/", "\x00"},
		"keys that begin behind these": {"/app/orders0", "/app/orders1"},
	} {
		// The end of a fence raises a right to read only.
		if _, err := o.root.RoleGrantPermission(ctx, "mallory", keys[0], keys[1], clientv3.PermissionType(clientv3.PermRead)); err != nil {
			t.Fatal(err)
		}
		note, err := json.Marshal([]map[string]any{{"role": "mallory", "from": keys[0], "to": keys[1], "type": int(clientv3.PermReadWrite)}})
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{"t/" + o.tok.ID: "orders.n9", "r/" + o.tok.ID: string(note), "x/" + o.tok.ID + "/orders.n9": "ended"} {
			if _, err := mallory.Put(ctx, "/records/"+key, value); err != nil {
				t.Fatal(err)
			}
		}
		open := record.Fence{Class: record.FenceRole, Token: o.tok}
		forged := record.Fence{Class: record.FenceRole, Token: o.tok, To: "orders.n9", Restore: string(note)}
		for by, err := range map[string]error{
			"uphold":                   second(o.store.Uphold(ctx, open, nil)),
			"the end of a fence":       o.store.Unfence(ctx, record.Fence{Class: record.FenceRole, Token: o.tok, To: "orders.n9"}),
			"a fence with such rights": o.store.Fence(ctx, forged),
			"the end of such a fence":  o.store.Unfence(ctx, forged),
		} {
			if err == nil || !strings.Contains(err.Error(), "names keys outside /app/orders/") {
				t.Errorf("%s: %s: %v", what, by, err)
			}
		}
		role, err := o.root.RoleGet(ctx, "mallory")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range role.Perm {
			if string(p.Key) != "/records/" && p.PermType != authpb.Permission_READ {
				t.Errorf("%s: mallory has the right %s to %q", what, p.PermType, p.Key)
			}
		}
	}
	if _, err := mallory.Put(ctx, "/other/x", "{}"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("put by mallory: %v", err)
	}
	// The note of the next fence replaces the forged one.
	f := o.fence(t, "orders.n1")
	if err := errors.Join(o.store.Fence(ctx, f), o.store.Unfence(ctx, record.Fence{Class: f.Class, Token: f.Token, To: f.To})); err != nil {
		t.Fatal(err)
	}
	if _, err := o.app.Put(ctx, "/app/orders/b", "{}"); err != nil {
		t.Errorf("put by the application: %v", err)
	}
}

// TestFenceOfRolesIsRefused: where it would keep nobody out, or more than it should.
func TestFenceOfRolesIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := newOrders(t)
	refused := func(what string, s *etcdstore.Store, want string) {
		t.Helper()
		_, _, err := s.Prepare(ctx, o.tok, "")
		var unsupported *record.UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	o.fence(t, "orders.n1") // is possible
	// A user that has all keys, and not the role root.
	o.application(t, "keys", "/records/")
	if _, err := o.root.RoleGrantPermission(ctx, "keys", "/app/", "/app0", clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	refused("no root", o.open(t, o.login(t, "keys")), "the role root")
	if _, err := o.root.RoleGrantPermission(ctx, "shop", "/app/", "/app0", clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	refused("a role with more", o.store, "role shop may write more")
	for _, key := range [][2]string{{"/app/", "/app0"}, {"/app/orders/", "/app/orders0"}} {
		if _, err := o.root.RoleRevokePermission(ctx, "shop", key[0], key[1]); err != nil {
			t.Fatal(err)
		}
	}
	refused("no role", o.store, "no role may write below /app/orders/")
	if _, err := o.root.AuthDisable(ctx); err != nil {
		t.Fatal(err)
	}
	refused("no authentication", o.store, "authentication is off")
	if _, err := o.store.Provision(ctx, record.KindSpec{Name: "others", Fixed: true}, "others.n1"); err == nil || !strings.Contains(err.Error(), "in etcd is unknown") {
		t.Errorf("a kind without keys: %v", err)
	}
}

// TestDropLeavesNeighbours: what goes with a kind are the keys below its prefix, and those of no
// other kind, application or namespace, however much alike these are.
func TestDropLeavesNeighbours(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, startEtcd(t))
	fixed := map[string]etcdstore.Keys{
		"orders":  {Prefix: "/app/orders/", Format: etcdstore.JSON},
		"orders2": {Prefix: "/app/orders2/", Format: etcdstore.JSON},
	}
	s, err := etcdstore.New(conn, etcdstore.Config{Prefix: "/app/records/", Fixed: fixed})
	if err != nil {
		t.Fatal(err)
	}
	stay := []string{"/app/orders", "/app/orders.", "/app/orders0", "/app/orders2/a", "/app/ordersb/a", "/app/order/a", "/app/Orders/a", "/orders/a", "app/orders/a"}
	for _, key := range append([]string{"/app/orders/", "/app/orders/a", "/app/orders/a/b", "/app/orders/\xff\xff"}, stay...) {
		if _, err := conn.Put(ctx, key, `{"n":1}`); err != nil {
			t.Fatal(err)
		}
	}
	var toks []record.Token
	for _, kind := range []string{"orders", "orders2"} {
		info, err := s.Describe(ctx, record.KindSpec{Name: kind, Fixed: true}, kind)
		if err != nil || !info.Exists {
			t.Fatalf("describe %s: %+v, %v", kind, info, err)
		}
		toks = append(toks, info.Token)
	}
	if err := s.Drop(ctx, toks[0]); err != nil {
		t.Fatal(err)
	}
	resp, err := conn.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, kv := range resp.Kvs {
		if !strings.HasPrefix(string(kv.Key), "/app/records/") {
			left = append(left, string(kv.Key))
		}
	}
	slices.Sort(stay)
	if !slices.Equal(left, stay) {
		t.Errorf("left are %q, want %q", left, stay)
	}
	if at, err := s.Locate(ctx, toks[1].ID); err != nil || at != "orders2" {
		t.Errorf("the other kind is at %q, %v", at, err)
	}
	// Nor can another kind have keys below, or above, those of one.
	for _, prefix := range []string{"/app/orders/eu/", "/app/", "/app/orders/", "/app/orders", "/app/records/x/", "/"} {
		fixed["more"] = etcdstore.Keys{Prefix: prefix, Format: etcdstore.JSON}
		if _, err := etcdstore.New(conn, etcdstore.Config{Prefix: "/app/records/", Fixed: fixed}); err == nil {
			t.Errorf("a kind with keys at %q was taken", prefix)
		}
	}
}

// TestFenceWithoutAuthentication: while authentication is off, the application can write whatever its
// role has. No fence is set then, and a fence that has to be in force was lifted.
func TestFenceWithoutAuthentication(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := newOrders(t)
	f := o.fence(t, "orders.n1")
	off := func() {
		t.Helper()
		if _, err := o.root.AuthDisable(ctx); err != nil {
			t.Fatal(err)
		}
	}
	off()
	if err := o.store.Fence(ctx, f); err == nil || !strings.Contains(err.Error(), "etcdctl auth enable") {
		t.Errorf("fence: %v", err)
	}
	if at, err := o.store.Locate(ctx, f.Token.ID); err != nil || at != "orders" {
		t.Errorf("the kind is at %q, %v", at, err)
	}
	if _, err := o.root.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	if err := o.store.Fence(ctx, f); err != nil {
		t.Fatal(err)
	}
	f.Standing = true
	if err := o.store.Fence(ctx, f); err != nil {
		t.Errorf("it stands: %v", err)
	}
	off()
	for range 2 {
		if err := o.store.Fence(ctx, f); !errors.Is(err, record.ErrLapsed) {
			t.Errorf("it is lifted: %v", err)
		}
	}
	if o.store.Connections() == 0 {
		t.Error("no connections")
	}
}
