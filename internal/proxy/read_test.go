package proxy

import (
	"maps"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/proxy/message"
	"dbcontroller.dev/internal/proxy/names"
)

// firstBatch is a reply with one document.
func firstBatch(t *testing.T, document string) bsoncore.Document {
	t.Helper()
	return doc(t, `{"cursor":{"firstBatch":[`+document+`],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1.0}`)
}

// TestReadBehindASwitch: another proxy has acknowledged a write at the new place. A read through a proxy that
// still holds writes finds it, although no controller has sent the news yet: the proxy asks after the read.
func TestReadBehindASwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.hold("v1", 1)
	w.await(w.proxies[0])
	w.at["v1"].on("find", func(command) bsoncore.Document {
		w.controllers.tell(w.place("v2", 2, pb.Location_OPEN)) // and the other proxy makes its held write
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

// TestReadWhileRenamed: a fence of class view renames the collection, and a read at that moment finds nothing. The
// proxy reads again while a switch holds writes.
func TestReadWhileRenamed(t *testing.T) {
	t.Parallel()
	const none = `{"cursor":{"firstBatch":[],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1.0}`
	const one = `{"cursor":{"firstBatch":[{"_id":1}],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1.0}`
	for name, tc := range map[string]struct {
		verb, rest, nothing, something string
		class                          string
		free                           bool // no switch holds writes
		want                           int  // reads
	}{
		"find":                {verb: "find", nothing: none, something: one, want: 2},
		"find, found":         {verb: "find", nothing: one, something: one, want: 1},
		"find, not held":      {verb: "find", nothing: none, something: one, free: true, want: 1},
		"find, no rename":     {verb: "find", nothing: none, something: one, class: "validator", want: 1},
		"find, unknown class": {verb: "find", nothing: none, something: one, class: "none", want: 2},
		"count":               {verb: "count", nothing: `{"n":0,"ok":1.0}`, something: `{"n":1,"ok":1.0}`, want: 2},
		"distinct":            {verb: "distinct", rest: `"key":"a",`, nothing: `{"values":[],"ok":1.0}`, something: `{"values":[1],"ok":1.0}`, want: 2},
		// The second one is under way when the switch ends, and says as little as the first one.
		"aggregate": {verb: "aggregate", rest: `"pipeline":[{"$facet":{}}],"cursor":{},`, nothing: one, something: one, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{class: tc.class})
			if !tc.free {
				w.hold("v1", 1)
				w.await(w.proxies[0])
			}
			w.at["v1"].on(tc.verb, func(command) bsoncore.Document {
				switch len(w.at["v1"].calls(tc.verb)) {
				case 1:
					return doc(t, tc.nothing)
				case 2:
					w.open("v1", 1)
					w.await(w.proxies[0])
				}
				return doc(t, tc.something)
			})
			got := w.call(0, `{"`+tc.verb+`":"orders",`+tc.rest+session+`}`)
			if n := len(w.at["v1"].calls(tc.verb)); !succeeded(got) || n != tc.want {
				t.Errorf("%d reads, want %d; %s", n, tc.want, json(t, got))
			}
		})
	}
}

// TestReadOverAnAttempt: an attempt of a switch begins after a read and is aborted before its end. The read may have
// met the rename, so the proxy reads again.
func TestReadOverAnAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("find", func(command) bsoncore.Document {
		if len(w.at["v1"].calls("find")) > 1 {
			return firstBatch(t, `{"_id":1}`)
		}
		w.hold("v1", 1)
		w.await(w.proxies[0])
		w.open("v1", 1)
		w.await(w.proxies[0])
		return firstBatch(t, "")
	})
	if docs, err := batchOf(w.call(0, `{"find":"orders",`+session+`}`)); err != nil || len(docs) != 1 {
		t.Error(docs, err)
	}
}

