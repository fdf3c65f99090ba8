package overetcd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"

	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/etcdconn"
	"dbcontroller.dev/internal/coord/etcdcoord"
)

const scope = "/ours/"

// secured is an etcd with a root user, and "mover", who may use what is below scope.
type secured struct {
	endpoint string
	root     *clientv3.Client
}

func secure(t *testing.T) *secured {
	t.Helper()
	endpoints := []string{"http://" + startPlain(t)}
	ctx := t.Context()
	first, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close() //nolint:errcheck // it is done with
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(first.UserAdd(ctx, "root", "all"))
	must(first.UserGrantRole(ctx, "root", "root"))
	must(first.UserAdd(ctx, "mover", "first"))
	must(first.RoleAdd(ctx, "mover"))
	must(first.RoleGrantPermission(ctx, "mover", scope, clientv3.GetPrefixRangeEnd(scope), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(first.UserGrantRole(ctx, "mover", "mover"))
	must(first.UserAdd(ctx, "nobody", "first"))
	must(first.AuthEnable(ctx))
	root, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Username: "root", Password: "all"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() }) //nolint:errcheck // it is done with
	return &secured{endpoint: endpoints[0], root: root}
}

func (s *secured) config(user, password string) etcdcoord.Config {
	return etcdcoord.Config{
		Endpoints: []string{s.endpoint}, Scope: scope, DialTimeout: 3 * time.Second,
		Username: user, Password: func() (string, error) { return password, nil },
	}
}

// TestOneLineForEachRefusal: what is wrong with a login is returned by Open, in one line.
func TestOneLineForEachRefusal(t *testing.T) {
	s := secure(t)
	for name, want := range map[string]struct {
		cfg  etcdcoord.Config
		err  error
		text string
	}{
		"wrong password": {s.config("mover", "second"), etcdconn.ErrLogin, `of user "mover"`},
		"no login":       {etcdcoord.Config{Endpoints: []string{s.endpoint}, Scope: scope}, etcdconn.ErrLogin, "wants a user"},
		"no permission":  {s.config("nobody", "first"), etcdconn.ErrDenied, "etcdctl role grant-permission ROLE --prefix=true readwrite /ours/"},
	} {
		_, err := etcdcoord.Open(t.Context(), want.cfg)
		if !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) || !strings.Contains(err.Error(), s.endpoint) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v with %q and the endpoint", name, err, want.err, want.text)
		}
	}
}

