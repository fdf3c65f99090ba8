package proxy

import (
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// increment is a retryable write with a number.
func increment(number int) string {
	return fmt.Sprintf(`{"update":"orders","updates":[{"q":{"_id":1},"u":{"$inc":{"n":1}}}],"txnNumber":{"$numberLong":"%d"},`+session+`}`, number)
}

// remember makes a server tell of the last retryable update that it made, as a replica set does.
func (s *server) remember() {
	made := func() (last int64) {
		for _, c := range s.calls("update") {
			last = max(last, c.number)
		}
		return last
	}
	s.on("update", func(command) bsoncore.Document { return doc(s.t, `{"n":1,"nModified":1,"ok":1.0}`) })
	s.on("find", func(c command) bsoncore.Document {
		last := made()
		var entry bson.D
		switch at := (bson.Timestamp{T: 1, I: uint32(last)}); c.collection {
		case "transactions":
			entry = bson.D{{Key: "txnNum", Value: last}, {Key: "lastWriteOpTime", Value: bson.D{{Key: "ts", Value: at}}}}
		case "oplog.rs":
			entry = bson.D{{Key: "op", Value: "u"}, {Key: "stmtId", Value: 0}, {Key: "txnNumber", Value: last}, {Key: "ts", Value: at}}
		}
		batch := bson.A{entry}
		if last == 0 {
			batch = bson.A{}
		}
		raw, err := bson.Marshal(bson.D{{Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: c.database + "." + c.collection}, {Key: "firstBatch", Value: batch}}}, {Key: "ok", Value: 1.0}})
		if err != nil {
			s.t.Error(err)
		}
		return raw
	})
}

// TestThereAndBack: a proxy asked about a session when the data was in the first cluster. The session then
// writes in the second one through another proxy. When the data is back, its write is sent again, and made
// only once.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{proxies: 2, epoch: 3})
	w.at["v1"].remember()
	w.at["v2"].remember()
	w.call(1, increment(5))
	w.open("v2", 4)
	w.await(w.proxies[0])
	w.await(w.proxies[1])
	w.call(0, increment(6))
	w.open("v1", 5)
	w.await(w.proxies[1])
	if got := w.call(1, increment(6)); number(got, "n") != 1 {
		t.Error(json(t, got))
	}
	if first, second := len(w.at["v1"].calls("update")), len(w.at["v2"].calls("update")); first != 1 || second != 1 {
		t.Errorf("%d updates in the first cluster, %d in the second one, want one in each", first, second)
	}
}

// TestFirstEpoch: before the first switch no other cluster is asked, which may be down.
func TestFirstEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].remember()
	w.at["v2"].on("find", func(command) bsoncore.Document { return nil })
	if got := w.call(0, increment(5)); number(got, "n") != 1 {
		t.Error(json(t, got))
	}
}

// TestAsksForSettledWrites: the question about former writes is linearizable and goes to the primary. A
// secondary or a replaced primary may lack the last write, which would then be made twice.
func TestAsksForSettledWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{epoch: 2})
	w.at["v1"].remember()
	w.at["v2"].remember()
	w.call(0, increment(5))
	asked := w.at["v2"].calls("find")
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	level, err := asked[0].msg.Body.LookupErr("readConcern", "level")
	if text, _ := level.StringValueOK(); err != nil || text != "linearizable" {
		t.Errorf("asked by %s", json(t, asked[0].msg.Body))
	}
	if mode, err := asked[0].msg.Body.LookupErr("$readPreference", "mode"); err == nil && mode.StringValue() != "primary" {
		t.Errorf("asked by %s", json(t, asked[0].msg.Body))
	}
}

// TestRetriedDelete: whether a delete that the former cluster has made counts is not known, because its
// fence lets deletes pass.
func TestRetriedDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{epoch: 2, class: "validator"})
	w.at["v1"].remember()
	w.at["v2"].remember()
	w.at["v1"].on("delete", ok(t))
	w.call(0, increment(5)) // knows the place
	w.open("v2", 3)
	w.await(w.proxies[0])
	wants(t, w.call(0, `{"delete":"orders","deletes":[{"q":{"_id":1},"limit":1}],"txnNumber":{"$numberLong":"5"},`+session+`}`), codeHistoryIncomplete)
	if n := len(w.at["v2"].calls("delete")); n != 0 {
		t.Errorf("made %d times", n)
	}
}

// TestShardedAndAnother: versions in several clusters are refused if one is sharded. Its routers do not show
// which retryable writes it has made.
func TestShardedAndAnother(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		o := worldOptions{routers: []string{version}}
		p, err := New(t.Context(), makeWorld(t, o).config(o))
		if !errors.Is(err, errSharded) {
			t.Errorf("%s is sharded: %v", version, err)
		}
		if err == nil {
			_ = p.Close(t.Context())
		}
	}
}

// TestRetryableWriteInShards: the versions of a document can be on different shards, and each knows only its
// own retryable writes. A write that is sent again after a switch would be made twice. So retryable writes are
// refused before any switch, and others are served.
func TestRetryableWriteInShards(t *testing.T) {
	t.Parallel()
	o := worldOptions{routers: []string{"v1"}}
	w := makeWorld(t, o)
	w.at["v2"] = w.at["v1"] // one cluster
	w.at["v1"].on("update", ok(t))
	w.start(o)
	wants(t, w.call(0, increment(5)), codeIllegalOperation)
	wants(t, w.call(0, `{"bulkWrite":1,"ops":[{"insert":0,"document":{"_id":1}}],"nsInfo":[{"ns":"shop.orders"}],"txnNumber":{"$numberLong":"6"},"lsid":{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}},"$db":"admin"}`), codeIllegalOperation)
	if n := len(w.at["v1"].calls("update")) + len(w.at["v1"].calls("bulkWrite")); n != 0 {
		t.Errorf("%d reach a router", n)
	}
	if got := w.call(0, `{"update":"orders","updates":[{"q":{"_id":1},"u":{"$inc":{"n":1}}}],`+session+`}`); !succeeded(got) {
		t.Error(json(t, got))
	}
}

// TestRetriedDeleteInOneCluster: both versions are in one cluster, which answers for a delete that it made
// before: maybe at the former place and behind a fence that let it pass.
func TestRetriedDeleteInOneCluster(t *testing.T) {
	t.Parallel()
	for epoch, want := range map[int64]int32{1: 0, 2: codeHistoryIncomplete} {
		w := newWorld(t, worldOptions{epoch: epoch, class: "validator"})
		w.at["v2"].remember()
		w.at["v1"].on("delete", func(command) bsoncore.Document { return doc(t, `{"n":1,"retriedStmtIds":[0],"ok":1.0}`) })
		wants(t, w.call(0, `{"delete":"orders","deletes":[{"q":{"_id":1},"limit":1}],"txnNumber":{"$numberLong":"5"},`+session+`}`), want)
	}
}
