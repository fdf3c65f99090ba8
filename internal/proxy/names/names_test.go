package names_test

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/proxy/names"
)

var shop = names.Map{Database: "shop", Place: "shop_v2", To: map[string]string{"orders": "orders2", "users": "users"}}

func document(t *testing.T, json string) bsoncore.Document {
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

func text(t *testing.T, doc bsoncore.Document) string {
	t.Helper()
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	json, err := bson.MarshalExtJSON(d, false, false)
	if err != nil {
		t.Fatal(err)
	}
	return string(json)
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ command, want string }{
		"find":      {`{"find":"orders","filter":{"find":"orders"},"$db":"shop"}`, `{"find":"orders2","filter":{"find":"orders"},"$db":"shop_v2"}`},
		"getMore":   {`{"getMore":5,"collection":"orders","$db":"shop"}`, `{"getMore":5,"collection":"orders2","$db":"shop_v2"}`},
		"explain":   {`{"explain":{"count":"orders"},"$db":"shop"}`, `{"explain":{"count":"orders2"},"$db":"shop_v2"}`},
		"bulkWrite": {`{"bulkWrite":1,"ops":[],"nsInfo":[{"ns":"shop.orders"},{"ns":"shop.users"}]}`, `{"bulkWrite":1,"ops":[],"nsInfo":[{"ns":"shop_v2.orders2"},{"ns":"shop_v2.users"}]}`},
		"$lookup":   {`{"aggregate":"users","pipeline":[{"$lookup":{"from":"orders","as":"o"}}]}`, `{"aggregate":"users","pipeline":[{"$lookup":{"from":"orders2","as":"o"}}]}`},
		"$lookup with a pipeline": {
			`{"aggregate":"users","pipeline":[{"$lookup":{"from":"users","pipeline":[{"$unionWith":"orders"}],"as":"o"}}]}`,
			`{"aggregate":"users","pipeline":[{"$lookup":{"from":"users","pipeline":[{"$unionWith":"orders2"}],"as":"o"}}]}`,
		},
		"$lookup of documents": {
			`{"aggregate":"users","pipeline":[{"$lookup":{"pipeline":[{"$documents":[{"a":1}]}],"as":"o"}}]}`,
			`{"aggregate":"users","pipeline":[{"$lookup":{"pipeline":[{"$documents":[{"a":1}]}],"as":"o"}}]}`,
		},
		"$graphLookup":      {`{"aggregate":"users","pipeline":[{"$graphLookup":{"from":"orders","as":"o"}}]}`, `{"aggregate":"users","pipeline":[{"$graphLookup":{"from":"orders2","as":"o"}}]}`},
		"$unionWith":        {`{"aggregate":"users","pipeline":[{"$unionWith":{"coll":"orders","pipeline":[]}}]}`, `{"aggregate":"users","pipeline":[{"$unionWith":{"coll":"orders2","pipeline":[]}}]}`},
		"$facet":            {`{"aggregate":"users","pipeline":[{"$facet":{"a":[{"$lookup":{"from":"orders","as":"o"}}]}}]}`, `{"aggregate":"users","pipeline":[{"$facet":{"a":[{"$lookup":{"from":"orders2","as":"o"}}]}}]}`},
		"$out":              {`{"aggregate":"users","pipeline":[{"$out":"orders"}]}`, `{"aggregate":"users","pipeline":[{"$out":"orders2"}]}`},
		"$out to database":  {`{"aggregate":"users","pipeline":[{"$out":{"db":"shop","coll":"orders"}}]}`, `{"aggregate":"users","pipeline":[{"$out":{"db":"shop_v2","coll":"orders2"}}]}`},
		"$merge":            {`{"aggregate":"users","pipeline":[{"$merge":{"into":"orders","on":"_id"}}]}`, `{"aggregate":"users","pipeline":[{"$merge":{"into":"orders2","on":"_id"}}]}`},
		"$merge, short":     {`{"aggregate":"users","pipeline":[{"$merge":"orders"}]}`, `{"aggregate":"users","pipeline":[{"$merge":"orders2"}]}`},
		"$merge elsewhere":  {`{"aggregate":"users","pipeline":[{"$merge":{"into":{"db":"shop","coll":"orders"}}}]}`, `{"aggregate":"users","pipeline":[{"$merge":{"into":{"db":"shop_v2","coll":"orders2"}}}]}`},
		"a stage with data": {`{"aggregate":"users","pipeline":[{"$match":{"from":"orders","pipeline":["x"]}}]}`, `{"aggregate":"users","pipeline":[{"$match":{"from":"orders","pipeline":["x"]}}]}`},
	} {
		got, err := shop.Command(document(t, tc.command))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := text(t, got), text(t, document(t, tc.want)); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
	}
}

