package databases_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/config"
	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
)

// TestPasswordIsRotated changes a password in its file and then in the server, twice, while
// the database is used: nobody notices. After that the server is started again, so that every
// connection has to log in anew.
func TestPasswordIsRotated(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	server := own(ctx, t, localmongo.Options{Auth: true})
	_, rest, _ := strings.Cut(server.URI(), "@")
	command(ctx, t, server.URI(), bson.D{{Key: "createUser", Value: "service"}, {Key: "pwd", Value: "p0"}, {Key: "roles", Value: bson.A{"root"}}})
	file := filepath.Join(t.TempDir(), "password")
	hold := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hold("p0")
	cfg := configured("mongodb://service:p0@" + rest)
	cfg.DBs[0].Renew = func(read config.FileReader) (string, error) {
		password, err := read(file)
		return "mongodb://service:" + password + "@" + rest, err
	}
	set := open(t, cfg)
	db := set.Database("v1")
	if err := db.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	quiet, client := db.Quietly(), db.Client()
	tok, err := db.Provision(ctx, record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	using, stop := context.WithCancel(ctx)
	defer stop()
	var calls atomic.Int64
	failed, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; using.Err() == nil; n++ {
			err := use(using, n, db, quiet, client, tok)
			if err != nil && using.Err() == nil {
				failed <- err
				return
			}
			calls.Add(1)
		}
	}()
	for round := 1; round <= 2; round++ {
		before, err := db.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		password := fmt.Sprint("p", round)
		hold(password)
		command(ctx, t, server.URI(), bson.D{{Key: "updateUser", Value: "service"}, {Key: "pwd", Value: password}})
		for now := before; now == before; {
			select {
			case err := <-failed:
				t.Fatalf("round %d, after %d calls: %v", round, calls.Load(), err)
			case <-ctx.Done():
				t.Fatal("the new password is not used")
			case <-time.After(20 * time.Millisecond):
			}
			if now, err = db.Get(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for from := calls.Load(); calls.Load() < from+20; {
			select {
			case err := <-failed:
				t.Fatalf("round %d, after %d calls: %v", round, calls.Load(), err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	stop()
	<-done
	node := server.Nodes()[0]
	node.Kill()
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		if err := use(ctx, n, db, quiet, client, tok); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("after the server was started again: %v", err)
		}
	}
}

// positioner is what is asked of a database.
type positioner interface {
	Position(ctx context.Context) (record.Position, error)
}

func use(ctx context.Context, n int, db, quiet positioner, client record.OnceClient, tok record.Token) error {
	for _, d := range []positioner{db, quiet} {
		if _, err := d.Position(ctx); err != nil {
			return err
		}
	}
	key := fmt.Sprint("thing", n)
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: key}})
	if err != nil {
		return err
	}
	return client.Write(ctx, record.Tokens{tok.Kind: tok}, []record.Mutation{{Kind: tok.Kind, Key: record.StringKey(key), Doc: doc}})
}

// TestLoginThatCannotBeUsed: a password that the server does not take, and a file that is gone
// or names another server, leave the login as it was.
func TestLoginThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := own(ctx, t, localmongo.Options{Auth: true})
	_, rest, _ := strings.Cut(server.URI(), "@")
	file := filepath.Join(t.TempDir(), "endpoint")
	hold := func(endpoint string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(endpoint), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hold(server.URI())
	cfg := configured(server.URI())
	cfg.DBs[0].Renew = func(read config.FileReader) (string, error) { return read(file) }
	logs, seen := observer.New(zap.WarnLevel)
	set := databases.New(cfg, databases.Config{App: "test", Log: zap.New(logs)})
	t.Cleanup(func() { set.Close(context.Background()) })
	db := set.Database("v1")
	before, err := db.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(){
		"uthentication failed": func() { hold(strings.Replace(server.URI(), "@", "x@", 1)) },
		"no such file":         func() { _ = os.Remove(file) },
		"other hosts":          func() { hold("mongodb://nobody:p@127.0.0.1:1/?replicaSet=rs0") },
	} {
		change()
		for !strings.Contains(fmt.Sprint(seen.All()), what) {
			if _, err := db.Position(ctx); err != nil {
				t.Fatalf("%s: %v", rest, err)
			}
		}
		// Of a secret no trace.
		if _, password, _ := strings.Cut(strings.TrimSuffix(server.URI(), "@"+rest), "://"); strings.Contains(fmt.Sprint(seen.All()), password) {
			t.Errorf("the log shows the login: %v", seen.All())
		}
	}
	if now, err := db.Get(ctx); err != nil || now != before {
		t.Errorf("another login is used: %v, %v", now != before, err)
	}
}