// TestPrefixIsEnough: a user with permission for one prefix can do all that the contract
// has below it, leases and watches included, and nothing outside it.
func TestPrefixIsEnough(t *testing.T) {
	s := secure(t)
	c := open(t, s.config("mover", "first"))
	ctx := t.Context()
	l, err := c.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, _, w, err := c.Follow(ctx, scope)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := c.Commit(ctx, []coord.Condition{{Key: scope + "k"}}, []coord.Op{{Key: scope + "k", Lease: l.ID()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, scope+"k"); err != nil {
		t.Error(err)
	}
	if _, err := w.Next(ctx); err != nil {
		t.Error(err)
	}
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(ctx, scope+"k"); !errors.Is(err, coord.ErrNotFound) {
		t.Errorf("after its lease was revoked: %v", err)
	}
	if _, err := c.Get(ctx, "/theirs"); !errors.Is(err, etcdconn.ErrDenied) {
		t.Errorf("Get outside the prefix: %v", err)
	}
	if _, _, err := c.List(ctx, "/"); !errors.Is(err, etcdconn.ErrDenied) {
		t.Errorf("List outside the prefix: %v", err)
	}
	if _, err := c.Commit(ctx, nil, []coord.Op{{Key: "/theirs"}}); !errors.Is(err, etcdconn.ErrDenied) || errors.Is(err, coord.ErrUnknown) {
		t.Errorf("Commit outside the prefix: %v", err)
	}
	if _, _, _, err := c.Follow(ctx, "/theirs"); !errors.Is(err, etcdconn.ErrDenied) {
		t.Errorf("Follow outside the prefix: %v", err)
	}
}

// TestPasswordChanges: a password that changes in etcd and then in our file keeps nobody
// out: calls wait for the new one, leases live on, and watches that are made later are
// made, though those that were made before still run on a stream with an old token.
func TestPasswordChanges(t *testing.T) {
	s := secure(t)
	ctx := t.Context()
	var password atomic.Value
	password.Store("first")
	cfg := s.config("mover", "")
	asked := make(chan string, 100)
	cfg.Password = func() (string, error) {
		p := password.Load().(string)
		select {
		case asked <- p:
		default:
		}
		return p, nil
	}
	c := open(t, cfg)
	l, err := c.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, _, old, err := c.Follow(ctx, scope)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := c.Commit(ctx, nil, []coord.Op{{Key: scope + "leased", Lease: l.ID()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Next(ctx); err != nil {
		t.Fatal(err)
	}

	if _, err := s.root.UserChangePassword(ctx, "mover", "second"); err != nil {
		t.Fatal(err)
	}
	for len(asked) > 0 {
		<-asked
	}
	committed := make(chan error, 1)
	go func() {
		_, err := c.Commit(ctx, nil, []coord.Op{{Key: scope + "k"}})
		committed <- err
	}()
	for range 2 { // the first one was refused, then
		select {
		case <-asked:
		case err := <-committed:
			t.Fatalf("the commit did not wait: %v", err)
		}
	}
	password.Store("second")
	if err := <-committed; err != nil {
		t.Fatalf("commit after the change: %v", err)
	}

	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, _, young, err := c.Follow(limit, scope)
	if err != nil {
		t.Fatal(err)
	}
	defer young.Close()
	// Before Next opens the refused watch again: it must not miss this change.
	if _, err := c.Commit(limit, nil, []coord.Op{{Key: scope + "k"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := young.Next(limit); err != nil {
		t.Fatalf("a watch that is made after the change: %v", err)
	}
	if _, err := old.Next(limit); err != nil {
		t.Errorf("the watch that was made before the change: %v", err)
	}
	select {
	case <-l.Done():
		t.Error("the lease was lost")
	default:
	}
	if _, err := c.Get(ctx, scope+"leased"); err != nil {
		t.Error(err)
	}

	// Who waits for a password that never comes learns why.
	if _, err := s.root.UserChangePassword(ctx, "mover", "third"); err != nil {
		t.Fatal(err)
	}
	for long := time.Second; ; long *= 4 { // in which etcd has to refuse it once
		brief, cancel := context.WithTimeout(ctx, long)
		_, err := c.Get(brief, scope+"k")
		cancel()
		if err != nil && strings.Contains(err.Error(), "authentication failed") {
			break
		}
		if err == nil || long > time.Minute {
			t.Fatalf("a Get without the third password: %v", err)
		}
	}
}

// TestUserMadeAnew: the user is deleted and made again with the same password, as scripts do it
// that set users up, and its role loses the permission and gets it back. Calls, watches and leases
// of a connection that lives go on by themselves.
func TestUserMadeAnew(t *testing.T) {
	s := secure(t)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := open(t, s.config("mover", "first"))
	l, err := c.Grant(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, _, old, err := c.Follow(ctx, scope)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	must(c.Commit(ctx, nil, []coord.Op{{Key: scope + "leased", Lease: l.ID()}}))
	must(old.Next(ctx))
	goesOn := func(what string) {
		t.Helper()
		limit, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		must(c.Get(limit, scope+"leased"))
		_, _, young, err := c.Follow(limit, scope)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer young.Close()
		must(c.Commit(limit, nil, []coord.Op{{Key: scope + "k", Value: []byte(what)}}))
		must(young.Next(limit))
		must(old.Next(limit))
		select {
		case <-l.Done():
			t.Errorf("%s: the lease is lost", what)
		default:
		}
	}
	must(s.root.UserDelete(ctx, "mover"))
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := c.Get(brief, scope+"leased"); err == nil {
		t.Error("a deleted user reads")
	}
	must(s.root.UserAdd(ctx, "mover", "first"))
	must(s.root.UserGrantRole(ctx, "mover", "mover"))
	goesOn("made anew")

	// In quick succession, so that no call of ours comes in between.
	must(s.root.UserDelete(ctx, "mover"))
	must(s.root.UserAdd(ctx, "mover", "first"))
	must(s.root.UserGrantRole(ctx, "mover", "mover"))
	goesOn("made anew at once")

	must(s.root.RoleRevokePermission(ctx, "mover", scope, clientv3.GetPrefixRangeEnd(scope)))
	if _, err := c.Get(ctx, scope+"leased"); !errors.Is(err, etcdconn.ErrDenied) {
		t.Errorf("without the permission: %v", err)
	}
	must(s.root.RoleGrantPermission(ctx, "mover", scope, clientv3.GetPrefixRangeEnd(scope), clientv3.PermissionType(clientv3.PermReadWrite)))
	goesOn("permitted again")
}

// client is the TLS of a client with a certificate of its own authority, or none if pair is
// nil, who trusts that authority.
func client(trusts *accesstest.Authority, pair *tls.Certificate) func() (*tls.Config, error) {
	cfg := &tls.Config{RootCAs: trusts.Pool(), MinVersion: tls.VersionTLS12}
	if pair != nil {
		cfg.Certificates = []tls.Certificate{*pair}
	}
	return func() (*tls.Config, error) { return cfg, nil }
}

// startTLS starts an etcd that wants certificates of the authority.
func startTLS(t *testing.T, a *accesstest.Authority) (host string) {
	t.Helper()
	dir := t.TempDir()
	cert, key := a.Files(t, dir, "server", accesstest.Leaf{Subject: pkix.Name{CommonName: "server"}})
	return startOwn(t, "https", transport.TLSInfo{
		CertFile: cert, KeyFile: key, TrustedCAFile: a.File(t, filepath.Join(dir, "authority.crt")), ClientCertAuth: true,
	})
}

func startPlain(t *testing.T) (host string) { return startOwn(t, "http", transport.TLSInfo{}) }

func startOwn(t *testing.T, scheme string, info transport.TLSInfo) (host string) {
	t.Helper()
	ec := embed.NewConfig()
	ec.Name, ec.Dir = "secured", t.TempDir()
	at := url.URL{Scheme: scheme, Host: "127.0.0.1:0"}
	ec.ListenClientUrls, ec.AdvertiseClientUrls, ec.ListenPeerUrls = []url.URL{at}, []url.URL{at}, nil
	ec.InitialCluster = ec.InitialClusterFromName(ec.Name)
	ec.TickMs, ec.ElectionMs = 50, 500
	ec.BcryptCost = uint(bcrypt.MinCost) // a login takes a second otherwise, with the race detector
	ec.ClientTLSInfo = info
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(ec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		etcd.Close()
		<-etcd.Server.StopNotify()
	})
	<-etcd.Server.ReadyNotify()
	return etcd.Clients[0].Addr().String()
}

// TestTLS: a private authority and a client certificate are used, the newest at each new
// connection; what does not fit is one line.
func TestTLS(t *testing.T) {
	a := accesstest.NewAuthority(t)
	host := startTLS(t, a)
	pair := a.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "client"}})
	var used atomic.Int64
	fresh := client(a, &pair)
	c := open(t, etcdcoord.Config{Endpoints: []string{"https://" + host}, TLS: func() (*tls.Config, error) {
		used.Add(1)
		return fresh()
	}})
	if _, err := c.Commit(t.Context(), nil, []coord.Op{{Key: "k"}}); err != nil {
		t.Error(err)
	}
	if used.Load() == 0 {
		t.Error("the certificates were not asked for")
	}
	for name, cfg := range map[string]etcdcoord.Config{
		"another authority":     {Endpoints: []string{"https://" + host}, TLS: client(accesstest.NewAuthority(t), nil)},
		"no client certificate": {Endpoints: []string{"https://" + host}, TLS: client(a, nil)},
		"no TLS":                {Endpoints: []string{"http://" + host}},
		"system roots":          {Endpoints: []string{"https://" + host}},
	} {
		cfg.DialTimeout = 2 * time.Second
		_, err := etcdcoord.Open(t.Context(), cfg)
		if !errors.Is(err, etcdconn.ErrTLS) || !strings.Contains(err.Error(), host) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with ErrTLS and the address", name, err)
		}
		t.Log(err)
	}
}
