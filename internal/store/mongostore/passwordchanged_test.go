package mongostore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestPasswordChanged: an administrator changes the password while writes need new connections. The
// server refuses those, and the driver then refuses connections to other writes for a moment. No
// write that found no connection has an unknown outcome: a caller with the new password must be
// able to repeat it.
func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	srv := storetest.Start(t, localmongo.Options{Auth: true, Own: true})
	_, rest, _ := strings.Cut(srv.URI(), "@")
	root := storetest.OpenNamespace(t, conn.Config{URI: srv.URI(), Database: "shop"}, nil)
	tok, err := root.Provision(t.Context(), record.KindSpec{Name: "things"}, "things.n1")
	if err != nil {
		t.Fatal(err)
	}
	administer := func(command, password string, more ...bson.E) {
		t.Helper()
		cmd := append(bson.D{{Key: command, Value: "service"}, {Key: "pwd", Value: password}}, more...)
		if err := root.Mongo.Database("admin").RunCommand(t.Context(), cmd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	administer("createUser", "p0", bson.E{Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: "shop"}}}})
	for round := range 3 {
		ns := storetest.OpenNamespace(t, conn.Config{URI: fmt.Sprintf("mongodb://service:p%d@%s", round, rest), Database: "shop", PoolSize: 64}, nil)
		client := ns.Client()
		var writers sync.WaitGroup
		// Each ends when its write is refused.
		write := func(key string) {
			writers.Go(func() {
				var err error
				for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
					err = client.Write(t.Context(), record.Tokens{"things": tok}, []record.Mutation{{Kind: "things", Key: record.StringKey(key), Doc: storetest.Doc(key, 1)}})
				}
				if !conn.IsLoginRefused(err) || errors.Is(err, record.ErrUnknown) {
					t.Errorf("round %d: write %s: %v, want only a refused login", round, key, err)
				}
			})
		}
		for w := range 4 {
			write(fmt.Sprint("before-", w))
		}
		administer("updateUser", fmt.Sprint("p", round+1))
		for w := range 200 {
			write(fmt.Sprint("after-", w))
		}
		writers.Wait()
	}
}
