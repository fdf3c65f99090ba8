package proxy

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/login"
)

// visitor is the state of one connection to a server.
type visitor struct {
	user  *user
	login *login.Conversation
}

// logIn serves the commands of a login at a server. It notes the login of other commands, and refuses those that
// have none.
func (s *server) logIn(v *visitor, c *command) bsoncore.Document {
	if s.users == nil {
		return nil
	}
	c.user = v.user
	payload, _ := payloadOf(c.msg.Body)
	switch c.verb {
	case "hello", "isMaster", "ismaster":
		return nil
	case "saslStart":
		mechanism, _ := text(c.msg.Body, "mechanism")
		conversation, answer, err := s.users.Start(c.database, mechanism, payload, true)
		if err != nil {
			return failure(codeAuthenticationFailed, "Authentication failed.")
		}
		v.login = conversation
		return saslReply(answer, false)
	case "saslContinue":
		answer, done, err := v.login.Next(payload)
		if err != nil {
			return failure(codeAuthenticationFailed, "Authentication failed.")
		}
		v.user = &user{User: v.login.User()}
		return saslReply(answer, done)
	}
	if v.user == nil {
		return failure(codeUnauthorized, "Command "+c.verb+" requires authentication")
	}
	return nil
}

// accountsOf makes verifiers for names; the password of each is the name with a suffix.
func accountsOf(t *testing.T, suffix string, names ...string) (out []login.Account) {
	t.Helper()
	folder := t.TempDir()
	for _, name := range names {
		text, err := login.New("admin", name, name+suffix, false)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, name+".json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out = append(out, login.Account{Database: "admin", Name: name, File: file})
	}
	return out
}

// newWorldOf makes a world whose proxies have users, each with a login of its own at the servers: ann has db-ann.
// The password of a user is NAME-proxy, that of a login NAME-db.
func newWorldOf(t *testing.T, o worldOptions, names ...string) *world {
	t.Helper()
	w := makeWorld(t, o)
	own := []string{"owner"} // of the connection strings
	for _, a := range accountsOf(t, "-proxy", names...) {
		w.users = append(w.users, User{Name: a.Name, Database: a.Database, Verifier: a.File, Login: Login{User: "db-" + a.Name, Database: "admin", Password: "db-" + a.Name + "-db"}})
		own = append(own, "db-"+a.Name)
	}
	for _, s := range w.at {
		users, err := login.Open(accountsOf(t, "-db", own...), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.users = users
	}
	w.start(o)
	return w
}

// drive connects an unmodified driver to a proxy.
func (w *world) drive(name, password string) *mongo.Client {
	w.t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + url.UserPassword(name, password).String() + "@" + w.addresses[0] + "/"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Disconnect(context.WithoutCancel(w.t.Context())) })
	return c
}

// enter logs a raw connection in. It returns the last reply.
func (w *world) enter(conn net.Conn, name, password string) bsoncore.Document {
	w.t.Helper()
	driver, err := scram.SHA256.NewClientUnprepped(name, password, "")
	if err != nil {
		w.t.Fatal(err)
	}
	c := driver.NewConversation()
	first, _ := c.Step("")
	reply := call(w.t, conn, fmt.Sprintf(`{"saslStart":1,"mechanism":"SCRAM-SHA-256","options":{"skipEmptyExchange":true},"payload":%s,"$db":"admin"}`, blob(first)))
	if !succeeded(reply) {
		return reply
	}
	payload, err := payloadOf(reply)
	if err != nil {
		w.t.Fatal(err)
	}
	proof, err := c.Step(string(payload))
	if err != nil {
		w.t.Fatal(err)
	}
	return call(w.t, conn, fmt.Sprintf(`{"saslContinue":1,"conversationId":1,"payload":%s,"$db":"admin"}`, blob(proof)))
}

func blob(s string) string {
	return fmt.Sprintf(`{"$binary":{"base64":%q,"subType":"00"}}`, base64.StdEncoding.EncodeToString([]byte(s)))
}

