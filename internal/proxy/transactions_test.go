package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

const (
	inTransaction = `"txnNumber":{"$numberLong":"5"},"autocommit":false,` + session
	commit        = `{"commitTransaction":1,"txnNumber":{"$numberLong":"5"},"autocommit":false,"lsid":{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}},"$db":"admin"}`
	insertFirst   = `{"insert":"orders","documents":[{"_id":1}],"startTransaction":true,` + inTransaction + `}`
)

func ok(t *testing.T) func(command) bsoncore.Document {
	return func(command) bsoncore.Document { return doc(t, `{"n":1,"ok":1.0}`) }
}

// TestUnknownCommit: the answer to a commit is lost while a switch holds writes. The client asks again, and
// gets the answer of the old place. It must not run the transaction again.
func TestUnknownCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{grace: time.Nanosecond})
	w.at["v1"].on("insert", ok(t))
	w.at["v1"].on("commitTransaction", func(command) bsoncore.Document {
		w.hold("v1", 1)
		w.await(w.proxies[0]) // so that the grace is over when the answer is lost
		return nil
	})
	w.at["v1"].on("abortTransaction", func(command) bsoncore.Document {
		return doc(t, `{"ok":0.0,"code":256,"errmsg":"committed"}`)
	})
	w.call(0, insertFirst)
	got := w.call(0, commit)
	if !labelled(got, labelUnknown) || labelled(got, labelTransient) {
		t.Errorf("%s, want the label for a commit of unknown outcome", json(t, got))
	}
	<-w.controllers.acks // the switch waits for it no longer
	w.open("v2", 2)
	w.await(w.proxies[0])
	w.at["v1"].on("commitTransaction", ok(t))
	if got := w.call(0, commit); !succeeded(got) {
		t.Errorf("%s, want the answer of the server", json(t, got))
	}
}

// TestCommitElsewhere: a commit comes to a proxy that does not know the transaction. One that is in progress
// is not committed, and one that is committed is not taken for aborted.
func TestCommitElsewhere(t *testing.T) {
	t.Parallel()
	const unknownHere = `{"ok":0.0,"code":251,"errmsg":"no such transaction","errorLabels":["TransientTransactionError"]}`
	for name, tc := range map[string]struct {
		abort, commit        string // answers of v1, where the data is
		class                string
		succeeds, repeatable bool
	}{
		"in progress":   {abort: `{"ok":1.0}`, commit: unknownHere, repeatable: true},
		"committed":     {abort: `{"ok":0.0,"code":256,"errmsg":"committed"}`, commit: `{"ok":1.0}`, succeeds: true},
		"left behind":   {class: "validator", abort: `{"ok":0.0,"code":256,"errmsg":"committed"}`, commit: `{"ok":1.0}`},
		"not known":     {abort: `{"ok":0.0,"code":251,"errmsg":"no such transaction"}`, commit: unknownHere, repeatable: true},
		"not sure":      {abort: `{"ok":0.0,"code":251,"errmsg":"no such transaction"}`, commit: `{"ok":0.0,"code":251,"errmsg":"no such transaction","writeConcernError":{"code":64}}`},
		"not abortable": {abort: `{"ok":0.0,"code":13,"errmsg":"unauthorized"}`, commit: `{"ok":1.0}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{class: tc.class})
			for version, answers := range map[string][2]string{"v1": {tc.abort, tc.commit}, "v2": {`{"ok":0.0,"code":251,"errmsg":"no such transaction"}`, unknownHere}} {
				w.at[version].on("abortTransaction", func(command) bsoncore.Document { return doc(t, answers[0]) })
				w.at[version].on("commitTransaction", func(command) bsoncore.Document {
					if len(w.at[version].calls("abortTransaction")) == 0 {
						return success() // it was in progress, and is committed
					}
					return doc(t, answers[1])
				})
			}
			got := w.call(0, commit)
			if succeeded(got) != tc.succeeds || labelled(got, labelTransient) != tc.repeatable {
				t.Errorf("%s", json(t, got))
			}
		})
	}
}

// TestBulkWriteInTransaction: it is refused, whether it is the first command or a later one. It names its
// collections in another way than the commands that the proxy can serve there.
func TestBulkWriteInTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("insert", ok(t))
	const bulk = `{"bulkWrite":1,"ops":[{"insert":0,"document":{"_id":1}}],"nsInfo":[{"ns":"shop.orders"}],"txnNumber":{"$numberLong":"5"},"autocommit":false,"lsid":{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}},"$db":"admin"`
	wants(t, w.call(0, bulk+`,"startTransaction":true}`), codeNotSupported)
	w.call(0, insertFirst)
	wants(t, w.call(0, bulk+`}`), codeNotSupported)
	for version, s := range w.at {
		if n := len(s.calls("bulkWrite")); n != 0 {
			t.Errorf("%s got %d", version, n)
		}
	}
}

// TestLateCommit: a transaction with a delete commits when the data has moved already, and the fence lets it
// pass. The client gets no success.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{class: "validator"})
	w.at["v1"].on("delete", ok(t))
	w.at["v1"].on("commitTransaction", func(command) bsoncore.Document {
		w.hold("v1", 1)
		w.open("v2", 2)
		return success()
	})
	w.call(0, `{"delete":"orders","deletes":[{"q":{"_id":1},"limit":1}],"startTransaction":true,`+inTransaction+`}`)
	wants(t, w.call(0, commit), codeHistoryIncomplete)
}

// TestHangingStatement: a statement of a transaction does not return. The switch waits for it no longer than
// the grace.
func TestHangingStatement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{grace: time.Nanosecond})
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	w.at["v1"].on("insert", func(command) bsoncore.Document {
		w.hold("v1", 1)
		<-release
		return success()
	})
	if got := w.call(0, insertFirst); !labelled(got, labelTransient) {
		t.Errorf("%s, want an error after which a driver begins anew", json(t, got))
	}
	<-w.controllers.acks
}

// TestFencedStatement: a fence refuses a statement of a transaction. The transaction ends, and a driver runs
// it again. An error of the application's own stays.
func TestFencedStatement(t *testing.T) {
	t.Parallel()
	const second = `{"insert":"orders","documents":[{"_id":2}],` + inTransaction + `}`
	for name, tc := range map[string]struct {
		reply string
		holds bool
		want  bool
	}{
		"a fence":                {`{"ok":0.0,"code":166,"errmsg":"view"}`, true, true},
		"of one document":        {`{"n":0,"writeErrors":[` + refusedByFence + `],"ok":1.0}`, true, true},
		"without a switch":       {`{"ok":0.0,"code":166,"errmsg":"view"}`, false, false},
		"the application's rule": {`{"n":0,"writeErrors":[{"index":0,"code":121,"errmsg":"rule"}],"ok":1.0}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{grace: time.Hour})
			w.at["v1"].on("insert", ok(t))
			w.call(0, insertFirst)
			if tc.holds {
				w.hold("v1", 1)
				w.await(w.proxies[0])
			}
			w.at["v1"].on("insert", func(command) bsoncore.Document { return doc(t, tc.reply) })
			got := w.call(0, second)
			if labelled(got, labelTransient) != tc.want || len(w.at["v1"].calls("abortTransaction")) > 0 != tc.want {
				t.Error(json(t, got))
			}
		})
	}
}

