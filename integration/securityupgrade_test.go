package integration_test

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/access/accesstest"
)

// TestSecurityUpgrade upgrades a service and takes it back with TLS and identities everywhere:
// MongoDB with a password for one version and a certificate for the other, three etcd members
// that want client certificates, the APIs with client certificates and tokens. All of them are
// replaced in the copy, while it holds at the switch, and between the switches, and so is the
// authority of the APIs' clients. Controllers, the server and the application are users of
// MongoDB of their own, each with the role that 'dbcontroller roles' prints and nothing else.
// No process is started again, no operation fails, and a watch of the server lasts.
func TestSecurityUpgrade(t *testing.T) {
	t.Parallel()
	binary := built.server(t) // a build is not part of what has a deadline
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	f := fortify(ctx, t)
	tr := newTraffic(ctx, f.system, fewDocuments)
	f.locked(f.run("first")).ready(ctx)
	f.locked(f.run("second")).ready(ctx)
	args := []string{"--config", f.config, "--id", "server", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"}
	f.server = f.locked(spawn(t, "server", program(binary, args, append(slices.Clone(f.env), f.as("server")...)))).ready(ctx)
	tr.start(ctx, f.server)
	tr.awaitWrites(ctx, "v1", 10)
	events := f.watch(ctx, tr)
	f.rotate(ctx)
	for _, to := range []string{"v2", "v1"} {
		writes, packages := tr.processes.count(to), tr.packages.count(to)
		tr.keep(true) // the least role has its collection fenced by validators
		f.begin(ctx, to)
		f.rotate(ctx)
		f.awaitSync(ctx)
		f.rotate(ctx)
		f.rotateClients(ctx)
		f.ask(ctx, func(api dbcontrollerv1connect.DeploymentServiceClient) error {
			_, err := api.Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{}))
			return err
		})
		f.await(ctx, "the flip to "+to, flipped(to))
		tr.await(ctx, to, writes+10, tr.processes)
		tr.await(ctx, to, packages+10, tr.packages)
		tr.keep(false)
		seen := events.Load()
		eventually(ctx, t, "the watch goes on in "+to, func() error {
			if n := events.Load(); n < seen+10 {
				return fmt.Errorf("%d events since then", n-seen)
			}
			return nil
		})
		former := f.token
		f.rotate(ctx)
		f.refuses(ctx, former)
	}
	d, err := f.record.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr.finish()
	// The application's role does not let it look at what is not its own.
	for version, db := range f.db {
		f.db[version] = f.admin.Database(db.Name())
	}
	f.inSync(ctx, tr, "v2")
	tr.settle(ctx, d)
	for _, c := range append([]*child{f.server}, f.controllers...) {
		text, err := os.ReadFile(c.log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "not authorized") && !strings.Contains(line, "view fence is not available") {
				t.Errorf("the role of %s lacks something: %s", c.name, line)
			}
		}
	}
}

// fortress is a system whose every door is locked.
type fortress struct {
	*system
	authority *accesstest.Authority
	people    *accesstest.Authority           // of clients of the APIs
	person    atomic.Pointer[tls.Certificate] // of people
	admin     *mongo.Client                   // who administers MongoDB
	etcd      string                          // folder of the client's certificate
	server    *child
	rotated   int
	token     string // of an operator
}

