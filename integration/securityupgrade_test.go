package integration_test

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/access/accesstest"
	dbv1 "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller/integration/localmongo"
)

// TestSecurityUpgrade upgrades a service and takes it back with TLS and identities everywhere:
// MongoDB with a password for one version and a certificate for the other, three etcd members
// that want client certificates, the APIs with client certificates and tokens. All of them are
// replaced in the copy, while it holds at the switch, and between the switches. No
// process is started again, and no operation fails.
func TestSecurityUpgrade(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	f := fortify(ctx, t)
	tr := newTraffic(ctx, f.system, documents)
	f.locked(f.run("first")).ready(ctx)
	f.locked(f.run("second")).ready(ctx)
	args := []string{"--config", f.config, "--id", "server", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"}
	tr.start(ctx, f.locked(spawn(t, "server", command(t, built.server(t), "", args, f.env))).ready(ctx))
	tr.awaitWrites(ctx, "v1", 10)
	f.rotate(ctx)
	for _, to := range []string{"v2", "v1"} {
		writes, packages := tr.processes.count(to), tr.packages.count(to)
		f.begin(ctx, to)
		f.rotate(ctx)
		f.awaitLevel(ctx)
		f.rotate(ctx)
		f.ask(ctx, func(api dbcontrollerv1connect.DeploymentServiceClient) error {
			_, err := api.Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{}))
			return err
		})
		f.await(ctx, "the flip to "+to, flipped(to))
		tr.await(ctx, to, writes+10, tr.processes)
		tr.await(ctx, to, packages+10, tr.packages)
		former := f.token
		f.rotate(ctx)
		f.refuses(ctx, former)
	}
	d, err := f.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr.finish()
	f.level(ctx, tr, "v2")
	tr.settle(ctx, d)
}

// fortress is a system whose every door is locked.
type fortress struct {
	*system
	authority *accesstest.Authority
	uri       string // of who administers MongoDB
	etcd      string // folder of the client's certificate
	rotated   int
	token     string // of an operator
}

// Who logs in where.
var (
	listener = accesstest.Leaf{Subject: pkix.Name{CommonName: "controller", Organization: []string{"listeners"}}}
	ofEtcd   = accesstest.Leaf{Subject: pkix.Name{CommonName: "etcd", Organization: []string{"listeners"}}}
	mongod   = accesstest.Leaf{Subject: pkix.Name{CommonName: "mongod", Organization: []string{"listeners"}}}
	service  = accesstest.Leaf{Subject: pkix.Name{CommonName: "service", Organization: []string{"clients"}}}
	person   = accesstest.Leaf{Subject: pkix.Name{CommonName: "ann", Organization: []string{"ops"}}}
)

func fortify(ctx context.Context, t *testing.T) *fortress {
	t.Helper()
	dir := t.TempDir()
	f := &fortress{authority: accesstest.NewAuthority(t), etcd: dir}
	ca := f.authority.File(t, filepath.Join(dir, "ca.crt"))
	cert, key := f.authority.Sign(t, mongod)
	nodes := &localmongo.TLS{CertificateKey: filepath.Join(dir, "mongod.pem"), CA: ca}
	put(t, nodes.CertificateKey, string(cert)+string(key))
	server := start(ctx, t, localmongo.Options{Own: true, Auth: true, TLS: nodes})
	f.uri = server.URI()

	members := &etcdTLS{CA: ca, ClientCert: filepath.Join(dir, "etcd-client.crt"), ClientKey: filepath.Join(dir, "etcd-client.key")}
	members.Cert, members.Key = f.authority.Files(t, dir, "etcd", ofEtcd)
	f.authority.Files(t, dir, "etcd-client", service)
	etcd := startMembers(ctx, t, members)
	f.system = newSystem(ctx, t, settings{
		uris: map[string]string{"v1": f.uri, "v2": f.uri}, etcd: etcd.endpoints(), etcdTLS: members, copy: "{auto: true, workers: 2}",
		further: fmt.Sprintf(`access:
  tls: {cert: listener.crt, key: listener.key, clientCA: %s}
  tokens: tokens
  roles:
    operator: ["cert:CN=ann,O=ops", "token:robot"]
    application: ["cert:CN=ann,O=ops"]
`, ca),
	})
	hosts := f.uri[strings.Index(f.uri, "@")+1 : strings.Index(f.uri, "/?")]
	secure := hosts + "/?replicaSet=rs0&tls=true&tlsCAFile=" + ca
	f.edit(func(text string) string {
		return strings.NewReplacer(
			"$(MONGO_V1)", "mongodb://service:$(file:"+filepath.Join(f.dir, "password")+")@"+secure,
			"$(MONGO_V2)", "mongodb://"+secure+"&authMechanism=MONGODB-X509&authSource=$external&tlsCertificateKeyFile="+filepath.Join(f.dir, "service.pem"),
		).Replace(text)
	})
	f.admin(ctx, "admin", bson.D{{Key: "createUser", Value: "service"}, {Key: "pwd", Value: "first"}, {Key: "roles", Value: bson.A{"root"}}})
	f.admin(ctx, "$external", bson.D{{Key: "createUser", Value: "CN=service,O=clients"}, {Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "root"}, {Key: "db", Value: "admin"}}}}})
	f.rotate(ctx)

	pair := f.authority.Certificate(t, person)
	f.http = &http.Client{Transport: overTLS{&http.Transport{MaxIdleConnsPerHost: 32, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: f.authority.Pool(), Certificates: []tls.Certificate{pair},
	}}}}
	t.Cleanup(f.http.CloseIdleConnections)
	return f
}