// TestFenceBeforeItsNews: a fence refuses the first statement of a transaction before the proxy hears of the hold. It asks
// the controllers, and a driver runs the transaction again.
func TestFenceBeforeItsNews(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("insert", func(command) bsoncore.Document { return doc(t, `{"ok":0.0,"code":166,"errmsg":"view"}`) })
	w.controllers.tell(w.place("v1", 1, pb.Location_HOLD))
	if got := w.call(0, insertFirst); codeOf(got) != codeNoSuchTransaction || !labelled(got, labelTransient) {
		t.Errorf("%s, want an error after which a driver begins anew", json(t, got))
	}
	if n := len(w.at["v1"].calls("abortTransaction")); n != 1 {
		t.Errorf("%d aborts, want 1", n)
	}
}

// TestMixedTransaction: a transaction over a collection that moves can use others of the same cluster, also
// by a cursor.
func TestMixedTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	for _, verb := range []string{"insert", "find", "getMore"} {
		w.at["v1"].on(verb, func(command) bsoncore.Document {
			return doc(t, `{"n":1,"cursor":{"firstBatch":[],"id":{"$numberLong":"7"},"ns":"shop.logs"},"ok":1.0}`)
		})
	}
	for _, command := range []string{
		insertFirst, `{"insert":"logs","documents":[{"_id":1}],` + inTransaction + `}`, `{"find":"logs",` + inTransaction + `}`,
		`{"getMore":{"$numberLong":"7"},"collection":"logs",` + inTransaction + `}`, commit,
	} {
		if got := w.call(0, command); !succeeded(got) {
			t.Errorf("%s: %s", command, json(t, got))
		}
	}
}

// TestTransactionOfTwoClusters: a transaction cannot use a collection of another cluster, nor one that moves
// after one that does not, nor join them. It is aborted, so that no commit makes a part of it.
func TestTransactionOfTwoClusters(t *testing.T) {
	t.Parallel()
	const (
		insertLog = `{"insert":"logs","documents":[{"_id":1}],` + inTransaction + `}`
		beginLog  = `{"insert":"logs","documents":[{"_id":1}],"startTransaction":true,` + inTransaction + `}`
		join      = `{"aggregate":"orders","pipeline":[{"$lookup":{"from":"logs","as":"l"}}],"cursor":{},` + inTransaction + `}`
		second    = `{"insert":"orders","documents":[{"_id":2}],` + inTransaction + `}`
	)
	for name, tc := range map[string]struct {
		first, then string
		at          string // the server with the transaction
	}{
		"another cluster":      {insertFirst, insertLog, "v2"},
		"moves, and came last": {beginLog, second, "v1"},
		"a join":               {insertFirst, join, "v2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			w.open("v2", 2)
			w.await(w.proxies[0])
			if got := w.call(0, tc.first); !succeeded(got) {
				t.Fatal(json(t, got))
			}
			wants(t, w.call(0, tc.then), codeIllegalOperation)
			if n := len(w.at[tc.at].calls("abortTransaction")); n != 1 {
				t.Errorf("%d aborts, want 1", n)
			}
			if got := w.call(0, commit); !labelled(got, labelTransient) {
				t.Error(json(t, got))
			}
			for version, s := range w.at {
				if n := len(s.calls("insert")) + len(s.calls("aggregate")) + len(s.calls("commitTransaction")); n > 1 || n == 1 && version != tc.at {
					t.Errorf("%s got %d commands", version, n)
				}
			}
		})
	}
}

