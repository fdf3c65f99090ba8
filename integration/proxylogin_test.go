package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/proxy"
	"dbcontroller.dev/internal/proxy/login"
)

// mongoUsers makes users in both clusters of a system. Each has a role in the databases of both versions.
func (s *system) mongoUsers(ctx context.Context, roles map[string]string) {
	s.t.Helper()
	for _, version := range []string{"v1", "v2"} {
		for name, role := range roles {
			list := bson.A{}
			for _, v := range []string{"v1", "v2"} {
				list = append(list, bson.D{{Key: "role", Value: role}, {Key: "db", Value: s.db[v].Name()}})
			}
			s.admin(ctx, version, bson.D{{Key: "createUser", Value: name}, {Key: "pwd", Value: secret}, {Key: "roles", Value: list}})
		}
	}
}

func (s *system) admin(ctx context.Context, version string, command bson.D) bson.Raw {
	s.t.Helper()
	raw, err := s.db[version].Client().Database("admin").RunCommand(ctx, command).Raw()
	if err != nil {
		s.t.Fatal(err)
	}
	return raw
}

// exported makes a user of a proxy from what MongoDB knows of it.
func (s *system) exported(ctx context.Context, name string) proxy.User {
	s.t.Helper()
	raw := s.admin(ctx, "v1", bson.D{{Key: "usersInfo", Value: name}, {Key: "showCredentials", Value: true}})
	text, err := bson.MarshalExtJSON(raw, false, false)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.proxyUser(name, text)
}

func (s *system) proxyUser(name string, verifier []byte) proxy.User {
	s.t.Helper()
	return proxy.User{
		Name: name, Database: "admin", Verifier: s.write(name+".json", string(verifier)),
		Login: proxy.Login{User: name, Database: "admin", Password: secret},
	}
}

// openWith connects an unmodified driver with a login.
func openWith(ctx context.Context, t *testing.T, addresses, name, password string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + name + ":" + password + "@" + addresses + "/?w=majority"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(ctx)) })
	return client
}

// logIn logs a raw client in.
func (c rawClient) logIn(name, password string) {
	c.t.Helper()
	driver, err := scram.SHA256.NewClientUnprepped(name, password, "")
	if err != nil {
		c.t.Fatal(err)
	}
	conversation := driver.NewConversation()
	body := bson.D{{Key: "saslStart", Value: 1}, {Key: "mechanism", Value: "SCRAM-SHA-256"}}
	payload := ""
	for !conversation.Done() {
		step, err := conversation.Step(payload)
		if err != nil {
			c.t.Fatal(err)
		}
		if conversation.Done() {
			step = "" // the exchange without content, which other clients skip
		}
		reply := c.call(append(body, bson.E{Key: "payload", Value: []byte(step)}, bson.E{Key: "$db", Value: "admin"}))
		got, ok := reply["payload"].(bson.Binary)
		if !ok {
			c.t.Fatalf("%s: %v", name, reply)
		}
		payload = string(got.Data)
		body = bson.D{{Key: "saslContinue", Value: 1}, {Key: "conversationId", Value: reply["conversationId"]}}
	}
}

// refusedBy returns nil if an error is the refusal of a database for lack of a right.
func refusedBy(err error) error {
	var e mongo.CommandError
	if !errors.As(err, &e) || e.Code != 13 || !strings.HasPrefix(e.Message, "not authorized on ") {
		return fmt.Errorf("want a refusal of the database: %w", errors.Join(err, errNotRefused))
	}
	return nil
}

var errNotRefused = errors.New("not refused")

