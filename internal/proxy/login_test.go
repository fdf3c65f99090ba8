package proxy

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/login"
	"dbcontroller.dev/internal/proxy/message"
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
	w.log = o.log
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

// TestOthersSessions: a user cannot reach cursors, transactions or sessions of another one, also with the same ids.
func TestOthersSessions(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, worldOptions{}, "ann", "bob")
	home := w.at["v1"]
	home.on("find", func(c command) bsoncore.Document {
		return doc(t, `{"cursor":{"id":{"$numberLong":"7"},"ns":"shop.orders","firstBatch":[]},"ok":1.0}`)
	})
	home.on("insert", func(c command) bsoncore.Document { return doc(t, `{"n":1,"ok":1.0}`) })
	home.on("killAllSessions", func(c command) bsoncore.Document {
		if c.user.Name == "db-ann" {
			return success()
		}
		return failure(codeUnauthorized, "not authorized on admin to execute command")
	})
	w.at["v2"].on("killAllSessions", func(command) bsoncore.Document { return success() })
	ann, bob := w.as("ann"), w.as("bob")
	if reply := call(t, ann, `{"find":"orders",`+session+`}`); !succeeded(reply) {
		t.Fatal(reply)
	}
	const getMore = `{"getMore":{"$numberLong":"7"},"collection":"orders",` + session + `}`
	if reply := call(t, bob, getMore); codeOf(reply) != codeCursorNotFound {
		t.Errorf("bob reads ann's cursor: %s", reply)
	}
	if reply := call(t, bob, `{"killCursors":"orders","cursors":[{"$numberLong":"7"}],`+session+`}`); !strings.Contains(reply.String(), `"cursorsKilled": []`) {
		t.Errorf("bob ends ann's cursor: %s", reply)
	}
	if n := len(home.calls("getMore")) + len(home.calls("killCursors")); n != 0 {
		t.Errorf("%d commands of bob have reached the server", n)
	}
	if reply := call(t, ann, getMore); !succeeded(reply) {
		t.Errorf("ann cannot go on: %s", reply)
	}
	// Both have a transaction with the same ids, and each is its own.
	const inside = `"txnNumber":{"$numberLong":"1"},"autocommit":false,`
	begin := `{"insert":"orders","documents":[{"_id":1}],"startTransaction":true,` + inside + session + `}`
	commit := `{"commitTransaction":1,` + inside + strings.Replace(session, `"shop"`, `"admin"`, 1) + `}`
	if reply := call(t, ann, begin); !succeeded(reply) {
		t.Fatal(reply)
	}
	if reply := call(t, bob, strings.Replace(begin, `"startTransaction":true,`, "", 1)); codeOf(reply) != codeNoSuchTransaction {
		t.Errorf("bob goes on with ann's transaction: %s", reply)
	}
	if reply := call(t, bob, begin); !succeeded(reply) {
		t.Error(reply)
	}
	// What bob ends is his own.
	for _, command := range []string{
		`{"killSessions":[],"$db":"admin"}`, `{"endSessions":[{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}}],"$db":"admin"}`,
		`{"killAllSessions":[],"$db":"admin"}`,
	} {
		call(t, bob, command)
	}
	aborts := home.calls("abortTransaction")
	if len(aborts) != 1 || aborts[0].user.Name != "db-bob" {
		t.Errorf("%d aborts", len(aborts))
	}
	if reply := call(t, ann, commit); !succeeded(reply) {
		t.Errorf("ann cannot commit: %s", reply)
	}
	// A client cannot name another owner of a session.
	foreign := strings.Replace(session, `"subType":"04"}}}`, `"subType":"04"}},"uid":`+blob(strings.Repeat("x", 32))+`}`, 1)
	if reply := call(t, bob, `{"find":"orders",`+foreign+`}`); codeOf(reply) != codeUnauthorized {
		t.Errorf("a session of another user: %s", reply)
	}
	// Who may end all sessions ends those of others, too.
	if reply := call(t, bob, strings.Replace(begin, `"1"`, `"2"`, 1)); !succeeded(reply) {
		t.Fatal(reply)
	}
	call(t, ann, `{"killAllSessions":[],"$db":"admin"}`)
	if reply := call(t, bob, strings.Replace(commit, `"1"`, `"2"`, 1)); codeOf(reply) != codeNoSuchTransaction {
		t.Errorf("the transaction goes on: %s", reply)
	}
}