// as returns a connection of a user.
func (w *world) as(name string) net.Conn {
	w.t.Helper()
	conn := dial(w.t, w.addresses[0])
	if reply := w.enter(conn, name, name+"-proxy"); !succeeded(reply) {
		w.t.Fatalf("%s: %s", name, reply)
	}
	return conn
}

// TestUsersKeepTheirLogins: an unmodified driver logs in at the proxy, and its commands reach each server with
// the login of its user, before and after a switch, also those within transactions and about cursors.
func TestUsersKeepTheirLogins(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, worldOptions{}, "ann", "bob")
	for _, s := range w.at {
		s.on("find", func(c command) bsoncore.Document {
			return doc(t, `{"cursor":{"id":{"$numberLong":"7"},"ns":"shop.orders","firstBatch":[]},"ok":1.0}`)
		})
		s.on("getMore", func(c command) bsoncore.Document {
			return doc(t, `{"cursor":{"id":{"$numberLong":"0"},"ns":"shop.orders","nextBatch":[]},"ok":1.0}`)
		})
		s.on("insert", func(c command) bsoncore.Document { return doc(t, `{"n":1,"ok":1.0}`) })
	}
	verbs := []string{"insert", "find", "getMore", "commitTransaction"}
	for _, version := range []string{"v1", "v2"} {
		if version == "v2" {
			w.hold("v1", 1)
			w.open("v2", 2)
			w.await(w.proxies[0])
		}
		seen := map[string]int{}
		for _, verb := range verbs {
			seen[verb] = len(w.at[version].calls(verb))
		}
		for _, name := range []string{"ann", "bob"} {
			client := w.drive(name, name+"-proxy")
			orders := client.Database("shop").Collection("orders")
			found, err := orders.Find(t.Context(), bson.D{})
			if err != nil {
				t.Fatal(err)
			}
			var all []bson.D
			if err := found.All(t.Context(), &all); err != nil {
				t.Error(err)
			}
			session, err := client.StartSession()
			if err != nil {
				t.Fatal(err)
			}
			inside := mongo.NewSessionContext(t.Context(), session)
			if err := session.StartTransaction(); err != nil {
				t.Fatal(err)
			}
			if _, err := orders.InsertOne(inside, bson.D{{Key: "_id", Value: 1}}); err != nil {
				t.Error(err)
			}
			if err := session.CommitTransaction(inside); err != nil {
				t.Error(err)
			}
			session.EndSession(t.Context())
			for _, verb := range verbs {
				for _, c := range w.at[version].calls(verb)[seen[verb]:] {
					if c.user.Name != "db-"+name {
						t.Errorf("%s at %s: %s of %s came with the login %s", version, verb, verb, name, c.user.Name)
					}
					seen[verb]++
				}
			}
		}
	}
	// What the proxy asks for itself has its own login, and no client's command has.
	for _, s := range w.at {
		for _, verb := range verbs {
			if slices.ContainsFunc(s.calls(verb), func(c command) bool { return c.user.Name == "owner" }) {
				t.Errorf("%s came with the proxy's own login", verb)
			}
		}
	}
}