// TestCursorOfARepeatedRead: a read is made again at the next place. The cursor of its first try is ended at its
// server.
func TestCursorOfARepeatedRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.hold("v1", 1)
	w.await(w.proxies[0])
	const opened = `{"cursor":{"firstBatch":[{"_id":1}],"id":{"$numberLong":"7"},"ns":"shop.orders"},"ok":1.0}`
	w.at["v1"].on("find", func(command) bsoncore.Document {
		w.controllers.tell(w.place("v2", 2, pb.Location_OPEN))
		return doc(t, opened)
	})
	w.at["v2"].on("find", func(command) bsoncore.Document { return doc(t, strings.Replace(opened, "7", "8", 1)) })
	if got := w.call(0, `{"find":"orders",`+session+`}`); cursorOf(got) != 8 {
		t.Error(json(t, got))
	}
	killed := w.at["v1"].calls("killCursors")
	if len(killed) != 1 || len(w.at["v2"].calls("killCursors")) != 0 {
		t.Fatalf("%d ended, want that of the first place", len(killed))
	}
	if ids, err := idsOf(killed[0].msg.Body); err != nil || len(ids) != 1 || ids[0] != 7 {
		t.Error(ids, err)
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
		`{"explain":{"aggregate":"logs","pipeline":[{"$lookup":{"from":"orders","as":"o"}}],"cursor":{}},` + session + `}`,
		`{"explain":{"mapReduce":"orders"},` + session + `}`,
		`{"dropDatabase":1,` + session + `}`,
		`{"renameCollection":"shop.orders","to":"shop.logs","$db":"admin"}`,
		`{"renameCollection":"shop.logs","to":"shop.orders","dropTarget":true,"$db":"admin"}`,
		`{"renameCollection":"shop.logs","to":1,"$db":"admin"}`,
	} {
		wants(t, w.call(0, command), codeNotSupported)
	}
	for version, s := range w.at {
		s.mu.Lock()
		for _, c := range s.got {
			if c.verb != "listCollections" { // the proxy's own look for views
				t.Errorf("%s got %s", version, c.verb)
			}
		}
		s.mu.Unlock()
	}
}

// TestApart: what has nothing to do with collections that move is served.
func TestApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	for verb, command := range map[string]string{
		"dropDatabase":     `{"dropDatabase":1,"$db":"other"}`,
		"renameCollection": `{"renameCollection":"shop.logs","to":"other.logs","$db":"admin"}`,
	} {
		if got := w.call(0, command); !succeeded(got) || len(w.at["v1"].calls(verb)) != 1 {
			t.Errorf("%s: %s", verb, json(t, got))
		}
	}
}

// TestListsOutside: a server takes a pipeline from outside of the body, too. There it could write to a
// collection that moves, at home.
func TestListsOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	conn := dial(t, w.addresses[0])
	defer conn.Close() //nolint:errcheck // nothing is left to read
	body := doc(t, `{"aggregate":"logs","cursor":{},`+session+`}`)
	wants(t, send(t, conn, message.Message{ID: 1, Body: body, Sequences: []message.Sequence{{Name: "pipeline", Docs: doc(t, `{"$merge":"orders"}`)}}}), codeNotSupported)
	body = doc(t, `{"insert":"logs",`+session+`}`)
	if got := send(t, conn, message.Message{ID: 2, Body: body, Sequences: []message.Sequence{{Name: "documents", Docs: doc(t, `{"_id":1}`)}}}); !succeeded(got) {
		t.Error(json(t, got))
	}
	if n := len(w.at["v1"].calls("aggregate")); n != 0 {
		t.Errorf("%d aggregations reach the server", n)
	}
}

