package proxy

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/proxy/message"
)

const refusedByFence = `{"index":0,"code":121,"errmsg":"Document failed validation","errInfo":` + fenceInfo + `}`

// wants checks the code of a reply, and that a driver does not repeat the command.
func wants(t *testing.T, reply bsoncore.Document, code int32) {
	t.Helper()
	if codeOf(reply) != code {
		t.Errorf("%s, want code %d", json(t, reply), code)
	}
	for _, label := range []string{labelRetryable, labelTransient, labelUnknown} {
		if labelled(reply, label) {
			t.Errorf("%s has a label", json(t, reply))
		}
	}
}

// TestTornWrites: a fence stops a write of many documents in the middle. It is not made again at the new
// place, and the client learns that its outcome is not known.
func TestTornWrites(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ command, reply string }{
		"update many":      {`{"update":"orders","updates":[{"q":{},"u":{"$inc":{"n":1}},"multi":true}],` + session + `}`, `{"n":0,"nModified":0,"writeErrors":[` + refusedByFence + `],"ok":1.0}`},
		"by a write block": {`{"update":"orders","updates":[{"q":{},"u":{"$inc":{"n":1}},"multi":true}],` + session + `}`, `{"n":0,"nModified":0,"writeErrors":[{"index":0,"code":371,"errmsg":"blocked"}],"ok":1.0}`},
		"as a whole":       {`{"update":"orders","updates":[{"q":{},"u":{"$inc":{"n":1}},"multi":true}],` + session + `}`, `{"ok":0.0,"code":371,"errmsg":"blocked"}`},
		"delete many":      {`{"delete":"orders","deletes":[{"q":{},"limit":0}],` + session + `}`, `{"n":0,"writeErrors":[{"index":0,"code":371,"errmsg":"blocked"}],"ok":1.0}`},
		"merge":            {`{"aggregate":"users","pipeline":[{"$merge":"orders"}],"cursor":{},` + session + `}`, `{"ok":0.0,"code":166,"errmsg":"a view"}`},
		"client bulk write": {
			`{"bulkWrite":1,"ops":[{"insert":0,"document":{"_id":1}},{"insert":0,"document":{"_id":2}}],"nsInfo":[{"ns":"shop.orders"}],"lsid":{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}},"$db":"admin"}`,
			`{"cursor":{"id":{"$numberLong":"0"},"firstBatch":[{"ok":0.0,"idx":1,"code":166,"errmsg":"a view"}],"ns":"admin.$cmd.bulkWrite"},"nErrors":1,"nInserted":1,"ok":1.0}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			c, err := parse(message.Message{Body: doc(t, tc.command)})
			if err != nil {
				t.Fatal(err)
			}
			w.at["v1"].on(c.verb, func(command) bsoncore.Document {
				w.hold("v1", 1)
				w.open("v2", 2)
				return doc(t, tc.reply)
			})
			wants(t, w.call(0, tc.command), codeHistoryIncomplete)
			if n := len(w.at["v2"].calls(c.verb)); n != 0 {
				t.Errorf("made %d times at the new place", n)
			}
		})
	}
}

// TestRefusedWrites: a write of one document that a fence refused is made at the new place.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	const increment = `{"update":"orders","updates":[{"q":{"_id":1},"u":{"$inc":{"n":1}}}],` + session + `}`
	w.at["v1"].on("update", func(command) bsoncore.Document {
		w.hold("v1", 1)
		w.open("v2", 2)
		return doc(t, `{"n":0,"nModified":0,"writeErrors":[`+refusedByFence+`],"ok":1.0}`)
	})
	w.at["v2"].on("update", func(command) bsoncore.Document { return doc(t, `{"n":1,"nModified":1,"ok":1.0}`) })
	if got := json(t, w.call(0, increment)); got != `{"n":1,"nModified":1,"ok":1.0}` {
		t.Error(got)
	}
	if n := len(w.at["v2"].calls("update")); n != 1 {
		t.Errorf("made %d times at the new place", n)
	}
}

// TestOwnRefusals: refusals by a validator, view or block of the application reach the client as they are,
// and nothing is made twice, although the record of the deployment changes meanwhile.
func TestOwnRefusals(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"a validator": `{"n":0,"nModified":0,"writeErrors":[{"index":0,"code":121,"errmsg":"Document failed validation","errInfo":{"details":{"operatorName":"$jsonSchema"}}}],"ok":1.0}`,
		"an old one":  `{"n":0,"nModified":0,"writeErrors":[{"index":0,"code":121,"errmsg":"Document failed validation"}],"ok":1.0}`,
		"as a whole":  `{"ok":0.0,"code":121,"errmsg":"Document failed validation"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			w.at["v1"].on("update", func(command) bsoncore.Document {
				w.open("v1", 1) // a note about progress
				return doc(t, reply)
			})
			const increment = `{"update":"orders","updates":[{"q":{},"u":{"$inc":{"n":1}},"multi":true}],` + session + `}`
			if got, want := json(t, w.call(0, increment)), json(t, doc(t, reply)); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if n := len(w.at["v1"].calls("update")); n != 1 {
				t.Errorf("made %d times", n)
			}
		})
	}
}