// logins are the users of MongoDB, and the parts whose roles they have.
var logins = []string{"controller", "server", "application"}

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
	f := &fortress{authority: accesstest.NewAuthority(t), people: accesstest.NewAuthority(t), etcd: dir}
	ca := f.authority.File(t, filepath.Join(dir, "ca.crt"))
	cert, key := f.authority.Sign(t, mongod)
	nodes := &localmongo.TLS{CertificateKey: filepath.Join(dir, "mongod.pem"), CA: ca}
	put(t, nodes.CertificateKey, string(cert)+string(key))
	server := start(ctx, t, localmongo.Options{Own: true, Auth: true, TLS: nodes})
	uri := server.URI()

	members := &etcdTLS{CA: ca, ClientCert: filepath.Join(dir, "etcd-client.crt"), ClientKey: filepath.Join(dir, "etcd-client.key")}
	members.Cert, members.Key = f.authority.Files(t, dir, "etcd", ofEtcd)
	f.authority.Files(t, dir, "etcd-client", service)
	etcd := startMembers(ctx, t, members)
	f.system = newSystem(ctx, t, settings{
		uris: map[string]string{"v1": uri, "v2": uri}, etcd: etcd.endpoints(), etcdTLS: members, copy: "{auto: true, workers: 2}",
		further: `access:
  tls: {cert: listener.crt, key: listener.key, clientCA: people.crt}
  tokens: tokens
  roles:
    operator: ["cert:CN=ann,O=ops", "token:robot"]
    application: ["cert:CN=ann,O=ops"]
`,
	})
	f.admin = f.db["v1"].Client()
	f.people.File(t, filepath.Join(f.dir, "people.crt"))
	secure := uri[strings.Index(uri, "@")+1:strings.Index(uri, "/?")] + "/?replicaSet=rs0&tls=true&tlsCAFile=" + ca
	byPassword := func(user, password string) string { return "mongodb://" + user + ":" + password + "@" + secure }
	byCertificate := func(user string) string {
		return "mongodb://" + secure + "&authMechanism=MONGODB-X509&authSource=$external&tlsCertificateKeyFile=" + f.certificate(user)
	}
	f.edit(func(text string) string {
		return strings.NewReplacer("$(MONGO_V1)", byPassword("$(WHO)", "$(file:"+f.password()+")"), "$(MONGO_V2)", byCertificate("$(WHO)")).Replace(text)
	})
	f.env = append(f.env, f.as("controller")...)
	accesstest.Replace(t, f.password(), []byte("first"))
	for _, user := range logins {
		f.makeRole(ctx, user)
		roles := bson.A{bson.D{{Key: "role", Value: "dbcontroller-" + user}, {Key: "db", Value: "admin"}}}
		f.administer(ctx, "admin", bson.D{{Key: "createUser", Value: user}, {Key: "pwd", Value: "first"}, {Key: "roles", Value: roles}})
		f.administer(ctx, "$external", bson.D{{Key: "createUser", Value: "CN=" + user + ",O=clients"}, {Key: "roles", Value: roles}})
	}
	f.rotate(ctx)
	// From here on the documents are the application's.
	for version, uri := range map[string]string{"v1": byPassword("application", "first"), "v2": byCertificate("application")} {
		client, err := mongo.Connect(options.Client().ApplyURI(uri).SetWriteConcern(writeconcern.Majority()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Disconnect(context.Background()) }) //nolint:errcheck // it is done with
		f.db[version] = client.Database(f.db[version].Name())
	}

	pair := f.people.Certificate(t, person)
	f.person.Store(&pair)
	f.http = f.client(f.person.Load)
	return f
}

// watch counts the events of one watch of the server, which lasts until the end of the test.
func (f *fortress) watch(ctx context.Context, tr *traffic) *atomic.Int64 {
	f.t.Helper()
	ctx, stop := context.WithCancel(ctx)
	stream, err := tr.client.v1[0].WatchDesiredLRPs(ctx, connect.NewRequest(&bbsv1.WatchDesiredLRPsRequest{}))
	if err != nil {
		f.t.Fatal(err)
	}
	var events atomic.Int64
	var ended sync.WaitGroup
	ended.Go(func() {
		for stream.Receive() {
			events.Add(1)
		}
		if ctx.Err() == nil {
			f.t.Errorf("the watch ends after %d events: %v", events.Load(), stream.Err())
		}
	})
	f.t.Cleanup(func() {
		stop()
		ended.Wait()
	})
	return &events
}

// certificate is the file of a user's certificate and key for MongoDB.
func (f *fortress) certificate(user string) string { return filepath.Join(f.dir, user+".pem") }