// overTLS sends over TLS what helpers of plain systems ask for.
type overTLS struct{ *http.Transport }

func (o overTLS) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme = "https"
	return o.Transport.RoundTrip(req)
}

// rotate replaces what processes prove themselves with, as the guide says: files first, and
// MongoDB's password at once after it.
func (f *fortress) rotate(ctx context.Context) {
	f.t.Helper()
	f.rotated++
	f.authority.Files(f.t, f.dir, "listener", listener)
	f.authority.Files(f.t, f.etcd, "etcd-client", service)
	cert, key := f.authority.Sign(f.t, service)
	accesstest.Replace(f.t, filepath.Join(f.dir, "service.pem"), append(cert, key...))
	password := fmt.Sprint("password-", f.rotated)
	accesstest.Replace(f.t, filepath.Join(f.dir, "password"), []byte(password))
	f.admin(ctx, "admin", bson.D{{Key: "updateUser", Value: "service"}, {Key: "pwd", Value: password}})
	f.token = fmt.Sprintf("robot-0123456789abcdef-%d", f.rotated)
	accesstest.Replace(f.t, filepath.Join(f.dir, "tokens"), []byte("robot "+f.token+"\n"))
}

func (f *fortress) admin(ctx context.Context, db string, cmd bson.D) {
	f.t.Helper()
	if err := f.db["v1"].Client().Database(db).RunCommand(ctx, cmd).Err(); err != nil {
		f.t.Fatal(err)
	}
}

// locked is a process that is asked over TLS whether it is ready.
func (f *fortress) locked(c *child) *child {
	c.http = f.http
	return c
}

// begin begins an upgrade that holds at the switch.
func (f *fortress) begin(ctx context.Context, to string) {
	f.t.Helper()
	f.ask(ctx, func(api dbcontrollerv1connect.DeploymentServiceClient) error {
		_, err := api.BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{TargetVersion: to, TotalShardsCount: ring, Policy: &dbv1.SwitchPolicy{Hold: true}}))
		return err
	})
}

// ask makes a call with the present token and no certificate, until it is answered.
func (f *fortress) ask(ctx context.Context, call func(dbcontrollerv1connect.DeploymentServiceClient) error) {
	f.t.Helper()
	eventually(ctx, f.t, "the token is taken", func() (err error) {
		for _, api := range f.withToken(f.token) {
			if err = call(api); err == nil {
				return nil
			}
		}
		return err
	})
}

// refuses waits until nobody takes a token any more.
func (f *fortress) refuses(ctx context.Context, token string) {
	f.t.Helper()
	eventually(ctx, f.t, "the former token is refused", func() error {
		for _, api := range f.withToken(token) {
			_, err := api.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{}))
			if connect.CodeOf(err) != connect.CodeUnauthenticated {
				return fmt.Errorf("it is answered: %v", err)
			}
		}
		return nil
	})
}

// withToken are the APIs of the controllers for who has a token and no certificate.
func (f *fortress) withToken(token string) (apis []dbcontrollerv1connect.DeploymentServiceClient) {
	f.t.Helper()
	plain := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.authority.Pool()}, ForceAttemptHTTP2: true}
	f.t.Cleanup(plain.CloseIdleConnections)
	h := &http.Client{Transport: bearer{overTLS{plain}, token}}
	for _, c := range f.controllers {
		api, _ := c.addresses()
		apis = append(apis, dbcontrollerv1connect.NewDeploymentServiceClient(h, "http://"+api))
	}
	return apis
}

type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(req)
}