// TestLateWrites: a fence lets some writes pass that come too late, and they are undone. The client gets no
// success for them.
func TestLateWrites(t *testing.T) {
	t.Parallel()
	const deletes, deleted = `{"delete":"orders","deletes":[{"q":{"_id":1},"limit":1}],` + session + `}`, `{"n":1,"ok":1.0}`
	moves := func(w *world) { w.hold("v1", 1); w.open("v2", 2) }
	for name, tc := range map[string]struct {
		class, command, reply string
		then                  func(w *world)
		stays                 bool
	}{
		"a delete":                          {class: "validator", command: deletes, reply: deleted, then: moves},
		"the class is not reported":         {class: "unknown", command: deletes, reply: deleted, then: moves},
		"a bypass":                          {class: "validator", command: `{"insert":"orders","documents":[{"_id":1}],"bypassDocumentValidation":true,` + session + `}`, reply: deleted, then: moves},
		"find and remove":                   {class: "validator", command: `{"findAndModify":"orders","query":{},"remove":true,` + session + `}`, reply: `{"value":{"_id":1},"ok":1.0}`, then: moves},
		"an update that finds nothing":      {class: "validator", command: `{"update":"orders","updates":[{"q":{"_id":1},"u":{"$set":{"a":1}}}],` + session + `}`, reply: `{"n":0,"nModified":0,"ok":1.0}`, then: moves},
		"a drop, at any fence":              {class: fenceView, command: `{"drop":"orders",` + session + `}`, reply: `{"ok":1.0}`, then: moves},
		"a fence that refuses deletes, too": {class: fenceView, command: deletes, reply: deleted, then: moves, stays: true},
		"before the fence": {class: "validator", command: deletes, reply: deleted, then: func(w *world) {
			held := w.place("v1", 1, pb.Location_HOLD)
			held.Unfenced = true
			w.controllers.set(held)
		}, stays: true},
		"no switch": {class: "validator", command: deletes, reply: deleted, then: func(*world) {}, stays: true},
		"an abort":  {class: "validator", command: deletes, reply: deleted, then: func(w *world) { w.hold("v1", 1); w.open("v1", 1) }, stays: true},
		"an update": {class: "validator", command: `{"update":"orders","updates":[{"q":{"_id":1},"u":{"$set":{"a":1}}}],` + session + `}`, reply: `{"n":1,"nModified":1,"ok":1.0}`, then: moves, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{class: tc.class})
			c, err := parse(message.Message{Body: doc(t, tc.command)})
			if err != nil {
				t.Fatal(err)
			}
			w.at["v1"].on(c.verb, func(command) bsoncore.Document {
				tc.then(w)
				return doc(t, tc.reply)
			})
			got := w.call(0, tc.command)
			if !tc.stays {
				wants(t, got, codeHistoryIncomplete)
			} else if want := json(t, doc(t, tc.reply)); json(t, got) != want {
				t.Errorf("%s, want %s", json(t, got), want)
			}
		})
	}
}

// TestHeldLateWrites: a write that may have passed a fence does not delay the switch. The client waits for
// its end.
func TestHeldLateWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{class: "validator"})
	w.at["v1"].on("delete", func(command) bsoncore.Document {
		w.hold("v1", 1)
		return doc(t, `{"n":1,"ok":1.0}`)
	})
	reply := make(chan bsoncore.Document, 1)
	conn := dial(t, w.addresses[0])
	go func() {
		reply <- call(t, conn, `{"delete":"orders","deletes":[{"q":{"_id":1},"limit":1}],`+session+`}`)
	}()
	<-w.controllers.acks
	w.open("v2", 2)
	wants(t, <-reply, codeHistoryIncomplete)
}
