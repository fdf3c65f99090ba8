package proxy

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/message"
)

// TestOrderOf: which queries can go on after the last document that was given.
func TestOrderOf(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]bool{
		`"sort":{"_id":1}`:                             true,
		`"sort":{"_id":-1.0},"filter":{"a":1}`:         true,
		`"sort":{"_id":1},"limit":9,"skip":2`:          true,
		`"sort":{"_id":1},"tailable":false`:            true,
		`"sort":{"_id":1},"projection":{"a":1}`:        true,
		`"sort":{"_id":1},"projection":{"_id":1}`:      true,
		`"sort":{"_id":1},"hint":{"a":1}`:              true,
		``:                                             false,
		`"hint":{"$natural":1}`:                        false,
		`"sort":{}`:                                    false,
		`"sort":{"a":1}`:                               false,
		`"sort":{"a":1,"_id":1}`:                       false,
		`"sort":{"_id":{"$meta":"textScore"}}`:         false,
		`"sort":{"_id":1},"limit":-9`:                  false,
		`"sort":{"_id":1},"projection":{"_id":0}`:      false,
		`"sort":{"_id":1},"projection":{"_id":"$a"}`:   false,
		`"sort":{"_id":1},"projection":{"_id.a":1}`:    false,
		`"sort":{"_id":1},"collation":{"locale":"de"}`: false,
		`"sort":{"_id":1},"min":{"_id":3}`:             false,
		`"sort":{"_id":1},"returnKey":true`:            false,
		`"sort":{"_id":1},"allowPartialResults":true`:  false,
	} {
		text := `{"find":"orders",` + query + `}`
		c, err := parse(message.Message{Body: doc(t, strings.Replace(text, ",}", "}", 1))})
		if err != nil {
			t.Fatal(err)
		}
		if got := orderOf(c) != nil; got != want {
			t.Errorf("%s: it can go on: %v, want %v", text, got, want)
		}
	}
}

// TestOrderedCursors: a query by _id is not read to its end before a switch. It goes on at the next place, after
// the last document that its client has.
func TestOrderedCursors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		find  string
		first string // documents that the client has before the switch
		gone  bool   // the last one is not at the next place
		want  string // query at the next place; empty: none
		get   string // what the client gets afterwards
	}{
		"up": {
			find: `"sort":{"_id":1}`, first: `{"_id":1}`,
			want: `{"sort":{"_id":1},"filter":{"$and":[{"$expr":{"$gt":["$_id",{"$literal":1}]}}]},"batchSize":2}`, get: "2 3",
		},
		"down, with a filter": {
			find: `"filter":{"a":1},"sort":{"_id":-1}`, first: `{"_id":"x"}`,
			want: `{"sort":{"_id":-1},"filter":{"$and":[{"a":1},{"$expr":{"$lt":["$_id",{"$literal":"x"}]}}]},"batchSize":2}`, get: "2 3",
		},
		"skip and limit": {
			find: `"sort":{"_id":1},"skip":3,"limit":5,"batchSize":1`, first: `{"_id":1}`,
			want: `{"sort":{"_id":1},"filter":{"$and":[{"$expr":{"$gt":["$_id",{"$literal":1}]}}]},"limit":4,"batchSize":2}`, get: "2 3",
		},
		"nothing is given": {
			find: `"filter":{"a":1},"sort":{"_id":1},"skip":3,"limit":5,"batchSize":0`,
			want: `{"filter":{"a":1},"sort":{"_id":1},"skip":3,"limit":5,"batchSize":2}`, get: "2 3",
		},
		"another form of keys": {find: `"sort":{"_id":1}`, first: `{"_id":1}`, gone: true, get: "error 43"},
		"no order":             {find: `"filter":{}`, first: `{"_id":1}`, get: "error 43"},
		"no _id":               {find: `"sort":{"_id":1}`, first: `{"a":1}`, get: "error 43"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			w.at["v1"].on("find", func(command) bsoncore.Document { return batchOf7(t, "firstBatch", tc.first, false) })
			w.at["v1"].on("getMore", func(command) bsoncore.Document {
				return doc(t, `{"ok":0.0,"code":175,"errmsg":"renamed"}`) // the fence was sooner
			})
			asked := ""
			w.at["v2"].on("find", func(c command) bsoncore.Document {
				one := `{"cursor":{"firstBatch":[%s],"id":{"$numberLong":"%d"},"ns":"shop.orders"},"ok":1.0}`
				if _, err := c.msg.Body.LookupErr("singleBatch"); err == nil {
					if tc.gone {
						return doc(t, fmt.Sprintf(one, "", 0))
					}
					return doc(t, fmt.Sprintf(one, tc.first, 0))
				}
				body, err := without(c.msg.Body, "find", "$db", "lsid")
				if err != nil {
					t.Error(err)
				}
				asked = json(t, body)
				return doc(t, fmt.Sprintf(one, `{"_id":2}`, 8))
			})
			w.at["v2"].on("getMore", func(c command) bsoncore.Document {
				if id := number(c.msg.Body, "getMore"); id != 8 {
					t.Errorf("the proxy reads on with cursor %d", id)
				}
				return doc(t, `{"cursor":{"nextBatch":[{"_id":3}],"id":{"$numberLong":"0"},"ns":"shop.orders"},"ok":1.0}`)
			})
			w.call(0, `{"find":"orders",`+tc.find+`,`+session+`}`)
			w.hold("v1", 1)
			<-w.controllers.acks
			w.open("v2", 2)
			w.await(w.proxies[0])
			if got := readAll(t, w); got != tc.get {
				t.Errorf("got %q, want %q", got, tc.get)
			}
			if asked != tc.want {
				t.Errorf("the query at the next place is\n%s, want\n%s", asked, tc.want)
			}
		})
	}
}

// TestKilledOrderedCursor: a client ends a query that went on at the next place by the id that it knows.
func TestKilledOrderedCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	first := func(command) bsoncore.Document { return batchOf7(t, "firstBatch", `{"_id":1}`, false) }
	w.at["v1"].on("find", first)
	w.at["v1"].on("getMore", func(command) bsoncore.Document { return nil })
	w.at["v2"].on("find", func(command) bsoncore.Document {
		return doc(t, `{"cursor":{"firstBatch":[{"_id":2}],"id":{"$numberLong":"8"},"ns":"shop.orders"},"ok":1.0}`)
	})
	w.at["v2"].on("killCursors", func(c command) bsoncore.Document {
		if got := json(t, c.msg.Body); !strings.Contains(got, `"cursors":[8]`) {
			t.Errorf("the proxy ends it by %s", got)
		}
		return success()
	})
	w.call(0, `{"find":"orders","sort":{"_id":1},`+session+`}`)
	w.hold("v1", 1)
	<-w.controllers.acks
	w.open("v2", 2)
	w.await(w.proxies[0])
	if got := w.call(0, moreOf7); cursorOf(got) != 7 {
		t.Fatal(json(t, got))
	}
	if got := w.call(0, `{"killCursors":"orders","cursors":[{"$numberLong":"7"}],`+session+`}`); !succeeded(got) {
		t.Error(json(t, got))
	}
	if n := len(w.at["v2"].calls("killCursors")); n != 1 {
		t.Errorf("%d commands end it, want 1", n)
	}
	if got := w.call(0, moreOf7); codeOf(got) != codeCursorNotFound {
		t.Error(json(t, got))
	}
}