// TestProxyLogins: applications in Go and JavaScript have a user and a password in their connection strings, and are
// switched to another cluster and back behind two proxies. Nothing fails. The database itself refuses what a user
// may not do, at each place. Nobody gets in without the password.
func TestProxyLogins(t *testing.T) {
	t.Parallel()
	nodeClient(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	s := newSystem(ctx, t, settings{
		service: "bank", lens: "lens: 1\noperations: []\n",
		kinds: "[{from: accounts, to: accounts, lens: packages.yaml}, {from: entries, to: entries, lens: packages.yaml}, {from: nodes, to: nodes, lens: packages.yaml}]",
		uris: map[string]string{
			"v1": start(ctx, t, localmongo.Options{Own: true, Auth: true}).URI(), "v2": start(ctx, t, localmongo.Options{Own: true, Auth: true}).URI(),
		},
	})
	for _, name := range []string{"accounts", "entries", "nodes"} {
		if err := s.db["v1"].CreateCollection(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	s.mongoUsers(ctx, map[string]string{"shop": "readWrite", "other": "readWrite", "reader": "read"})
	own, err := login.New("admin", "reader", "of-the-proxy", true)
	if err != nil {
		t.Fatal(err)
	}
	users := []proxy.User{s.exported(ctx, "shop"), s.exported(ctx, "other"), s.proxyUser("reader", own)}
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	one := s.startProxyOf(ctx, api, users, "accounts", "entries", "nodes")
	addresses := one + "," + s.startProxyOf(ctx, api, users, "accounts", "entries", "nodes")

	// Who has no right password.
	database := s.db["v1"].Name()
	for _, wrong := range [][2]string{{"shop", "wrong"}, {"nobody", secret}, {"root", secret}, {"reader", secret}} {
		var failed mongo.CommandError
		err := openWith(ctx, t, one, wrong[0], wrong[1]).Database(database).Collection("accounts").FindOne(ctx, bson.D{}).Err()
		if !strings.Contains(fmt.Sprint(err), "AuthenticationFailed") || errors.As(err, &failed) && failed.Code != 18 {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	anonymous := newRawClient(t, one)
	if reply := anonymous.call(bson.D{{Key: "find", Value: "accounts"}, {Key: "$db", Value: database}}); reply["code"] != int32(13) {
		t.Errorf("without a login: %v", reply)
	}

	shop := openWith(ctx, t, addresses, "shop", secret)
	b := &bank{db: shop.Database(database)}
	if err := b.open(ctx); err != nil {
		t.Fatal(err)
	}
	nodes := b.db.Collection("nodes")
	cmd := exec.Command("node", filepath.Join(nodeFolder, "scenario", "login.js"))
	cmd.Env = append(os.Environ(), "MONGO_URI=mongodb://shop:"+secret+"@"+addresses+"/?authSource=admin", "DATABASE="+database)
	node := spawn(t, "node", cmd)
	reader := openWith(ctx, t, addresses, "reader", "of-the-proxy").Database(database)

	working, stop := context.WithCancel(ctx)
	g, working := errgroup.WithContext(working)
	for i := range b.calls {
		g.Go(func() error { return b.work(working, i) })
	}
	var once sync.Once
	defer once.Do(func() { stop(); _ = g.Wait() })

	raw, another := newRawClient(t, one), newRawClient(t, one)
	raw.logIn("shop", secret)
	another.logIn("other", secret)
	lsid := bson.D{{Key: "id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: bytes.Repeat([]byte{7}, 16)}}}
	write := func(c rawClient, id string) bson.M {
		return c.call(bson.D{
			{Key: "insert", Value: "nodes"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: id}}}}, {Key: "lsid", Value: lsid}, {Key: "txnNumber", Value: int64(1)}, {Key: "$db", Value: database},
		})
	}
	if reply := write(raw, "retried"); reply["n"] != int32(1) {
		t.Fatal(reply)
	}
	for round, v := range []string{"v1", "v2", "v1", "v2"} {
		if round > 0 {
			s.beginTo(ctx, v)
			s.await(ctx, "the flip to "+v, flipped(v))
		}
		// Each application goes on at the new place.
		calls, docs := b.done.Load(), int64(0)
		eventually(ctx, t, "calls of both applications at "+v, func() error {
			n, err := nodes.CountDocuments(ctx, bson.D{})
			if docs == 0 {
				docs = n
			}
			if made := b.done.Load() - calls; (made < 20*int64(len(b.calls)) || n < docs+20) && working.Err() == nil && node.Running() {
				return fmt.Errorf("%d calls, %d documents of JavaScript, %w", made, n-docs, err)
			}
			return nil
		})
		if err := reader.Collection("accounts").FindOne(ctx, bson.D{{Key: "_id", Value: 1}}).Err(); err != nil {
			t.Errorf("%s: the reader: %v", v, err)
		}
		_, err := reader.Collection("accounts").InsertOne(ctx, bson.D{{Key: "_id", Value: "by the reader"}})
		if err := refusedBy(err); err != nil {
			t.Errorf("%s: the reader writes: %v", v, err)
		}
		if err := refusedBy(shop.Database("secrets").Collection("c").FindOne(ctx, bson.D{}).Err()); err != nil {
			t.Errorf("%s: another database: %v", v, err)
		}
		if round == 1 {
			// A retried write is answered from the former cluster for the user that made it, and for no other one.
			if reply := write(raw, "retried"); reply["n"] != int32(1) || reply["writeErrors"] != nil {
				t.Errorf("the retried write: %v", reply)
			}
			if reply := write(another, "by another user"); reply["n"] != int32(1) || reply["writeErrors"] != nil {
				t.Errorf("a write of another user with the same number: %v", reply)
			}
			if n, err := nodes.CountDocuments(ctx, bson.D{{Key: "_id", Value: "by another user"}}); n != 1 {
				t.Errorf("it is there %d times, %v", n, err)
			}
		}
	}
	once.Do(stop)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if code := node.terminate(patience); code != 0 {
		t.Errorf("the application in JavaScript ends with %d: %s", code, node.output())
	}
	b.check(ctx, t)

	// In the database, everything was done by the users' own logins.
	for _, version := range []string{"v1", "v2"} {
		found, err := s.db[version].Client().Database("config").Collection("transactions").Find(ctx, bson.D{})
		var sessions []struct {
			ID struct{ UID []byte } `bson:"_id"`
		}
		if err == nil {
			err = found.All(ctx, &sessions)
		}
		if err != nil {
			t.Fatal(err)
		}
		made := map[string]int{}
		for _, one := range sessions {
			for _, u := range users {
				if bytes.Equal(one.ID.UID, u.Login.Owners()[0]) {
					made[u.Name]++
				}
			}
		}
		if made["shop"] == 0 || made["reader"] != 0 {
			t.Errorf("%s: sessions by user %v", version, made)
		}
	}
	if status := raw.call(bson.D{{Key: "connectionStatus", Value: 1}, {Key: "$db", Value: "admin"}}); !strings.Contains(fmt.Sprint(status), "shop") || !strings.Contains(fmt.Sprint(status), "readWrite") {
		t.Errorf("connectionStatus: %v", status)
	}
}

// TestProxyDroppedUser: an administrator drops a user in the database and makes it again. The server has logged out
// the proxy's connections for good, and the proxy does not go on using them. A user that an operator removes from
// the proxy is out.
func TestProxyDroppedUser(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	server := start(ctx, t, localmongo.Options{Own: true, Auth: true})
	s := newSystem(ctx, t, settings{
		service: "bank", lens: "lens: 1\noperations: []\n", kinds: "[{from: accounts, to: accounts, lens: packages.yaml}]",
		uris: map[string]string{"v1": server.URI(), "v2": server.URI()},
	})
	if err := s.db["v1"].CreateCollection(ctx, "accounts"); err != nil {
		t.Fatal(err)
	}
	create := func() {
		s.admin(ctx, "v1", bson.D{{Key: "createUser", Value: "shop"}, {Key: "pwd", Value: secret}, {Key: "roles", Value: bson.A{
			bson.D{{Key: "role", Value: "readWrite"}, {Key: "db", Value: s.db["v1"].Name()}}}}})
	}
	create()
	users := []proxy.User{s.exported(ctx, "shop")}
	api, _ := s.controller("controller", breakPoint{}).ready(ctx).addresses()
	shop := openWith(ctx, t, s.startProxyOf(ctx, api, users, "accounts"), "shop", secret).Database(s.db["v1"].Name())
	find := func(collection string) error {
		if err := shop.Collection(collection).FindOne(ctx, bson.D{}).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		return nil
	}
	for _, collection := range []string{"accounts", "logs"} {
		// Many connections of the proxy, which all must be left.
		var g errgroup.Group
		for range 20 {
			g.Go(func() error { return find(collection) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	s.admin(ctx, "v1", bson.D{{Key: "dropUser", Value: "shop"}})
	eventually(ctx, t, "the refusal", func() error {
		var e mongo.CommandError
		if err := find("accounts"); !errors.As(err, &e) || e.Code != 13 && e.Code != 18 {
			return fmt.Errorf("%w", errors.Join(err, errNotRefused))
		}
		return nil
	})
	create()
	eventually(ctx, t, "the user is served again", func() error { return find("accounts") })
	for range 40 {
		if err := errors.Join(find("accounts"), find("logs")); err != nil {
			t.Fatalf("a connection that is logged out is used again: %v", err)
		}
	}
	if err := os.Remove(users[0].Verifier); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the user is out", func() error {
		var e mongo.CommandError
		if err := find("accounts"); !errors.As(err, &e) || e.Code != 13 {
			return fmt.Errorf("%w", errors.Join(err, errNotRefused))
		}
		return nil
	})
}
