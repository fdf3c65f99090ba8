package proxy

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// foundAt is the reply to a find with a time of the cluster.
func foundAt(t *testing.T, time string) func(command) bsoncore.Document {
	return func(command) bsoncore.Document {
		return doc(t, `{"cursor":{"firstBatch":[{"_id":1}],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1.0,"operationTime":`+time+`,"$clusterTime":{"clusterTime":`+time+`,"signature":{"keyId":{"$numberLong":"7"}}}}`)
	}
}

const (
	secondaries = `"$readPreference":{"mode":"secondaryPreferred"},` + session
	five        = `{"$timestamp":{"t":5,"i":1}}`
	six         = `{"$timestamp":{"t":6,"i":1}}`
)

// TestSecondariesAfterASwitch: a secondary that lags has the names of a new place later than the primary, and
// finds nothing there meanwhile. So a read at secondaries goes to the primary first, and then carries a time.
// The same is true after an aborted attempt, which gives the collection its name back.
func TestSecondariesAfterASwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	for name, at := range map[string]*server{"v1": w.at["v1"], "v2": w.at["v2"]} {
		if at.on("find", foundAt(t, five)); name == "v2" {
			at.on("find", foundAt(t, six))
		}
	}
	read := func(version string, waits bool) {
		t.Helper()
		if got := w.call(0, `{"find":"orders","readConcern":{"level":"available"},`+secondaries+`}`); !succeeded(got) {
			t.Fatal(json(t, got))
		}
		calls := w.at[version].calls("find")
		body := calls[len(calls)-1].msg.Body
		_, preference := body.LookupErr("$readPreference")
		after, err := body.LookupErr("readConcern", "afterClusterTime")
		_, gossip := body.LookupErr("$clusterTime", "signature", "keyId")
		_, level := body.LookupErr("readConcern", "level")
		if (preference == nil) != waits || (err == nil) != waits || (gossip == nil) != waits || (level == nil) == waits {
			t.Errorf("at %s: %s, want a time and secondaries: %t", version, json(t, body), waits)
		}
		if want := map[string]uint32{"v1": 5, "v2": 6}[version]; err == nil && waits {
			if at, _, ok := after.TimestampOK(); !ok || at != want {
				t.Errorf("at %s: after %d, want %d", version, at, want)
			}
		}
	}
	move := func(version string, epoch int64) {
		w.hold("v1", 1)
		w.await(w.proxies[0])
		w.open(version, epoch)
		w.await(w.proxies[0])
	}
	read("v1", false)
	read("v1", true)
	move("v1", 1)
	read("v1", false)
	read("v1", true)
	move("v2", 2)
	read("v2", false)
	read("v2", true)
	read("v2", true)
}

// TestTimesOfReads: a read comes after both times, that of its session and that of the place. A server
// learns of the later one.
func TestTimesOfReads(t *testing.T) {
	t.Parallel()
	const (
		place = `{"clusterTime":{"$timestamp":{"t":5,"i":1}},"signature":{"keyId":7}}`
		older = `{"clusterTime":{"$timestamp":{"t":4,"i":9}}}`
		newer = `{"clusterTime":{"$timestamp":{"t":5,"i":2}}}`
	)
	for body, want := range map[string]string{
		`{"find":"a"}`: `{"find":"a","$clusterTime":` + place + `,"readConcern":{"afterClusterTime":{"$timestamp":{"t":5,"i":1}}}}`,
		`{"find":"a","$clusterTime":` + newer + `,"readConcern":{"level":"majority","afterClusterTime":{"$timestamp":{"t":4,"i":9}}}}`: `{"find":"a","$clusterTime":` + newer + `,"readConcern":{"level":"majority","afterClusterTime":{"$timestamp":{"t":5,"i":1}}}}`,
		`{"find":"a","$clusterTime":` + older + `,"readConcern":{}}`:                                                                   `{"find":"a","$clusterTime":` + place + `,"readConcern":{"afterClusterTime":{"$timestamp":{"t":5,"i":1}}}}`,
		`{"find":"a","readConcern":{"afterClusterTime":{"$timestamp":{"t":5,"i":2}}}}`:                                                 `{"find":"a","readConcern":{"afterClusterTime":{"$timestamp":{"t":5,"i":2}}}}`,
		`{"find":"a","readConcern":{"level":"available"}}`:                                                                             `{"find":"a","$clusterTime":` + place + `,"readConcern":{"afterClusterTime":{"$timestamp":{"t":5,"i":1}}}}`,
		`{"find":"a","readConcern":{"level":"linearizable"}}`:                                                                          `{"find":"a","readConcern":{"level":"linearizable"}}`,
		`{"find":"a","readConcern":1}`:                                                                                                 `{"find":"a","readConcern":1}`,
	} {
		got, err := after(doc(t, body), doc(t, place))
		if err != nil || json(t, got) != json(t, doc(t, want)) {
			t.Errorf("%s became %s, %v, want %s", body, json(t, got), err, want)
		}
	}
}
