package recordio_test

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// TestRefusalsQuoteNoDocument: why ever the server refuses a document, for whichever
// reason and on whichever way, no value of it is in the error; the code and the field are.
func TestRefusalsQuoteNoDocument(t *testing.T) {
	t.Parallel()
	const canary = "CANARY-078-05-1120"
	for name, c := range map[string]struct {
		options []bson.E
		index   bson.D
		doc     bson.D
		want    string
	}{
		"geographic index": {
			index: bson.D{{Key: "key", Value: bson.D{{Key: "home.loc", Value: "2dsphere"}}}, {Key: "name", Value: "near"}},
			doc:   bson.D{{Key: "ssn", Value: canary}, {Key: "home", Value: bson.D{{Key: "loc", Value: bson.D{{Key: "type", Value: "Point"}, {Key: "coordinates", Value: bson.A{200, 95}}}}}}},
			want:  "error 16755: Can't extract geo keys, field home.loc (index near)",
		},
		"text index": {
			index: bson.D{{Key: "key", Value: bson.D{{Key: "bio", Value: "text"}}}, {Key: "name", Value: "words"}},
			doc:   bson.D{{Key: "bio", Value: "x"}, {Key: "language", Value: canary}},
			want:  "language override unsupported",
		},
		"unique index": {
			index: bson.D{{Key: "key", Value: bson.D{{Key: "ssn", Value: 1}}}, {Key: "name", Value: "ssn_1"}, {Key: "unique", Value: true}},
			doc:   bson.D{{Key: "ssn", Value: canary}},
			want:  "index ssn_1",
		},
		"validator": {
			options: []bson.E{{Key: "validator", Value: bson.D{{Key: "$jsonSchema", Value: bson.D{
				{Key: "required", Value: bson.A{"born"}},
				{Key: "properties", Value: bson.D{{Key: "home", Value: bson.D{{Key: "properties", Value: bson.D{{Key: "city", Value: bson.D{{Key: "bsonType", Value: "int"}}}}}}}}},
			}}}}},
			doc:  bson.D{{Key: "home", Value: bson.D{{Key: "city", Value: canary}}}, {Key: canary, Value: canary}},
			want: "validator refuses the document: born is missing, home.city (bsonType)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := storetest.NewEngine(t)
			run := func(cmd bson.D) {
				t.Helper()
				if err := e.NS.DB.RunCommand(t.Context(), cmd).Err(); err != nil {
					t.Fatal(err)
				}
			}
			run(append(bson.D{{Key: "create", Value: "k"}}, c.options...))
			if c.index != nil {
				run(bson.D{{Key: "createIndexes", Value: "k"}, {Key: "indexes", Value: bson.A{c.index}}})
			}
			if name == "unique index" {
				run(bson.D{{Key: "insert", Value: "k"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: "first"}, {Key: "ssn", Value: canary}}}}})
			}
			tok := e.Token("k", "k", false)
			toks := storetest.TokensOf(tok)
			bad := append(bson.D{{Key: "_id", Value: "bad"}}, c.doc...)
			said := map[string]error{}
			for way, apply := range map[string]func(context.Context, record.Batch) ([]record.Result, error){"apply": e.NS.Apply, "load": e.NS.Load} {
				b := record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{storetest.Group(1, storetest.Put(t, "k", bad))}}
				results, err := apply(t.Context(), b)
				if err != nil || results[0].Outcome != record.Refused {
					t.Fatalf("%s: %+v, %v", way, results, err)
				}
				said[way] = results[0].Err
			}
			m := record.Mutation{Kind: "k", Key: record.StringKey("bad"), Doc: wire.MustMarshal(bad), Absent: true}
			said["client"] = e.NS.Client().Write(t.Context(), toks, []record.Mutation{m})
			other := m
			other.Key, other.Doc = record.StringKey("worse"), wire.MustMarshal(append(bson.D{{Key: "_id", Value: "worse"}}, c.doc...))
			said["client's transaction"] = e.NS.Client().Write(t.Context(), toks, []record.Mutation{other, m})
			for way, err := range said {
				switch {
				case err == nil:
					t.Errorf("%s: it was written", way)
				case strings.Contains(err.Error(), "CANARY"), strings.Contains(err.Error(), "200"):
					t.Errorf("%s quotes the document: %v", way, err)
				case !strings.Contains(err.Error(), c.want) && !(name == "geographic index" && strings.HasPrefix(way, "client")):
					t.Errorf("%s: %v, want %q", way, err, c.want)
				}
			}
			if name != "unique index" && !strings.Contains(record.Revealed(said["apply"]), "CANARY") {
				t.Errorf("what is revealed does not contain what it was: %s", record.Revealed(said["apply"]))
			}
		})
	}
}

// TestOtherErrorsQuoteNoDocument: a command that fails as a whole is not quoted either.
func TestOtherErrorsQuoteNoDocument(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("m")
	doc, err := bson.Marshal(bson.D{{Key: "find", Value: tok.Name}, {Key: "filter", Value: bson.D{{Key: "$CANARY", Value: "CANARY"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = e.NS.Run(t.Context(), doc); err == nil || !conn.HasCode(err, 2) {
		t.Fatalf("run: %v", err)
	}
	t.Log(conn.Classify("find", err))
	dup := e.NS.DB.RunCommand(t.Context(), bson.D{{Key: "aggregate", Value: 1}, {Key: "cursor", Value: bson.D{}}, {Key: "pipeline", Value: bson.A{
		bson.D{{Key: "$documents", Value: bson.A{bson.D{{Key: "a", Value: "CANARY-1"}}}}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$toInt", Value: "$a"}}}}}},
	}}}).Err()
	if dup == nil || !strings.Contains(dup.Error(), "CANARY") {
		t.Fatalf("the server does not quote: %v", dup)
	}
	if err := conn.Classify("read", dup); strings.Contains(err.Error(), "CANARY") {
		t.Error(err)
	}
}