// TestBeforeLogin: a stranger may do what MongoDB allows, and nothing else. A wrong password changes nothing.
func TestBeforeLogin(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, worldOptions{}, "ann")
	conn := dial(t, w.addresses[0])
	before := len(w.at["v1"].calls("listCollections"))
	check := func(command string, code int32) {
		t.Helper()
		if reply := call(t, conn, command); codeOf(reply) != code {
			t.Errorf("%s: %s, want code %d", command, reply, code)
		}
	}
	strangers := func() {
		t.Helper()
		for _, command := range []string{
			`{"ping":1,"$db":"admin"}`, `{"hello":1,"$db":"admin"}`, `{"isMaster":1,"$db":"admin"}`, `{"hello":1,"saslSupportedMechs":"admin.nobody","$db":"admin"}`,
		} {
			check(command, 0)
		}
		for _, command := range []string{
			`{"find":"orders","$db":"shop"}`, `{"find":"logs","$db":"shop"}`, `{"insert":"orders","documents":[{"_id":1}],"$db":"shop"}`, `{"getMore":{"$numberLong":"7"},"collection":"orders","$db":"shop"}`,
			`{"killAllSessions":[],"$db":"admin"}`, `{"endSessions":[],"$db":"admin"}`, `{"killCursors":"orders","cursors":[],"$db":"shop"}`, `{"listCollections":1,"$db":"shop"}`,
			`{"abortTransaction":1,` + session + `}`, `{"logout":1,"$db":"admin"}`, `{"buildInfo":1,"$db":"admin"}`, `{"bulkWrite":1,"ops":[],"nsInfo":[],"$db":"admin"}`, `{"nonsense":1,"$db":"admin"}`, `{"usersInfo":1,"$db":"admin"}`,
			`{"explain":{"find":"orders"},"$db":"shop"}`, `{"dropDatabase":1,"$db":"shop"}`,
		} {
			check(command, codeUnauthorized)
		}
		check(`{"authenticate":1,"mechanism":"MONGODB-X509","$db":"$external"}`, codeMechanismUnavailable)
		check(`{"saslStart":1,"mechanism":"PLAIN","payload":`+blob("x")+`,"$db":"$external"}`, codeMechanismUnavailable)
		check(`{"saslStart":1,"mechanism":"SCRAM-SHA-1","payload":`+blob("n,,n=ann,r=abc")+`,"$db":"admin"}`, codeMechanismUnavailable) // ann has none
		check(`{"hello":1,"saslSupportedMechs":"ann","$db":"admin"}`, codeBadValue)
		if users := userOf(t, call(t, conn, `{"connectionStatus":1,"$db":"admin"}`)); users != "" {
			t.Errorf("a stranger is %s", users)
		}
	}
	strangers()
	for _, wrong := range [][2]string{{"ann", "wrong"}, {"nobody", "nobody-proxy"}, {"db-ann", "db-ann-db"}, {"owner", "owner-db"}} {
		if reply := w.enter(conn, wrong[0], wrong[1]); codeOf(reply) != codeAuthenticationFailed {
			t.Errorf("%s: %s", wrong, reply)
		}
	}
	strangers()
	if n := len(w.at["v1"].calls("listCollections")); n != before {
		t.Error("a stranger's command has reached a server")
	}
	if got := values(t, w.proxies[0])["dbcontroller_proxy_logins_failed_total"]; got != 4 {
		t.Errorf("%v failed logins, want 4", got)
	}
	// The same connection can log in then, and out.
	if reply := w.enter(conn, "ann", "ann-proxy"); !succeeded(reply) {
		t.Fatal(reply)
	}
	check(`{"find":"orders","$db":"shop"}`, 0)
	check(`{"logout":1,"$db":"other"}`, 0)
	check(`{"find":"orders","$db":"shop"}`, 0)
	check(`{"logout":1,"$db":"admin"}`, 0)
	strangers()
}

func userOf(t *testing.T, reply bsoncore.Document) string {
	t.Helper()
	var status struct {
		Info struct {
			Users []struct{ User, DB string } `bson:"authenticatedUsers"`
		} `bson:"authInfo"`
	}
	if err := bson.Unmarshal(reply, &status); err != nil || !succeeded(reply) {
		t.Fatalf("%s, %v", reply, err)
	}
	if len(status.Info.Users) == 0 {
		return ""
	}
	return status.Info.Users[0].User + "@" + status.Info.Users[0].DB
}

