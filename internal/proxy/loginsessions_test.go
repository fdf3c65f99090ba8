package proxy

import (
	"bytes"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

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
	// A user who has the right to end all sessions also ends those of others.
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