// TestViews: a view at home over a collection that moves would answer with the data of the former place.
func TestViews(t *testing.T) {
	t.Parallel()
	o := worldOptions{}
	w := makeWorld(t, o)
	w.at["v1"].on("listCollections", func(command) bsoncore.Document {
		return doc(t, `{"cursor":{"id":{"$numberLong":"0"},"ns":"shop.$cmd.listCollections","firstBatch":[
			{"name":"ofView","type":"view","options":{"viewOn":"direct","pipeline":[]}},
			{"name":"direct","type":"view","options":{"viewOn":"orders","pipeline":[]}},
			{"name":"joined","type":"view","options":{"viewOn":"logs","pipeline":[{"$lookup":{"from":"orders","as":"o"}}]}},
			{"name":"others","type":"view","options":{"viewOn":"logs","pipeline":[]}},
			{"name":"users","type":"view","options":{"viewOn":"users.n1","pipeline":[]}}
		]},"ok":1.0}`)
	})
	w.start(o)
	for _, name := range []string{"ofView", "direct", "joined"} {
		wants(t, w.call(0, `{"find":"`+name+`",`+session+`}`), codeNotSupported)
		wants(t, w.call(0, `{"aggregate":"logs","pipeline":[{"$unionWith":"`+name+`"}],"cursor":{},`+session+`}`), codeNotSupported)
	}
	wants(t, w.call(0, `{"collMod":"others","viewOn":"orders",`+session+`}`), codeNotSupported)
	for _, name := range []string{"others", "logs", "users"} {
		if got := w.call(0, `{"find":"`+name+`",`+session+`}`); !succeeded(got) {
			t.Errorf("%s: %s", name, json(t, got))
		}
	}
}

// TestFilteredLists: a list of collections is filtered by the application's names, or refused.
func TestFilteredLists(t *testing.T) {
	t.Parallel()
	m := names.Map{Database: "shop", Place: "shop_v2", To: map[string]string{"orders": "orders2"}}
	for filter, want := range map[string]string{
		`{"name":"orders","type":"collection"}`:                         `{"name":"orders2","type":"collection"}`,
		`{"name":"orders2"}`:                                            `{"name":""}`,
		`{"name":{"$in":["orders","logs"]}}`:                            `{"name":{"$in":["orders2",""]}}`,
		`{"type":"view"}`:                                               `{"type":"view"}`,
		`{"name":{"$regularExpression":{"pattern":"^o","options":""}}}`: "",
		`{"name":{"$in":["orders"],"$ne":"orders"}}`:                    "",
		`{"name":{"$eq":"orders"}}`:                                     `{"name":"orders2"}`,
		`{"name":{"$eq":"logs"}}`:                                       `{"name":""}`,
		`{"name":{"$eq":"orders","$ne":"orders"}}`:                      "",
		`{"$or":[{"name":"orders"}]}`:                                   "",
	} {
		got, err := inFilter(m, doc(t, filter))
		if want == "" {
			if err == nil {
				t.Errorf("%s became %s", filter, json(t, got))
			}
			continue
		}
		if err != nil || json(t, got) != want {
			t.Errorf("%s became %s, %v, want %s", filter, json(t, got), err, want)
		}
	}
}

