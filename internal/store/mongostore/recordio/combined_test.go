package recordio_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/zap/zaptest"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/recordio"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// TestRoundTripsOfApply counts the commands of one Apply. Over a distance each takes a round trip.
func TestRoundTripsOfApply(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent []string
	uri, name := mongotest.Database(t)
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, e.CommandName)
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	e := &storetest.Engine{T: t, NS: storetest.NewNamespace(client, name, "test", zaptest.NewLogger(t))}
	toks := storetest.TokensOf(e.Collection("f", "f", true), e.Collection("g", "g", true), e.Managed("m"))
	put := func(kind string, x int) record.Write {
		return storetest.Put(t, kind, bson.D{{Key: "_id", Value: "a"}, {Key: "x", Value: x}})
	}
	remove := func(kind string) record.Write { return storetest.Remove(kind, record.StringKey("a")) }
	apply := func(version byte, ws ...record.Write) []string {
		t.Helper()
		mu.Lock()
		sent = nil
		mu.Unlock()
		e.Want(e.Apply(1, toks, storetest.Group(version, ws...)), record.Applied)
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(sent)
	}
	// seen is a write of what was read before.
	seen := func(w record.Write, epoch uint64, version byte, gone bool) record.Write {
		w.Seen = &record.Record{Kind: w.Kind, Key: w.Key, Guard: record.Guard{Epoch: epoch, Version: storetest.Version(version)}, Tombstone: gone}
		return w
	}
	trusted := []string{"bulkWrite", "commitTransaction"}
	apply(1, put("f", 1), put("g", 1)) // creates the side collections
	fixed := []string{"aggregate", "bulkWrite", "commitTransaction"}
	for i, step := range []struct {
		name   string
		writes []record.Write
		want   []string
	}{
		{"update", []record.Write{put("f", 2)}, fixed},
		{"delete", []record.Write{remove("f")}, fixed},
		{"insert", []record.Write{put("f", 3)}, fixed},
		{"two kinds", []record.Write{put("f", 4), put("g", 4)}, slices.Insert(slices.Clone(fixed), 0, "aggregate")},
		{"managed kind", []record.Write{put("m", 5)}, []string{"find", "insert", "commitTransaction"}},
		{"both sorts", []record.Write{put("m", 6), remove("g")}, slices.Insert(slices.Clone(fixed), 0, "find")},
		// At version 8.
		{"seen", []record.Write{seen(put("f", 8), 1, 5, false), seen(put("m", 8), 1, 7, false), seen(put("g", 8), 1, 7, true)}, trusted},
		{"seen managed kind", []record.Write{seen(remove("m"), 1, 8, false)}, trusted},
		{"one of two was seen", []record.Write{seen(put("f", 10), 1, 8, false), put("m", 10)}, []string{"aggregate", "find", "bulkWrite", "commitTransaction"}},
		{"changed since", []record.Write{seen(put("f", 4), 1, 5, false), seen(put("m", 6), 1, 10, false)}, slices.Concat(trusted[:1], []string{"abortTransaction", "aggregate", "find"}, trusted)},
		{"deletes", []record.Write{seen(remove("g"), 1, 8, false)}, trusted},
	} {
		if got := apply(byte(i+2), step.writes...); !slices.Equal(got, step.want) { //nolint:gosec // a handful
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	for kind, want := range map[string][]bson.Raw{
		"f": {wire.MustMarshal(bson.D{{Key: "_id", Value: "a"}, {Key: "x", Value: 4}})}, "g": nil,
		"m": {wire.MustMarshal(bson.D{{Key: "_id", Value: "a"}, {Key: "x", Value: 6}})},
	} {
		var got []bson.Raw
		for _, r := range e.Scan(record.ScanRequest{Token: toks[kind]}) {
			got = append(got, r.Doc)
		}
		if !slices.EqualFunc(got, want, func(a, b bson.Raw) bool { return bytes.Equal(a, b) }) {
			t.Errorf("%s has %v, want %v", kind, got, want)
		}
	}
}

// TestServerWithoutBulkWrite: an older server takes one command for each collection and verb, and is
// asked for bulkWrite once.
func TestServerWithoutBulkWrite(t *testing.T) {
	t.Parallel()
	for _, code := range []int{conn.CodeCommandNotFound, conn.CodeCommandNotSupported, conn.CodeAPIStrict} {
		w := storetest.Unreliable(t)
		tok, err := w.Provision(t.Context(), record.KindSpec{Name: "k", Fixed: true}, "k")
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		for version := range byte(3) {
			w.Fail(t, "bulkWrite", bson.E{Key: "errorCode", Value: code})
			w.Once("bulkWrite", func(bool) { asked++ })
			results, err := w.Apply(t.Context(), record.Batch{Tokens: storetest.TokensOf(tok), Epoch: 1, Groups: []record.GroupWrite{
				storetest.Group(version+1, storetest.Put(t, "k", bson.D{{Key: "_id", Value: "a"}, {Key: "x", Value: int32(version)}})),
			}})
			if err != nil || results[0].Outcome != record.Applied {
				t.Fatalf("error %d, version %d: %v, %v", code, version, results, err)
			}
			if docs := w.Docs(t, "k"); len(docs) != 1 || docs[0].Lookup("x").Int32() != int32(version) {
				t.Errorf("error %d, version %d: %v", code, version, docs)
			}
		}
		if asked != 1 {
			t.Errorf("error %d: bulkWrite was sent %d times", code, asked)
		}
	}
}

// TestLostBulkWrite: the answer to the writes of a transaction gets lost. The transaction begins anew.
func TestLostBulkWrite(t *testing.T) {
	t.Parallel()
	e, l := storetest.NewLossyEngine(t)
	toks := storetest.TokensOf(e.Collection("k", "k", true))
	group := storetest.Group(1, storetest.Put(t, "k", bson.D{{Key: "_id", Value: "a"}}))
	l.Lose("bulkWrite", 1)
	e.Want(e.Apply(1, toks, group), record.Applied)
	if l.Lost.Load() == 0 {
		t.Error("nothing was lost")
	}
	e.Want(e.Apply(1, toks, group), record.Stale)
}

// TestAnswersToBulkWrite: an answer that does not say that all was done is an error, and blames a group
// only if it names an operation.
func TestAnswersToBulkWrite(t *testing.T) {
	t.Parallel()
	answer := func(failures any, failed ...any) bson.D {
		return bson.D{{Key: "nErrors", Value: failures}, {Key: "cursor", Value: bson.D{{Key: "firstBatch", Value: append(bson.A{}, failed...)}, {Key: "id", Value: int64(0)}}}}
	}
	failure := func(at, code any) bson.D {
		return bson.D{{Key: "ok", Value: 0.0}, {Key: "idx", Value: at}, {Key: "code", Value: code}, {Key: "errmsg", Value: "E11000 duplicate key error collection: a.b index: mail_1 dup key: {}"}}
	}
	for _, tc := range []struct {
		name   string
		answer bson.D
		group  int // -1: nobody is to blame, -2: no error
		is     error
	}{
		{"all done", answer(int32(0)), -2, nil},
		{"done, in another type", answer(0.0), -2, nil},
		{"nothing", bson.D{}, -1, nil},
		{"no failures counted", answer(nil), -1, nil},
		{"no list", bson.D{{Key: "nErrors", Value: int32(0)}}, -1, nil},
		{"failures without a list", answer(int32(1)), -1, nil},
		{"a list without failures", answer(int32(0), failure(int32(0), int32(11000))), 7, record.ErrConflict},
		{"the first", answer(int32(1), failure(int32(0), int32(11000))), 7, record.ErrConflict},
		{"the last", answer(int32(1), failure(int32(2), int32(11000))), 9, record.ErrConflict},
		{"one too many", answer(int32(1), failure(int32(3), int32(11000))), -1, nil},
		{"one too few", answer(int32(1), failure(int32(-1), int32(11000))), -1, nil},
		{"no index", answer(int32(1), failure("0", int32(11000))), -1, nil},
		{"no code", answer(int32(1), failure(int32(0), nil)), -1, nil},
		{"a success that failed", answer(int32(1), failure(int32(0), int32(0))), -1, nil},
		{"a fence", answer(int32(1), failure(int32(1), int32(conn.CodeUUIDMismatch))), -1, record.ErrFenced},
		{"a full disk", answer(int32(1), failure(int32(1), int32(conn.CodeOutOfDiskSpace))), -1, nil},
	} {
		group, err := recordio.CombinedFailure(wire.MustMarshal(tc.answer), []int{7, 8}, []int{9})
		if (err == nil) != (tc.group == -2) || group != tc.group || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, of group %d", tc.name, err, group)
		}
	}
}
