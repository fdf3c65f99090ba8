package databases_test

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/program/databases"
)

// TestCertificateIsRotated replaces the client certificate of two databases that share connections. The
// connection string stays the same. Both databases must log in with the new certificate.
func TestCertificateIsRotated(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir, authority := t.TempDir(), accesstest.NewAuthority(t)
	pair := func(file, name, organization string) string {
		cert, key := authority.Sign(t, accesstest.Leaf{Subject: pkix.Name{CommonName: name, Organization: []string{organization}}})
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, append(cert, key...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := authority.File(t, filepath.Join(dir, "ca.crt"))
	server := own(ctx, t, localmongo.Options{Auth: true, TLS: &localmongo.TLS{CertificateKey: pair("mongod.pem", "mongod", "listeners"), CA: ca}})
	root, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Disconnect(ctx) //nolint:errcheck // of a test
	for _, name := range []string{"before", "after"} {
		err := root.Database("$external").RunCommand(ctx, bson.D{
			{Key: "createUser", Value: "CN=" + name + ",O=clients"}, {Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "root"}, {Key: "db", Value: "admin"}}}},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, rest, _ := strings.Cut(server.URI(), "@")
	host, _, _ := strings.Cut(rest, "/")
	cfg := configured("mongodb://" + host + "/?replicaSet=rs0&authSource=$external&tls=true&tlsCAFile=" + ca +
		"&authMechanism=MONGODB-X509&tlsCertificateKeyFile=" + pair("client.pem", "before", "clients"))
	clients := databases.ClientsOf(cfg, cfg)
	var both []*databases.Database
	for range 2 {
		set := databases.New(cfg, databases.Config{App: "test", Clients: clients, Log: zaptest.NewLogger(t)})
		t.Cleanup(func() { set.Close(context.Background()) })
		both = append(both, set.Database("v1"))
	}
	positions := func() error {
		var errs []error
		for _, db := range both {
			_, err := db.Position(ctx)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	if err := positions(); err != nil {
		t.Fatal(err)
	}
	pair("client.pem", "after", "clients")
	// The server ends the logins of this user at once, so only the new certificate can help.
	if err := root.Database("$external").RunCommand(ctx, bson.D{{Key: "dropUser", Value: "CN=before,O=clients"}}).Err(); err != nil {
		t.Fatal(err)
	}
	for err := positions(); err != nil; err = positions() {
		select {
		case <-ctx.Done():
			t.Fatalf("the new certificate is not used: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