// TestStrays: a collection that does not move cannot be joined with one that does: its name would mean
// another collection at the new place.
func TestStrays(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		`{"aggregate":"users","pipeline":[{"$lookup":{"from":"logs","as":"o"}}]}`,
		`{"aggregate":"users","pipeline":[{"$unionWith":"logs"}]}`,
		`{"aggregate":"users","pipeline":[{"$out":{"db":"other","coll":"orders"}}]}`,
		`{"aggregate":"users","pipeline":[{"$facet":{"a":[{"$lookup":{"from":"users","pipeline":[{"$unionWith":"logs"}],"as":"o"}}]}}]}`,
		`{"bulkWrite":1,"nsInfo":[{"ns":"shop.orders"},{"ns":"shop.logs"}]}`,
		`{"find":"logs","$db":"shop"}`,
	} {
		var stray *names.StrayError
		if _, err := shop.Command(document(t, command)); !errors.As(err, &stray) {
			t.Errorf("%s: %v, want a StrayError", command, err)
		}
	}
	stages := names.Stages("shop", document(t, `{"aggregate":"logs","pipeline":[{"$lookup":{"from":"a","pipeline":[{"$unionWith":"b"}],"as":"o"}},{"$merge":{"into":{"db":"d","coll":"c"}}}]}`))
	if len(stages) != 3 || stages[0].Collection != "a" || stages[1].Collection != "b" || stages[2] != (names.Stage{Name: "$merge", Database: "d", Collection: "c"}) {
		t.Errorf("stages %+v", stages)
	}
}

func TestReply(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reply, want string
		watches     bool
	}{
		"cursor": {reply: `{"cursor":{"id":5,"ns":"shop_v2.orders2","firstBatch":[{"ns":"shop_v2.orders2"}]},"ok":1.0}`, want: `{"cursor":{"id":5,"ns":"shop.orders","firstBatch":[{"ns":"shop_v2.orders2"}]},"ok":1.0}`},
		"error":  {reply: `{"ok":0.0,"errmsg":"no index of shop_v2.orders2","code":27}`, want: `{"ok":0.0,"errmsg":"no index of shop.orders","code":27}`},
		"errors of documents": {
			reply: `{"n":0,"writeErrors":[{"index":0,"code":11000,"keyValue":{"errmsg":"shop_v2.users"},"errmsg":"E11000 duplicate key error collection: shop_v2.users index: _id_"}],"ok":1.0}`,
			want:  `{"n":0,"writeErrors":[{"index":0,"code":11000,"keyValue":{"errmsg":"shop_v2.users"},"errmsg":"E11000 duplicate key error collection: shop.users index: _id_"}],"ok":1.0}`,
		},
		"events": {
			reply:   `{"cursor":{"id":5,"ns":"shop_v2.orders2","nextBatch":[{"operationType":"insert","ns":{"db":"shop_v2","coll":"orders2"},"fullDocument":{"ns":{"db":"shop_v2","coll":"orders2"}}}]},"ok":1.0}`,
			want:    `{"cursor":{"id":5,"ns":"shop.orders","nextBatch":[{"operationType":"insert","ns":{"db":"shop","coll":"orders"},"fullDocument":{"ns":{"db":"shop_v2","coll":"orders2"}}}]},"ok":1.0}`,
			watches: true,
		},
	} {
		got, err := shop.Reply(document(t, tc.reply), tc.watches)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, want := text(t, got), text(t, document(t, tc.want)); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
	}
}