// TestRetriedWritesOfUsers: a retried write is answered from the former cluster only for the user that made it.
func TestRetriedWritesOfUsers(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, worldOptions{epoch: 2}, "ann", "bob")
	owners := w.proxies[0].users.logins()
	w.at["v2"].on("find", func(c command) bsoncore.Document {
		v, err := c.msg.Body.LookupErr("filter", "_id", "$in", "0", "uid")
		if err != nil {
			t.Errorf("%s: %v", c.msg.Body, err)
		}
		_, uid, _ := v.BinaryOK()
		entry := ""
		if bytes.Equal(uid, owners[0].Owners()[0]) { // ann has made write 5 there
			entry = `{"txnNum":{"$numberLong":"5"},"lastWriteOpTime":{"ts":{"$timestamp":{"t":1,"i":1}}}}`
		}
		return doc(t, `{"cursor":{"id":{"$numberLong":"0"},"ns":"config.transactions","firstBatch":[`+entry+`]},"ok":1.0}`)
	})
	w.at["v1"].on("insert", func(command) bsoncore.Document { return doc(t, `{"n":1,"ok":1.0}`) })
	const write = `{"insert":"orders","documents":[{"_id":1}],"txnNumber":{"$numberLong":"3"},` + session + `}`
	if reply := call(t, w.as("ann"), write); codeOf(reply) != codeTransactionTooOld {
		t.Errorf("ann: %s", reply)
	}
	if reply := call(t, w.as("bob"), write); !succeeded(reply) {
		t.Errorf("bob: %s", reply)
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

// TestHostileLogins: commands of a login that come out of order, twice or between each other never log in, and
// the connection stays usable. Large messages of strangers end it.
func TestHostileLogins(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, worldOptions{}, "ann")
	driver, err := scram.SHA256.NewClientUnprepped("ann", "ann-proxy", "")
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, w.addresses[0])
	start := func() (proof string) {
		t.Helper()
		c := driver.NewConversation()
		first, _ := c.Step("")
		reply := call(t, conn, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","options":{"skipEmptyExchange":true},"payload":`+blob(first)+`,"$db":"admin"}`)
		payload, err := payloadOf(reply)
		if err != nil {
			t.Fatalf("%s: %v", reply, err)
		}
		proof, err = c.Step(string(payload))
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
	goOn := func(id int, proof string) bsoncore.Document {
		return call(t, conn, fmt.Sprintf(`{"saslContinue":1,"conversationId":%d,"payload":%s,"$db":"admin"}`, id, blob(proof)))
	}
	check := func(what string, reply bsoncore.Document, code int32) {
		t.Helper()
		if codeOf(reply) != code {
			t.Errorf("%s: %s, want code %d", what, reply, code)
		}
		if reply := call(t, conn, `{"find":"orders","$db":"shop"}`); codeOf(reply) != codeUnauthorized {
			t.Errorf("%s: logged in", what)
		}
	}
	check("without a start", goOn(1, "c=biws,r=abc,p=YWJj"), codeProtocol)
	check("another id", goOn(2, start()), codeProtocol)
	check("after another id", goOn(1, "c=biws,r=abc,p=YWJj"), codeProtocol)
	early := start()
	start()
	check("the proof of the conversation before", goOn(1, early), codeAuthenticationFailed)
	check("once more", goOn(1, early), codeProtocol)
	// A start within hello ends the one under way.
	early = start()
	call(t, conn, `{"hello":1,"speculativeAuthenticate":{"saslStart":1,"mechanism":"SCRAM-SHA-256","payload":`+blob("n,,n=ann,r=abc")+`,"db":"admin"},"$db":"admin"}`)
	check("between another one", goOn(1, early), codeAuthenticationFailed)
	early = start()
	check("a start that is refused", call(t, conn, `{"saslStart":1,"mechanism":"PLAIN","payload":`+blob("x")+`,"$db":"$external"}`), codeMechanismUnavailable)
	check("after a start that was refused", goOn(1, early), codeProtocol)
	for _, payload := range []string{`"!"`, `7`, `null`, `{}`, `[]`} {
		check(payload, call(t, conn, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","payload":`+payload+`,"$db":"admin"}`), codeProtocol)
	}
	check("no payload", call(t, conn, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","$db":"admin"}`), codeProtocol)
	check("no mechanism", call(t, conn, `{"saslStart":1,"payload":`+blob("x")+`,"$db":"admin"}`), codeMechanismUnavailable)
	check("a long payload", call(t, conn, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","payload":`+blob("n,,n=ann,r="+strings.Repeat("x", 5000))+`,"$db":"admin"}`), codeAuthenticationFailed)
	// hello answers although its login is none.
	for _, inner := range []string{`{}`, `7`, `{"saslStart":1}`, `{"authenticate":1,"mechanism":"MONGODB-X509"}`, `{"saslStart":1,"mechanism":"SCRAM-SHA-256","payload":` + blob("rubbish") + `,"db":"admin"}`} {
		reply := call(t, conn, `{"hello":1,"speculativeAuthenticate":`+inner+`,"$db":"admin"}`)
		if _, err := reply.LookupErr("speculativeAuthenticate"); !succeeded(reply) || err == nil {
			t.Errorf("%s: %s", inner, reply)
		}
	}
	// The right proof still logs in, and a replay of it does not.
	proof := start()
	if reply := goOn(1, proof); !succeeded(reply) {
		t.Error(reply)
	}
	if reply := goOn(1, proof); codeOf(reply) != codeProtocol {
		t.Error(reply)
	}
	if reply := call(t, conn, `{"find":"orders","$db":"shop"}`); !succeeded(reply) {
		t.Errorf("not logged in: %s", reply)
	}
	large := bsoncore.NewDocumentBuilder().AppendInt32("ping", 1).AppendString("x", strings.Repeat("x", smallMessage)).AppendString("$db", "admin").Build()
	if reply := send(t, conn, message.Message{ID: 1, Body: large}); !succeeded(reply) {
		t.Errorf("a large message of a user: %s", reply)
	}
	stranger := dial(t, w.addresses[0])
	if _, err := stranger.Write(message.Message{ID: 1, Body: large}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, stranger); n > 0 {
		t.Errorf("%d bytes, %v after a large message of a stranger", n, err)
	}
}

// TestFailedLoginsAreLogged: the log names the user as one line, without a password.
func TestFailedLoginsAreLogged(t *testing.T) {
	t.Parallel()
	var text lockedBuffer
	w := newWorldOf(t, worldOptions{log: slog.New(slog.NewTextHandler(&text, nil))}, "ann")
	name := "eve\n\x1b[2J" + strings.Repeat("x", 200)
	if reply := w.enter(dial(t, w.addresses[0]), name, "hunter2"); codeOf(reply) != codeAuthenticationFailed {
		t.Error(reply)
	}
	got := text.String()
	if strings.Contains(got, "hunter2") || strings.Contains(got, "\x1b") || strings.Contains(got, strings.Repeat("x", 150)) || !strings.Contains(got, "eve") || strings.Count(got, "a login failed") != 1 {
		t.Errorf("the log is %s", got)
	}
}

// TestLinesOfStrangers: a flood of failed logins has few lines, and the next one tells how many were left out.
func TestLinesOfStrangers(t *testing.T) {
	t.Parallel()
	var l lines
	now := time.Unix(1000, 0)
	for i := range 3 * mostLines {
		if left, ok := l.next(now); ok != (i < mostLines) || left != 0 {
			t.Errorf("line %d: %t, %d left out", i, ok, left)
		}
	}
	if left, ok := l.next(now.Add(time.Second)); !ok || left != 2*mostLines {
		t.Errorf("%t, %d left out", ok, left)
	}
	if left, ok := l.next(now.Add(time.Second)); !ok || left != 0 {
		t.Errorf("%t, %d left out", ok, left)
	}
}

// lockedBuffer may be written by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
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
