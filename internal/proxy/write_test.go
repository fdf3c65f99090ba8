package proxy

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

func doc(t *testing.T, json string) bsoncore.Document {
	t.Helper()
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(json), false, &d); err != nil {
		t.Fatalf("%s: %v", json, err)
	}
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func json(t *testing.T, doc bsoncore.Document) string {
	t.Helper()
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	text, err := bson.MarshalExtJSON(d, false, false)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fenceInfo is what a server reports of the validator of a fence.
const fenceInfo = `{"failingDocumentId":1,"details":{"operatorName":"$expr","specifiedAs":{"$expr":{"$eq":["dbc-fence:orders.n2",""]}},"reason":"expression did not match"}}`

// TestBatchInParts: what a fence refuses of a list is made at the next place, with the numbers of the
// client's statements, and the client gets one reply for all of it.
func TestBatchInParts(t *testing.T) {
	t.Parallel()
	const inserts = `"lsid":{"id":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAA==","subType":"04"}}},"txnNumber":{"$numberLong":"5"}`
	for name, tc := range map[string]struct {
		command string
		replies []string // of the parts, in turn
		parts   []string // commands of the parts after the first one
		want    string
	}{
		"nothing is refused": {
			command: `{"insert":"c","documents":[{"_id":0},{"_id":1}]}`,
			replies: []string{`{"n":2,"ok":1.0}`},
			want:    `{"n":2,"ok":1.0}`,
		},
		"an ordered list goes on at the refused one": {
			command: `{"insert":"c","documents":[{"_id":0},{"_id":1},{"_id":2}],` + inserts + `}`,
			replies: []string{`{"n":1,"writeErrors":[{"index":1,"code":166,"errmsg":"view"}],"ok":1.0}`, `{"n":2,"ok":1.0}`},
			parts:   []string{`{"insert":"c",` + inserts + `,"stmtIds":[1,2]}`},
			want:    `{"n":3,"ok":1.0}`,
		},
		"an ordered list ends at an error of its own": {
			command: `{"insert":"c","documents":[{"_id":0},{"_id":1},{"_id":2}]}`,
			replies: []string{
				`{"n":1,"writeErrors":[{"index":1,"code":166,"errmsg":"view"}],"ok":1.0}`,
				`{"n":0,"writeErrors":[{"index":0,"code":11000,"errmsg":"duplicate"}],"ok":1.0}`,
			},
			parts: []string{`{"insert":"c"}`},
			want:  `{"n":1,"writeErrors":[{"index":1,"code":11000,"errmsg":"duplicate"}],"ok":1.0}`,
		},
		"an unordered list has refused ones among others": {
			command: `{"update":"c","ordered":false,"updates":[{"q":{}},{"q":{}},{"q":{}},{"q":{}}]}`,
			replies: []string{
				`{"n":2,"nModified":1,"upserted":[{"index":3,"_id":"x"}],"writeErrors":[{"index":0,"code":121,"errmsg":"validator","errInfo":` + fenceInfo + `},{"index":1,"code":11000,"errmsg":"duplicate"}],"ok":1.0}`,
				`{"n":1,"nModified":1,"ok":1.0}`,
			},
			parts: []string{`{"update":"c","ordered":false}`},
			want:  `{"n":3,"nModified":2,"upserted":[{"index":3,"_id":"x"}],"writeErrors":[{"index":1,"code":11000,"errmsg":"duplicate"}],"ok":1.0}`,
		},
		"errors of several parts are in the order of the list, and no concern of a part is lost": {
			command: `{"insert":"c","ordered":false,"documents":[{"_id":0},{"_id":1},{"_id":2}]}`,
			replies: []string{
				`{"n":0,"writeErrors":[{"index":0,"code":166,"errmsg":"view"},{"index":1,"code":11000,"errmsg":"duplicate"},{"index":2,"code":166,"errmsg":"view"}],"writeConcernError":{"code":64,"errmsg":"timeout"},"ok":1.0}`,
				`{"n":1,"writeErrors":[{"index":0,"code":11000,"errmsg":"duplicate"}],"ok":1.0}`,
			},
			parts: []string{`{"insert":"c","ordered":false}`},
			want:  `{"n":1,"writeErrors":[{"index":0,"code":11000,"errmsg":"duplicate"},{"index":1,"code":11000,"errmsg":"duplicate"}],"writeConcernError":{"code":64,"errmsg":"timeout"},"ok":1.0}`,
		},
	} {
		c, err := parse(message.Message{Body: doc(t, tc.command)})
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(c)
		var got bsoncore.Document
		for i, reply := range tc.replies {
			m, err := b.message()
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				if got, want := json(t, m.Body), json(t, doc(t, tc.parts[i-1])); got != want {
					t.Errorf("%s: part %d is %s, want %s", name, i, got, want)
				}
			}
			again := b.add(doc(t, reply), false)
			if again != (i < len(tc.replies)-1) {
				t.Errorf("%s: part %d is to be made again: %v", name, i, again)
			}
			got = b.reply(doc(t, reply))
		}
		if got, want := json(t, got), json(t, doc(t, tc.want)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestOwnValidator: errors that look like a fence's, and are none, reach the client as they are.
func TestOwnValidator(t *testing.T) {
	t.Parallel()
	c, err := parse(message.Message{Body: doc(t, `{"insert":"c","documents":[{"_id":0},{"_id":1}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch(c)
	reply := doc(t, `{"n":1,"writeErrors":[{"index":1,"code":121,"errmsg":"Document failed validation"}],"ok":1.0}`)
	if b.add(reply, false) {
		t.Error("the application's own validator is taken for a fence")
	}
	if got, want := json(t, b.reply(reply)), json(t, reply); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestFailedRest: a switch does not end in time after a part of a list was written. The client learns which
// part, and a driver repeats the list only if its statements have numbers.
func TestFailedRest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ more, parts, want string }{
		"without numbers": {
			parts: `{"n":1,"writeErrors":[{"index":1,"code":166,"errmsg":"view"}],"ok":1.0}`,
			want:  `{"n":1,"writeErrors":[{"index":1,"code":6,"errmsg":"held"}],"ok":1.0}`,
		},
		"with numbers": {
			more: `"txnNumber":{"$numberLong":"5"},`, parts: `{"n":1,"writeErrors":[{"index":1,"code":166,"errmsg":"view"}],"ok":1.0}`,
			want: `{"ok":0.0,"errmsg":"held","code":6,"codeName":"HostUnreachable","errorLabels":["RetryableWriteError"]}`,
		},
		"nothing was written": {
			parts: `{"ok":0.0,"code":166,"errmsg":"view"}`,
			want:  `{"ok":0.0,"errmsg":"held","code":6,"codeName":"HostUnreachable"}`,
		},
	} {
		c, err := parse(message.Message{Body: doc(t, `{"insert":"c","documents":[{"_id":0},{"_id":1},{"_id":2}],`+tc.more+session+`}`)})
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(c)
		if !b.add(doc(t, tc.parts), false) {
			t.Errorf("%s: not made again", name)
		}
		if got := json(t, b.failed(errors.New("held"))); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestFailedPart: the rest of a list fails as a whole at the next place. The client learns what was written before, and
// a driver repeats the list only if the server says that it may.
func TestFailedPart(t *testing.T) {
	t.Parallel()
	const number = `"txnNumber":{"$numberLong":"5"},`
	for name, tc := range map[string]struct{ more, last, want string }{
		"it is not allowed": {
			last: `{"ok":0.0,"code":13,"codeName":"Unauthorized","errmsg":"not authorized"}`,
			want: `{"n":1,"writeErrors":[{"index":1,"code":13,"errmsg":"not authorized"}],"ok":1.0}`,
		},
		"of a list without an order": {
			more: `"ordered":false,`, last: `{"ok":0.0,"code":13,"codeName":"Unauthorized","errmsg":"not authorized"}`,
			want: `{"n":1,"writeErrors":[{"index":1,"code":13,"errmsg":"not authorized"},{"index":2,"code":13,"errmsg":"not authorized"}],"ok":1.0}`,
		},
		"with numbers, and no label": {
			more: number, last: `{"ok":0.0,"code":13,"codeName":"Unauthorized","errmsg":"not authorized"}`,
			want: `{"n":1,"writeErrors":[{"index":1,"code":13,"errmsg":"not authorized"}],"ok":1.0}`,
		},
		"the driver may repeat it": {
			more: number, last: `{"ok":0.0,"code":6,"errmsg":"away","errorLabels":["RetryableWriteError"]}`,
			want: `{"ok":0.0,"code":6,"errmsg":"away","errorLabels":["RetryableWriteError"]}`,
		},
		"no reply": {want: `{"n":1,"writeErrors":[{"index":1,"code":6}],"ok":1.0}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			w.at["v1"].on("insert", func(command) bsoncore.Document {
				w.hold("v1", 1)
				w.open("v2", 2)
				refused := `{"index":1,"code":166,"errmsg":"view"}`
				if strings.Contains(tc.more, "ordered") {
					refused += `,{"index":2,"code":166,"errmsg":"view"}`
				}
				return doc(t, `{"n":1,"writeErrors":[`+refused+`],"ok":1.0}`)
			})
			w.at["v1"].on("find", func(command) bsoncore.Document { // the session's last write
				return doc(t, `{"cursor":{"firstBatch":[],"id":{"$numberLong":"0"},"ns":"config.transactions"},"ok":1.0}`)
			})
			w.at["v2"].on("insert", func(command) bsoncore.Document {
				if tc.last == "" {
					return nil
				}
				return doc(t, tc.last)
			})
			got := w.call(0, `{"insert":"orders","documents":[{"_id":0},{"_id":1},{"_id":2}],`+tc.more+session+`}`)
			if tc.last == "" { // the text is that of the network
				if errs := writeErrors(got); len(errs) == 1 && errs[0].code == codeHostUnreachable {
					errs[0].raw, _ = without(errs[0].raw, "errmsg")
					got, _ = without(got, "writeErrors", "ok")
					got, _ = with(got, "writeErrors", listed(array([]bsoncore.Document{errs[0].raw})))
					got, _ = with(got, "ok", bsoncore.Value{Type: bsoncore.TypeDouble, Data: bsoncore.AppendDouble(nil, 1)})
				}
			}
			if json(t, got) != tc.want {
				t.Errorf("%s, want %s", json(t, got), tc.want)
			}
		})
	}
}