// TestConnectionStatus: the application sees the user by which it has logged in, and the database's roles.
func TestConnectionStatus(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, worldOptions{}, "ann", "bob")
	w.at["v1"].on("connectionStatus", func(c command) bsoncore.Document {
		return doc(t, `{"authInfo":{"authenticatedUsers":[{"user":"`+c.user.Name+`","db":"admin"}],"authenticatedUserRoles":[{"role":"of-`+c.user.Name+`","db":"shop"}]},"ok":1.0}`)
	})
	conn := w.as("ann")
	reply := call(t, conn, `{"connectionStatus":1,"$db":"admin"}`)
	if got := userOf(t, reply); got != "ann@admin" || !strings.Contains(reply.String(), "of-db-ann") {
		t.Errorf("%s", reply)
	}
	// Again as the same user, and not as another one.
	if reply := w.enter(conn, "ann", "ann-proxy"); !succeeded(reply) {
		t.Error(reply)
	}
	if reply := w.enter(conn, "bob", "bob-proxy"); codeOf(reply) != codeProtocol {
		t.Error(reply)
	}
	if got := userOf(t, call(t, conn, `{"connectionStatus":1,"$db":"admin"}`)); got != "ann@admin" {
		t.Error(got)
	}
}

// TestRemovedUserIsOut: when an operator removes the verifier of a user, the next command fails.
func TestRemovedUserIsOut(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, worldOptions{}, "ann", "bob")
	ann, bob := w.as("ann"), w.as("bob")
	if err := os.Remove(w.users[0].Verifier); err != nil {
		t.Fatal(err)
	}
	w.until("ann is out", func() bool { return codeOf(call(t, ann, `{"find":"orders","$db":"shop"}`)) == codeUnauthorized })
	if reply := w.enter(ann, "ann", "ann-proxy"); codeOf(reply) != codeAuthenticationFailed {
		t.Error(reply)
	}
	if reply := call(t, bob, `{"find":"orders","$db":"shop"}`); !succeeded(reply) {
		t.Error(reply)
	}
}

// TestRefusedUpstreamLogin: a user whose login a cluster refuses gets an error that no driver repeats, and the log
// tells the operator which user it is. Others are served.
func TestRefusedUpstreamLogin(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	w := makeWorld(t, worldOptions{})
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	for _, a := range accountsOf(t, "-proxy", "ann", "bob") {
		w.users = append(w.users, User{Name: a.Name, Database: a.Database, Verifier: a.File, Login: Login{User: "db-" + a.Name, Database: "admin", Password: "db-" + a.Name + "-db"}})
	}
	w.users[0].Login.Password = "hunter2"
	for _, s := range w.at {
		users, err := login.Open(accountsOf(t, "-db", "owner", "db-ann", "db-bob"), nil)
		if err != nil {
			t.Fatal(err)
		}
		s.users = users
		s.on("insert", func(command) bsoncore.Document { return doc(t, `{"n":1,"ok":1.0}`) })
	}
	w.start(worldOptions{})
	if got := log.String(); !strings.Contains(got, "user=ann@admin") || strings.Contains(got, "hunter2") || strings.Contains(got, "bob") {
		t.Errorf("the log is %s", got)
	}
	const write = `{"insert":"orders","documents":[{"_id":1}],"txnNumber":{"$numberLong":"3"},` + session + `}`
	if reply := call(t, w.as("ann"), write); codeOf(reply) != codeAuthenticationFailed || labelled(reply, labelRetryable) {
		t.Errorf("%s", reply)
	}
	if reply := call(t, w.as("bob"), write); !succeeded(reply) {
		t.Errorf("%s", reply)
	}
}

// TestWrongUsers: a proxy does not start with a verifier that is missing or wrong.
func TestWrongUsers(t *testing.T) {
	t.Parallel()
	w := makeWorld(t, worldOptions{})
	file := filepath.Join(t.TempDir(), "ann.json")
	w.users = []User{{Name: "ann", Database: "admin", Verifier: file, Login: Login{User: "ann", Database: "admin", Password: "hunter2"}}}
	for _, text := range []string{"", "hunter2"} {
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := New(t.Context(), w.config(worldOptions{}))
		if err == nil {
			_ = p.Close(t.Context())
		}
		if err == nil || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "verifier of ann@admin") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