// TestLeftCursors: a cursor at the former place ends with an error, and a change stream does not end as if
// that were the application's wish.
func TestLeftCursors(t *testing.T) {
	t.Parallel()
	const more = `{"getMore":{"$numberLong":"7"},"collection":"orders",` + session + `}`
	open := func(w *world) {
		w.at["v1"].on("aggregate", func(command) bsoncore.Document {
			return doc(t, `{"cursor":{"firstBatch":[],"id":{"$numberLong":"7"},"ns":"shop.orders"},"ok":1.0}`)
		})
	}
	const watch = `{"aggregate":"orders","pipeline":[{"$changeStream":{}}],"cursor":{},` + session + `}`
	const query = `{"aggregate":"orders","pipeline":[],"cursor":{},` + session + `}`
	const invalidated = `{"cursor":{"nextBatch":[{"_id":{"_data":"x"},"operationType":"invalidate"}],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1.0}`
	for name, tc := range map[string]struct {
		first, reply string
		then         func(w *world)
		want         int32
	}{
		"a stream during the switch": {watch, invalidated, func(w *world) { w.hold("v1", 1) }, codeStreamHistoryLost},
		"a stream after the switch":  {watch, invalidated, func(w *world) { w.open("v2", 2) }, codeStreamHistoryLost},
		"a stream without a switch":  {watch, invalidated, func(*world) {}, 0},
		"a stream after an attempt":  {watch, invalidated, func(w *world) { w.hold("v1", 1); w.await(w.proxies[0]); w.open("v1", 1) }, codeStreamHistoryLost},
		"an error after an attempt":  {watch, `{"ok":0.0,"code":43,"errmsg":"gone"}`, func(w *world) { w.open("v1", 1) }, codeCursorNotFound},
		"a query after the switch":   {query, invalidated, func(w *world) { w.open("v2", 2) }, codeCursorNotFound},
		"a query that the fence met": {query, `{"ok":0.0,"code":175,"errmsg":"renamed"}`, func(w *world) { w.hold("v1", 1) }, codeCursorNotFound},
		"a query during the switch":  {query, invalidated, func(w *world) { w.hold("v1", 1) }, 0},
		"a query whose index goes":   {query, `{"ok":0.0,"code":175,"errmsg":"index dropped"}`, func(w *world) { w.open("v1", 1) }, codePlanKilled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			open(w)
			w.call(0, tc.first)
			w.at["v1"].on("getMore", func(command) bsoncore.Document { return doc(t, tc.reply) })
			tc.then(w)
			w.await(w.proxies[0])
			if got := w.call(0, more); codeOf(got) != tc.want || succeeded(got) != (tc.want == 0) {
				t.Errorf("%s, want code %d", json(t, got), tc.want)
			}
		})
	}
}

// TestElections: the errors of a member that is no primary do not make a driver drop the proxy.
func TestElections(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]string{
		`{"ok":0.0,"errmsg":"not primary","code":10107,"codeName":"NotWritablePrimary","errorLabels":["RetryableWriteError"],"topologyVersion":{"processId":1}}`: `{"ok":0.0,"errmsg":"not primary","errorLabels":["RetryableWriteError"],"code":6,"codeName":"HostUnreachable"}`,
		`{"n":1,"ok":1.0,"writeConcernError":{"code":91,"errmsg":"shutdown"},"topologyVersion":{}}`:                                                              `{"n":1,"ok":1.0,"writeConcernError":{"errmsg":"shutdown","code":6,"codeName":"HostUnreachable"}}`,
		`{"n":1,"ok":1.0,"writeConcernError":{"code":64,"errmsg":"timeout"},"topologyVersion":{}}`:                                                               `{"n":1,"ok":1.0,"writeConcernError":{"code":64,"errmsg":"timeout"}}`,
		`{"ok":0.0,"code":11000}`: `{"ok":0.0,"code":11000}`,
	} {
		got, err := unelected(doc(t, reply))
		if err != nil || json(t, got) != json(t, doc(t, want)) {
			t.Errorf("%s, %v, want %s", json(t, got), err, want)
		}
	}
}

// TestTimeLimit: a write waits for the end of a switch no longer than its own limit.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.hold("v1", 1)
	w.await(w.proxies[0])
	wants(t, w.call(0, `{"insert":"orders","documents":[{"_id":1}],"maxTimeMS":1,`+session+`}`), codeTimeLimit)
}

// TestReadsWithoutControllers: an error that a move can explain reaches the client although nobody tells
// where the data is.
func TestReadsWithoutControllers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.at["v1"].on("listIndexes", func(command) bsoncore.Document { return doc(t, `{"ok":0.0,"code":26,"errmsg":"no collection"}`) })
	w.controllers.away.Store(true)
	wants(t, w.call(0, `{"listIndexes":"orders",`+session+`}`), codeNamespaceNotFound)
}