// password is the file that controllers and servers have their passwords of.
func (f *fortress) password() string { return filepath.Join(f.dir, "password") }

// as is the environment of a process that is a user of MongoDB.
func (f *fortress) as(user string) []string { return []string{"WHO=" + user} }

// makeRole makes the role of a part, as 'dbcontroller roles' prints it.
func (f *fortress) makeRole(ctx context.Context, part string) {
	f.t.Helper()
	r := execute(ctx, f.t, f.env, "roles", "--config", f.config, "--for", part, "--rehearse=false")
	_, text, found := strings.Cut(r.stdout, "runCommand(")
	var role bson.D
	if err := bson.UnmarshalExtJSON([]byte(strings.TrimSuffix(strings.TrimSpace(text), ")")), false, &role); err != nil || !found {
		f.t.Fatalf("roles --for %s: %v, %+v", part, err, r)
	}
	f.administer(ctx, "admin", role)
}

// client is one of the APIs over TLS, with the certificate of that moment.
func (f *fortress) client(present func() *tls.Certificate) *http.Client {
	c := &http.Client{Transport: overTLS{&http.Transport{MaxIdleConnsPerHost: 32, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: f.authority.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return present(), nil },
	}}}}
	f.t.Cleanup(c.CloseIdleConnections)
	return c
}

// rotateClients replaces the authority of the APIs' clients, in the listeners that run: both
// are trusted until clients have certificates of the next one.
func (f *fortress) rotateClients(ctx context.Context) {
	f.t.Helper()
	former, next := f.person.Load(), accesstest.NewAuthority(f.t)
	pair := next.Certificate(f.t, person)
	file := filepath.Join(f.dir, "people.crt")
	accesstest.Replace(f.t, file, accesstest.Bundle(f.people, next))
	f.awaitHandshakes(ctx, &pair, true)
	f.person.Store(&pair)
	accesstest.Replace(f.t, file, accesstest.Bundle(next))
	f.awaitHandshakes(ctx, former, false)
	f.people = next
}

// awaitHandshakes waits until every listener takes, or refuses, new connections with a certificate.
func (f *fortress) awaitHandshakes(ctx context.Context, pair *tls.Certificate, taken bool) {
	f.t.Helper()
	for _, c := range append([]*child{f.server}, f.controllers...) {
		api, operator := c.addresses()
		for _, at := range []string{api, operator} {
			eventually(ctx, f.t, "a client of another authority", func() error {
				h := f.client(func() *tls.Certificate { return pair })
				defer h.CloseIdleConnections()
				if _, _, err := getBy(ctx, h, "http://"+at+"/healthz"); (err == nil) != taken {
					return fmt.Errorf("%s at %s, want that it is taken: %v; it is %v", c.name, at, taken, err)
				}
				return nil
			})
		}
	}
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
	for _, user := range logins {
		cert, key := f.authority.Sign(f.t, accesstest.Leaf{Subject: pkix.Name{CommonName: user, Organization: []string{"clients"}}})
		accesstest.Replace(f.t, f.certificate(user), append(cert, key...))
	}
	password := fmt.Sprint("password-", f.rotated)
	accesstest.Replace(f.t, f.password(), []byte(password))
	for _, user := range []string{"controller", "server"} {
		f.administer(ctx, "admin", bson.D{{Key: "updateUser", Value: user}, {Key: "pwd", Value: password}})
	}
	f.token = fmt.Sprintf("robot-0123456789abcdef-%d", f.rotated)
	accesstest.Replace(f.t, filepath.Join(f.dir, "tokens"), []byte("robot "+f.token+"\n"))
}

// administer runs a command as who administers MongoDB.
func (f *fortress) administer(ctx context.Context, db string, cmd bson.D) {
	f.t.Helper()
	if err := f.admin.Database(db).RunCommand(ctx, cmd).Err(); err != nil {
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

// refuses waits until nobody takes a token any longer.
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