// TestLostStatement: the answer to a statement of a transaction is lost. It may have been executed or not, so
// no commit follows.
func TestLostStatement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("insert", func(command) bsoncore.Document { return nil })
	for _, command := range []string{insertFirst, commit} {
		if got := w.call(0, command); !labelled(got, labelTransient) {
			t.Errorf("%s: %s", command, json(t, got))
		}
	}
	if n := len(w.at["v1"].calls("commitTransaction")); n != 0 {
		t.Errorf("%d commits", n)
	}
}

// TestTimeOfAbort: the proxy has aborted a transaction. The reply to the client's abort has the time of the
// server, so that a causally consistent session goes on after it.
func TestTimeOfAbort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("insert", func(command) bsoncore.Document { return nil })
	w.at["v1"].on("abortTransaction", func(command) bsoncore.Document {
		return doc(t, `{"ok":0.0,"code":251,"errmsg":"none","operationTime":{"$timestamp":{"t":7,"i":1}}}`)
	})
	w.call(0, insertFirst)
	got := w.call(0, strings.Replace(commit, "commit", "abort", 1))
	if _, err := got.LookupErr("operationTime"); err != nil || !succeeded(got) {
		t.Error(json(t, got))
	}
	if n := len(w.at["v1"].calls("abortTransaction")); n != 1 {
		t.Errorf("%d aborts", n)
	}
}

// TestEndedTransaction: a server has ended a transaction, and the client tells another proxy, or nobody. No
// switch waits for it.
func TestEndedTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{grace: time.Hour})
	w.at["v1"].on("insert", func(command) bsoncore.Document {
		return doc(t, `{"ok":0.0,"code":112,"errmsg":"conflict","errorLabels":["TransientTransactionError"]}`)
	})
	if got := w.call(0, insertFirst); codeOf(got) != 112 {
		t.Error(json(t, got))
	}
	w.hold("v1", 1)
	<-w.controllers.acks
	if got := w.call(0, commit); !labelled(got, labelTransient) {
		t.Error(json(t, got))
	}
}

// TestTransactionMissesTheHold: the news of a hold and of the next place come together. A transaction at the former
// place is aborted all the same.
func TestTransactionMissesTheHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{grace: time.Nanosecond})
	w.at["v1"].on("insert", ok(t))
	w.call(0, insertFirst)
	began := time.Now()
	w.open("v2", 2)
	w.until("the transaction is aborted", func() bool { return len(w.at["v1"].calls("abortTransaction")) == 1 })
	if time.Since(began) > longestIdle-lookForIdle {
		t.Error("it was aborted because it was idle")
	}
	if got := w.call(0, commit); !labelled(got, labelTransient) {
		t.Error(json(t, got))
	}
}

// TestEndedSessions: a session ends with an open transaction. No switch waits for that.
func TestEndedSessions(t *testing.T) {
	t.Parallel()
	const id = `{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}}`
	for command, ends := range map[string]bool{
		`{"endSessions":[` + id + `],"$db":"admin"}`:     true,
		`{"killSessions":[` + id + `],"$db":"admin"}`:    true,
		`{"killSessions":[],"$db":"admin"}`:              true,
		`{"killAllSessions":[],"$db":"admin"}`:           true,
		`{"endSessions":[],"$db":"admin"}`:               false,
		`{"refreshSessions":[` + id + `],"$db":"admin"}`: false,
		`{"endSessions":[{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAg==","subType":"04"}}}],"$db":"admin"}`: false,
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{grace: time.Hour})
			w.at["v1"].on("insert", ok(t))
			w.call(0, insertFirst)
			w.call(0, command)
			if n := len(w.at["v1"].calls("abortTransaction")); n != map[bool]int{true: 1, false: 0}[ends] {
				t.Errorf("%d aborts", n)
			}
			if !ends {
				if got := w.call(0, commit); !succeeded(got) {
					t.Error(json(t, got))
				}
				return
			}
			w.hold("v1", 1)
			<-w.controllers.acks
		})
	}
}

// TestManyLiveTransactions: beyond the bound not each further transaction costs a look at all others.
func TestManyLiveTransactions(t *testing.T) {
	t.Parallel()
	var ts transactions
	// Each one here is live. A look finds its lock free, and then its state.
	looked := 0
	for i := range mostTransactions + 1000 {
		before := ts.most
		ts.begin(logical{id: fmt.Sprint(i)}, &transaction{number: 1, deployed: &deployed{}})
		if ts.most != before {
			looked++
		}
	}
	if looked != 1 {
		t.Errorf("%d looks at all transactions, want 1", looked)
	}
}