// FuzzCommand: no command ends the proxy, and the names of a place are put into whole documents.
func FuzzCommand(f *testing.F) {
	for _, json := range []string{`{"find":"orders","$db":"shop"}`, `{"aggregate":"users","pipeline":[{"$facet":{"a":[{"$lookup":{"from":"orders","as":"o"}}]}}]}`} {
		var d bson.D
		if err := bson.UnmarshalExtJSON([]byte(json), false, &d); err != nil {
			f.Fatal(err)
		}
		raw, err := bson.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// A message has checked that its documents are as long as they say.
		if doc, rest, ok := bsoncore.ReadDocument(b); !ok || len(doc) < 5 || len(rest) > 0 || b[len(b)-1] != 0 {
			return
		}
		names.Stages("shop", b)
		names.Writes(b)
		names.Watches(b)
		for _, do := range []func(bsoncore.Document) (bsoncore.Document, error){
			shop.Command, func(d bsoncore.Document) (bsoncore.Document, error) { return shop.Reply(d, true) },
		} {
			if out, err := do(b); err == nil {
				if _, _, ok := bsoncore.ReadDocument(out); !ok {
					t.Errorf("%x became %x", b, out)
				}
			}
		}
	})
}

// TestDeepCommand: a command that is large and deep takes its size once, and not once for each level. Looking for
// names takes next to nothing. It is not parallel, because it counts what the process allocates.
func TestDeepCommand(t *testing.T) {
	const levels, size = 100, 256 << 10
	filling := bsoncore.NewDocumentBuilder().AppendDocument("$match", bsoncore.NewDocumentBuilder().AppendString("a", strings.Repeat("x", size)).Build()).Build()
	union := bsoncore.NewDocumentBuilder().AppendString("$unionWith", "orders").Build()
	pipeline := bsoncore.NewArrayBuilder().AppendDocument(filling).AppendDocument(union).Build()
	for level := range levels {
		stage := bsoncore.NewDocumentBuilder().AppendDocument("$facet", bsoncore.NewDocumentBuilder().AppendArray("a", pipeline).Build()).Build()
		if level%2 == 0 {
			within := bsoncore.NewDocumentBuilder().AppendString("from", "users").AppendArray("pipeline", pipeline).Build()
			stage = bsoncore.NewDocumentBuilder().AppendDocument("$lookup", within).Build()
		}
		pipeline = bsoncore.NewArrayBuilder().AppendDocument(stage).Build()
	}
	command := bsoncore.NewDocumentBuilder().AppendString("aggregate", "orders").AppendArray("pipeline", pipeline).Build()
	explained := command
	for range levels {
		explained = bsoncore.NewDocumentBuilder().AppendDocument("explain", explained).Build()
	}
	for name, tc := range map[string]struct {
		most uint64
		do   func() bool
	}{
		"a command": {4 * size, func() bool {
			got, err := shop.Command(command)
			return err == nil && bytes.Contains(got, []byte("$unionWith\x00\x08\x00\x00\x00orders2\x00")) && got.Validate() == nil
		}},
		"an explain": {4 * size, func() bool {
			got, err := shop.Command(explained)
			return err == nil && bytes.Contains(got, []byte("$unionWith\x00\x08\x00\x00\x00orders2\x00")) && got.Validate() == nil
		}},
		"stages": {size / 2, func() bool { return len(names.Stages("shop", command)) == levels/2+1 }},
		"writes": {size / 2, func() bool { return !names.Writes(command) }},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if !tc.do() {
			t.Errorf("%s: a wrong result", name)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > tc.most {
			t.Errorf("%s of %d bytes took %d", name, len(command), took)
		}
	}
}
