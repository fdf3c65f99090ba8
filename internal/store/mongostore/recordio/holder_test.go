package recordio_test

import (
	"errors"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestHolderByItsIndex: the search for the holder of a value uses the index that refused the value,
// once for many groups. It names no record outside the index, and never reads the collection.
func TestHolderByItsIndex(t *testing.T) {
	t.Parallel()
	mail := bson.D{{Key: "mail", Value: 1}}
	for name, tc := range map[string]struct {
		key     bson.D
		options []bson.E
		holder  string // "": no index can find it
	}{
		"plain":   {mail, nil, "held"},
		"partial": {mail, []bson.E{{Key: "partialFilterExpression", Value: bson.D{{Key: "active", Value: true}}}}, "held"},
		"sparse":  {append(bson.D{{Key: "nobody", Value: 1}}, mail...), []bson.E{{Key: "sparse", Value: true}}, "held"},
		"hidden":  {mail, []bson.E{{Key: "hidden", Value: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := storetest.NewEngine(t)
			tok := e.Managed("people")
			run := func(cmd bson.D) {
				t.Helper()
				if err := e.NS.DB.RunCommand(t.Context(), cmd).Err(); err != nil {
					t.Fatal(err)
				}
			}
			index := append(bson.D{{Key: "key", Value: tc.key}, {Key: "name", Value: "by mail"}, {Key: "unique", Value: true}}, tc.options...)
			run(bson.D{{Key: "createIndexes", Value: tok.Name}, {Key: "indexes", Value: bson.A{index}}})
			docs := []any{bson.D{{Key: "_id", Value: "held"}, {Key: "mail", Value: "same"}, {Key: "active", Value: true}}}
			for i := range 50 {
				other := "other"
				if name == "partial" {
					other = "same" // a record outside the index
				} else {
					other += fmt.Sprint(i)
				}
				docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("a%d", i)}, {Key: "mail", Value: other}})
			}
			e.Insert(tok, docs...)
			run(bson.D{{Key: "profile", Value: 2}})
			const groups = 3
			var batch []record.GroupWrite
			for i := range groups {
				batch = append(batch, storetest.Group(1, storetest.Put(t, "people", bson.D{
					{Key: "_id", Value: fmt.Sprintf("z%d", i)}, {Key: "mail", Value: "same"}, {Key: "active", Value: true},
				})))
			}
			results := e.Apply(1, storetest.TokensOf(tok), batch...)
			run(bson.D{{Key: "profile", Value: 0}})
			for _, r := range results {
				var held *record.HeldError
				found := ""
				if errors.As(r.Err, &held) {
					found, _ = held.Holder.Value().StringValueOK()
				}
				if r.Outcome != record.Refused || !errors.Is(r.Err, record.ErrConflict) || found != tc.holder {
					t.Errorf("%v: %v, the holder is %q, want %q", r.Outcome, r.Err, found, tc.holder)
				}
			}
			searches := int64(1)
			if tc.holder == "" {
				searches = 0
			}
			profile := e.NS.DB.Collection("system.profile")
			for what, c := range map[string]struct {
				filter bson.D
				want   int64
			}{
				"searches for the holder": {bson.D{{Key: "command.hint", Value: "by mail"}, {Key: "command.maxTimeMS", Value: bson.D{{Key: "$gt", Value: 0}}}}, searches},
				"scans of the collection": {bson.D{{Key: "ns", Value: e.NS.Name + "." + tok.Name}, {Key: "planSummary", Value: "COLLSCAN"}}, 0},
			} {
				if n, err := profile.CountDocuments(t.Context(), c.filter); err != nil || n != c.want {
					t.Errorf("%d %s, want %d, %v", n, what, c.want, err)
				}
			}
		})
	}
}

// TestHolderAfterAFailure: one failed search for a holder does not hide it. After two, a batch searches
// no more.
func TestHolderAfterAFailure(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]string{1: "held", 2: ""} {
		t.Run(fmt.Sprint(failures), func(t *testing.T) {
			t.Parallel()
			e, l := storetest.NewLossyEngine(t)
			tok := e.Managed("people")
			index := bson.D{{Key: "key", Value: bson.D{{Key: "mail", Value: 1}}}, {Key: "name", Value: "by mail"}, {Key: "unique", Value: true}}
			err := e.NS.DB.RunCommand(t.Context(), bson.D{{Key: "createIndexes", Value: tok.Name}, {Key: "indexes", Value: bson.A{index}}}).Err()
			if err != nil {
				t.Fatal(err)
			}
			e.Insert(tok, bson.D{{Key: "_id", Value: "held"}, {Key: "mail", Value: "same"}})
			var batch []record.GroupWrite
			for i := range 4 {
				batch = append(batch, storetest.Group(1, storetest.Put(t, "people", bson.D{{Key: "_id", Value: fmt.Sprintf("z%d", i)}, {Key: "mail", Value: "same"}})))
			}
			l.Lose("by mail", int64(failures))
			results := e.Apply(1, storetest.TokensOf(tok), batch...)
			found := ""
			for _, r := range results {
				var held *record.HeldError
				if errors.As(r.Err, &held) {
					found, _ = held.Holder.Value().StringValueOK()
				}
			}
			if lost := l.Lost.Load(); found != want || int(lost) != failures {
				t.Errorf("after %d failures the holder is %q, want %q", lost, found, want)
			}
		})
	}
}
