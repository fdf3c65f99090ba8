package mongostore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/record"
)

// TestUserMadeAnew: an administrator drops the user and creates it again with the same password.
// The pooled connections are logged out for good, and new ones take their place without a
// restart: for reads, for writes, and for each of many connections.
func TestUserMadeAnew(t *testing.T) {
	t.Parallel()
	srv := start(t, localmongo.Options{Auth: true, Own: true})
	_, rest, _ := strings.Cut(srv.URI(), "@")
	root := openNamespace(t, Config{URI: srv.URI(), Database: "shop"}, nil)
	tok, err := root.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	administer := func(cmd bson.D) {
		t.Helper()
		if err := root.admin().RunCommand(t.Context(), cmd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	create := bson.D{{Key: "createUser", Value: "service"}, {Key: "pwd", Value: "p"},
		{Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: "shop"}}}}}
	administer(create)
	ns := openNamespace(t, Config{URI: "mongodb://service:p@" + rest, Database: "shop"}, nil)
	client := ns.Client()
	toks := record.Tokens{"things": tok}
	write := func(n int) error {
		return client.Write(t.Context(), toks, []record.Mutation{{Kind: "things", Key: record.StringKey("a"), Doc: doc("a", n)}})
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
	administer(bson.D{{Key: "dropUser", Value: "service"}})
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
		administer(bson.D{{Key: command, Value: "service"}, {Key: "roles", Value: create[2].Value}})
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
