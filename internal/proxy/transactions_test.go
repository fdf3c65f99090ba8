package proxy

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
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
		abort, commit        string // answers of v2
		succeeds, repeatable bool
	}{
		"in progress":   {abort: `{"ok":1.0}`, commit: unknownHere, repeatable: true},
		"committed":     {abort: `{"ok":0.0,"code":256,"errmsg":"committed"}`, commit: `{"ok":1.0}`, succeeds: true},
		"not known":     {abort: `{"ok":0.0,"code":251,"errmsg":"no such transaction"}`, commit: unknownHere, repeatable: true},
		"not sure":      {abort: `{"ok":0.0,"code":251,"errmsg":"no such transaction"}`, commit: `{"ok":0.0,"code":251,"errmsg":"no such transaction","writeConcernError":{"code":64}}`},
		"not abortable": {abort: `{"ok":0.0,"code":13,"errmsg":"unauthorized"}`, commit: `{"ok":1.0}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			for version, answers := range map[string][2]string{"v1": {`{"ok":0.0,"code":251,"errmsg":"no such transaction"}`, unknownHere}, "v2": {tc.abort, tc.commit}} {
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
