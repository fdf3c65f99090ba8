package proxy

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// firstBatch is a reply with one document.
func firstBatch(t *testing.T, document string) bsoncore.Document {
	t.Helper()
	return doc(t, `{"cursor":{"firstBatch":[`+document+`],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1.0}`)
}

// TestReadBehindASwitch: another proxy has acknowledged a write at the new place. A read through a proxy that
// still holds writes finds it.
func TestReadBehindASwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.hold("v1", 1)
	w.await(w.proxies[0])
	w.at["v1"].on("find", func(command) bsoncore.Document {
		w.open("v2", 2) // and the other proxy makes its held write
		return firstBatch(t, `{"_id":"old"}`)
	})
	w.at["v2"].on("find", func(command) bsoncore.Document { return firstBatch(t, `{"_id":"new"}`) })
	docs, err := batchOf(w.call(0, `{"find":"orders",`+session+`}`))
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	if id, _ := text(docs[0], "_id"); id != "new" {
		t.Errorf("read the %s document", id)
	}
}

// TestForeignTimes: with several clusters a command keeps no time, which may be of another one. What must
// come after a time goes to the primary.
func TestForeignTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("find", func(command) bsoncore.Document { return firstBatch(t, `{"_id":1}`) })
	got := w.call(0, `{"find":"orders","readConcern":{"level":"majority","afterClusterTime":{"$timestamp":{"t":9,"i":9}}},"$clusterTime":{"clusterTime":{"$timestamp":{"t":9,"i":9}}},"$readPreference":{"mode":"secondary"},`+session+`}`)
	if !succeeded(got) {
		t.Fatal(json(t, got))
	}
	body := w.at["v1"].calls("find")[0].msg.Body
	for _, key := range [][]string{{"$clusterTime"}, {"$readPreference"}, {"readConcern", "afterClusterTime"}} {
		if _, err := body.LookupErr(key...); err == nil {
			t.Errorf("%v reaches the server: %s", key, json(t, body))
		}
	}
	if _, err := body.LookupErr("readConcern", "level"); err != nil {
		t.Errorf("the level is lost: %s", json(t, body))
	}
}

// TestRefusedCommands: by each of their names.
func TestRefusedCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	for _, command := range []string{
		`{"mapReduce":"logs","out":{"merge":"orders"},` + session + `}`,
		`{"mapreduce":"logs","out":{"merge":"orders"},` + session + `}`,
		`{"dataSize":"shop.orders",` + session + `}`,
		`{"shardCollection":"shop.orders","key":{"_id":1},"$db":"admin"}`,
		`{"aggregate":"orders","pipeline":[],"cursor":{},"readConcern":{"level":"snapshot"},` + session + `}`,
	} {
		wants(t, w.call(0, command), codeNotSupported)
	}
	for version, s := range w.at {
		s.mu.Lock()
		if len(s.got) > 0 {
			t.Errorf("%s got %s", version, s.got[0].verb)
		}
		s.mu.Unlock()
	}
}
