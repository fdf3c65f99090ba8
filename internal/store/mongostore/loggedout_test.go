package mongostore_test

import (
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestUserMadeAnew: an administrator drops the user and creates it again, with the same password or
// for the same certificate.
// The pooled connections are logged out for good, and new ones take their place without a
// restart: for reads, for writes, and for each of many connections.
func TestUserMadeAnew(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), accesstest.NewAuthority(t)
	pair := func(name, organization string) string {
		cert, key := authority.Sign(t, accesstest.Leaf{Subject: pkix.Name{CommonName: name, Organization: []string{organization}}})
		path := filepath.Join(dir, name+".pem")
		if err := os.WriteFile(path, append(cert, key...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := authority.File(t, filepath.Join(dir, "ca.crt"))
	srv := storetest.Start(t, localmongo.Options{Auth: true, Own: true, TLS: &localmongo.TLS{CertificateKey: pair("mongod", "listeners"), CA: ca}})
	_, rest, _ := strings.Cut(srv.URI(), "@")
	host, _, _ := strings.Cut(rest, "/")
	t.Run("password", func(t *testing.T) {
		userMadeAnew(t, srv, "admin", "service", "mongodb://service:p@"+rest)
	})
	t.Run("certificate", func(t *testing.T) {
		userMadeAnew(t, srv, "$external", "CN=service,O=clients",
			"mongodb://"+host+"/?replicaSet=rs0&authSource=$external&tls=true&tlsCAFile="+ca+"&authMechanism=MONGODB-X509&tlsCertificateKeyFile="+pair("service", "clients"))
	})
}

// userMadeAnew has a user of a database of users dropped and created again.
func userMadeAnew(t *testing.T, srv *localmongo.Server, users, user, uri string) {
	t.Helper()
	root := storetest.OpenNamespace(t, conn.Config{URI: srv.URI(), Database: "shop"}, nil)
	tok, err := root.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	administer := func(cmd bson.D) {
		t.Helper()
		if err := root.Mongo.Database(users).RunCommand(t.Context(), cmd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	roleList := bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: "shop"}}}
	create := bson.D{{Key: "createUser", Value: user}, {Key: "roles", Value: roleList}}
	if users == "admin" {
		create = append(create, bson.E{Key: "pwd", Value: "p"})
	}
	administer(create)
	ns := storetest.OpenNamespace(t, conn.Config{URI: uri, Database: "shop"}, nil)
	client := ns.Client()
	toks := record.Tokens{"things": tok}
	write := func(n int) error {
		return client.Write(t.Context(), toks, []record.Mutation{{Kind: "things", Key: record.StringKey("a"), Doc: storetest.Doc("a", n)}})
	}
	read := func() error {
		_, err := client.Get(t.Context(), tok, record.StringKey("a"))
		return err
	}
	// Several connections, all of which the server logs out.
	many := make(chan error)
	for range 8 {
		go func() { many <- read() }()
	}
	if err := write(1); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		<-many // whether the record is there yet does not matter
	}
	administer(bson.D{{Key: "dropUser", Value: user}})
	if err := read(); err == nil {
		t.Fatal("a dropped user can still read: the test shows nothing")
	}
	administer(create)
	for what, do := range map[string]func() error{"read": read, "write": func() error { return write(2) }} {
		end := time.Now().Add(2 * time.Minute)
		for err := do(); err != nil; err = do() {
			if time.Now().After(end) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}

	// Roles that are taken away and given back need no new connection.
	roles := func(command string) {
		t.Helper()
		administer(bson.D{{Key: command, Value: user}, {Key: "roles", Value: roleList}})
	}
	roles("revokeRolesFromUser")
	if err := read(); err == nil {
		t.Error("it reads without a role")
	}
	roles("grantRolesToUser")
	if err := errors.Join(read(), write(3)); err != nil {
		t.Errorf("with its role again: %v", err)
	}
}
