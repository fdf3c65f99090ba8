package integration_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/integration/subprocess"
	"dbcontroller.dev/internal/access/accesstest"
)

// TestProxyTLS: the proxy has TLS with certificates to both sides, and users. An unmodified driver needs a certificate
// and a password. It is switched to another version and back. The proxy's own login is its certificate, which the
// servers accept only over TLS.
func TestProxyTLS(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	servers, people := accesstest.NewAuthority(t), accesstest.NewAuthority(t)
	ca := servers.File(t, filepath.Join(dir, "servers.crt"))
	pair := func(name string, leaf accesstest.Leaf) string {
		cert, key := servers.Sign(t, leaf)
		file := filepath.Join(dir, name)
		put(t, file, string(cert)+string(key))
		return file
	}
	node := start(ctx, t, localmongo.Options{Own: true, Auth: true, TLS: &localmongo.TLS{CertificateKey: pair("mongod.pem", mongod), CA: ca}})
	s := newSystem(ctx, t, settings{
		service: "bank", lens: "lens: 1\noperations: []\n", kinds: "[{from: accounts, to: accounts, lens: packages.yaml}]",
		uris: map[string]string{"v1": node.URI(), "v2": node.URI()},
	})
	if err := s.db["v1"].CreateCollection(ctx, "accounts"); err != nil {
		t.Fatal(err)
	}
	roles := bson.A{}
	for _, v := range []string{"v1", "v2"} {
		roles = append(roles, bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: s.db[v].Name()}})
	}
	s.admin(ctx, "v1", bson.D{{Key: "createUser", Value: "shop"}, {Key: "pwd", Value: secret}, {Key: "roles", Value: roles}})
	own := s.db["v1"].Client().Database("$external").RunCommand(ctx, bson.D{{Key: "createUser", Value: "CN=service,O=clients"}, {Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "readAnyDatabase"}, {Key: "db", Value: "admin"}}}}})
	if err := own.Err(); err != nil {
		t.Fatal(err)
	}
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	ports, err := subprocess.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := servers.Files(t, dir, "proxy", listener)
	address := fmt.Sprint("127.0.0.1:", ports[0])
	secure := "mongodb://" + node.Nodes()[0].Addr() + "/?replicaSet=rs0&tls=true&tlsCAFile=" + ca + "&tlsCertificateKeyFile=" + pair("upstream.pem", service) +
		"&authMechanism=MONGODB-X509&authSource=$external"
	s.uris = map[string]string{"v1": secure, "v2": secure} // for the proxy; the controllers have theirs
	user := s.exported(ctx, "shop")
	s.proxyProcessWith(ctx, address, []string{api}, map[string]any{
		"tls":   map[string]string{"cert": cert, "key": key, "clientCA": people.File(t, filepath.Join(dir, "people.crt"))},
		"users": []any{map[string]any{"name": user.Name, "verifier": user.Verifier, "login": map[string]string{"password": "$(file:" + s.write("password", secret) + ")"}}},
	}, "accounts")

	open := func(password string, trust *tls.Config) *mongo.Collection {
		t.Helper()
		opts := options.Client().ApplyURI("mongodb://shop:" + password + "@" + address + "/?w=majority&serverSelectionTimeoutMS=2000")
		client, err := mongo.Connect(opts.SetTLSConfig(trust))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(ctx)) })
		return client.Database(s.db["v1"].Name()).Collection("accounts")
	}
	shown := func(by *accesstest.Authority) *tls.Config {
		return &tls.Config{RootCAs: servers.Pool(), Certificates: []tls.Certificate{by.Certificate(t, person)}}
	}
	for name, c := range map[string]*mongo.Collection{
		"no TLS":                             open(secret, nil),
		"no certificate":                     open(secret, &tls.Config{RootCAs: servers.Pool()}),
		"a certificate of another authority": open(secret, shown(servers)),
		"a wrong password":                   open("wrong", shown(people)),
	} {
		if err := c.FindOne(ctx, bson.D{}).Err(); err == nil || err == mongo.ErrNoDocuments { //nolint:errorlint // the driver returns it as it is
			t.Errorf("%s: served, %v", name, err)
		}
	}

	accounts := open(secret, shown(people))
	for round, v := range []string{"v1", "v2", "v1"} {
		if round > 0 {
			s.beginTo(ctx, v)
			s.await(ctx, "the flip to "+v, flipped(v))
		}
		session, err := accounts.Database().Client().StartSession()
		if err != nil {
			t.Fatal(err)
		}
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			return accounts.InsertOne(ctx, bson.D{{Key: "_id", Value: round}, {Key: "text", Value: make([]byte, 100<<10)}})
		})
		session.EndSession(ctx)
		if err != nil {
			t.Errorf("%s: a transaction: %v", v, err)
		}
		found, err := accounts.Find(ctx, bson.D{}, options.Find().SetBatchSize(1))
		var docs []bson.Raw
		if err == nil {
			err = found.All(ctx, &docs)
		}
		if err != nil || len(docs) != round+1 {
			t.Errorf("%s: %d documents, %v", v, len(docs), err)
		}
	}
}