// TestListOfTwoDeployments: collections of one database move with two deployments. Each comes from its own
// place, and none from the place that it has left. The collections of dbcontroller itself are in no list.
func TestListOfTwoDeployments(t *testing.T) {
	t.Parallel()
	o := worldOptions{}
	w := makeWorld(t, o)
	bills := startControllers(t, &pb.Location{
		State: pb.Location_OPEN, Version: "v2", Database: "shop", Revision: 1, Epoch: 2, Cluster: "v2",
		Kinds: []*pb.KindLocation{{Kind: "bills", Database: "shop", Collection: "bills", Fixed: true, Fence: fenceView}},
	})
	w.others = []Deployment{{
		Controllers: []string{bills.server.URL}, Application: "proxy", Database: "shop", Collections: map[string]string{"bills": "bills"}, URIs: w.uris(),
	}}
	for version, list := range map[string]string{
		"v1": `{"name":"logs","type":"collection"},{"name":"orders","type":"collection"},{"name":"bills","type":"view"},{"name":"own.n1","type":"collection"},
			{"name":"system.views","type":"collection"},{"name":"dbc_owner","type":"collection"},{"name":"dbc_guards.orders","type":"collection"},{"name":"orders.n1","type":"collection"},{"name":"bills.n12","type":"collection"}`,
		"v2": `{"name":"bills","type":"collection"},{"name":"orders","type":"view"}`,
	} {
		w.at[version].on("listCollections", func(c command) bsoncore.Document {
			if _, err := c.msg.Body.LookupErr("filter", "type"); err == nil {
				return doc(t, `{"cursor":{"id":{"$numberLong":"0"},"ns":"shop.$cmd.listCollections","firstBatch":[]},"ok":1.0}`) // the look for views
			}
			return doc(t, `{"cursor":{"id":{"$numberLong":"0"},"ns":"shop.$cmd.listCollections","firstBatch":[`+list+`]},"ok":1.0}`)
		})
	}
	w.start(o)
	docs, err := batchOf(w.call(0, `{"listCollections":1,`+session+`}`))
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, d := range docs {
		name, _ := text(d, "name")
		types[name], _ = text(d, "type")
	}
	if want := map[string]string{"logs": "collection", "own.n1": "collection", "orders": "collection", "bills": "collection"}; len(docs) != len(want) || !maps.Equal(types, want) {
		t.Errorf("%v, want %v", types, want)
	}
}

// TestLowestVersion: drivers send only what the servers of all versions know.
func TestLowestVersion(t *testing.T) {
	t.Parallel()
	o := worldOptions{}
	w := makeWorld(t, o)
	w.at["v2"].wire.Store(21)
	w.start(o)
	hello := w.call(0, `{"hello":1,"$db":"admin"}`)
	if text, _ := text(hello, "msg"); number(hello, "maxWireVersion") != 21 || text != "isdbgrid" {
		t.Error(json(t, hello))
	}
}

// TestResumableStream: the connection to a server breaks. A driver goes on with a change stream by its label,
// whether its collection moves or not, and with no other cursor.
func TestResumableStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	reply := func(command) bsoncore.Document {
		return doc(t, `{"cursor":{"id":{"$numberLong":"7"},"ns":"shop.orders","firstBatch":[]},"ok":1.0}`)
	}
	w.at["v1"].on("aggregate", reply)
	w.at["v1"].on("find", reply)
	w.at["v1"].on("getMore", func(command) bsoncore.Document { return nil })
	for _, collection := range []string{"orders", "logs"} {
		for command, resumable := range map[string]bool{
			`{"aggregate":"` + collection + `","pipeline":[{"$changeStream":{}}],"cursor":{},` + session + `}`: true,
			`{"aggregate":"` + collection + `","pipeline":[],"cursor":{},` + session + `}`:                     false,
			`{"find":"` + collection + `",` + session + `}`:                                                    false,
		} {
			w.call(0, command)
			got := w.call(0, `{"getMore":{"$numberLong":"7"},"collection":"`+collection+`",`+session+`}`)
			if wants(t, got, codeHostUnreachable); labelled(got, labelResumable) != resumable {
				t.Errorf("%s: %s", command, json(t, got))
			}
		}
	}
}
