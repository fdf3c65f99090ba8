package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/record"
)

const (
	oddLens = `lens: 1
operations:
  - add: {field: schema, value: 2}
`
	// Items as Mongoose writes them: their _id is not the first field.
	innerIDLens = `lens: 1
operations:
  - fanOut: {field: lines, as: list, kind: lines, key: "{id:objectId}", id: _id, parent: order, order: at}
`
	oddKinds = `
- {from: odd, to: odd, lens: packages.yaml}
- {from: orders, to: orders, lens: orders.yaml}
- {from: ranks, to: ranks, lens: ranks.yaml}
`
)

// oddDocuments are documents that a server stores and hardly anybody writes. Those that cannot
// be migrated have the reason.
func oddDocuments(t *testing.T) (docs []bson.Raw, refused map[string]string) {
	t.Helper()
	add := func(id bson.RawValue, fields ...[]byte) {
		at, doc := bsoncore.AppendDocumentStart(nil)
		doc = bsoncore.AppendValueElement(doc, "_id", bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
		for _, f := range fields {
			doc = append(doc, f...)
		}
		doc, err := bsoncore.AppendDocumentEnd(doc, at)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, doc)
	}
	named := func(name string, fields ...[]byte) { add(record.StringKey(name).Value(), fields...) }
	text := func(name, value string) []byte { return bsoncore.AppendStringElement(nil, name, value) }
	number := func(name string, n int32) []byte { return bsoncore.AppendInt32Element(nil, name, n) }
	keys := map[record.Key]bool{}
	for i, v := range recordtest.OddValues(t) {
		value := bsoncore.AppendValueElement(nil, "v", bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
		named(fmt.Sprintf("value %d", i), value, bsoncore.AppendDocumentElement(nil, "in", bsoncore.BuildDocument(nil, value)))
		key, err := record.KeyOf(v)
		switch {
		case err != nil:
			t.Fatal(err)
		case record.CheckKey(key) != nil, keys[key]: // the server has it once, or not at all
		case v.Type == bson.TypeEmbeddedDocument && bytes.Contains(v.Value, []byte(".")):
		default:
			keys[key] = true
			add(v, number("id", int32(i)))
		}
	}
	nested := func(depth int) []byte {
		doc := bsoncore.BuildDocument(nil, number("leaf", 1))
		for range depth {
			doc = bsoncore.BuildDocument(nil, bsoncore.AppendDocumentElement(nil, "d", doc))
		}
		return bsoncore.AppendDocumentElement(nil, "d", doc)
	}
	named("deep 100", nested(100))
	named("deep 177", nested(177))
	named("names twice", number("a", 1), text("a", "again"), number("a", 3))
	named("no name", number("", 1), bsoncore.AppendDocumentElement(nil, "", bsoncore.BuildDocument(nil, number("", 2))))
	named("dots", number("a.b", 1), number(".", 2), number("a..b", 3))
	named("dollars", number("$set", 1), number("$", 2), text("$where", "x"))
	named("dollar references", text("$ref", "c"), number("$id", 1))
	named("operators within", bsoncore.AppendDocumentElement(nil, "q", bsoncore.BuildDocument(nil, append(number("$set", 1), number("a.b", 2)...))))
	named("no text", text("v", "\xff\xfe\xc0"), number("\xff", 1))
	named("guards of others", bsoncore.AppendDocumentElement(nil, "_dbc", bsoncore.BuildDocument(nil, number("g", 1))))
	named("time of zero", bsoncore.AppendTimestampElement(nil, "ts", 0, 0))
	named("long key "+strings.Repeat("k", 20<<10), number("n", 1))
	tooLong := "too long " + strings.Repeat("k", record.MaxKey)
	named(tooLong, number("n", 1))
	filled := func(bytes int) []byte {
		return bsoncore.AppendBinaryElement(nil, "filler", 0, make([]byte, bytes))
	}
	named("large", filled(15<<20))
	const rest = 40 // what a document has besides, less than "schema" takes
	named("full", filled(16<<20-rest))
	return docs, map[string]string{
		record.StringKey(tooLong).String(): record.ErrLongKey.Error(),
		"full":                             record.ErrOversize.Error(),
	}
}

// TestOddRecords: no record keeps a shard from going on, however odd it is. Each of them is
// copied, changed, deleted and inserted anew, comes over as it is or is parked alone with a
// reason that is true, and goes through a switch and back, changed in both versions. Records of
// 9 MB and rings of 4 MB exchange unique values while clients write others.
func TestOddRecords(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{copy: "{auto: true, workers: 2}", lens: oddLens, kinds: oddKinds})
	s.write("orders.yaml", innerIDLens)
	s.write("ranks.yaml", oddLens)
	odd, ranks := s.db["v1"].Collection("odd"), s.db["v1"].Collection("ranks")
	docs, refused := oddDocuments(t)
	insert := func(c *mongo.Collection, doc bson.Raw) {
		t.Helper()
		if err := undisturbed(func() error { _, err := c.InsertOne(ctx, doc); return err }); err != nil {
			t.Fatalf("insert %.200s: %v", doc.Lookup("_id"), err)
		}
	}
	for _, doc := range docs {
		insert(odd, doc)
	}
	c := collections{t}
	// Ranks are unique: two records of 9 MB have them, five of 4 MB, and pairs of small ones.
	if _, err := ranks.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "rank", Value: 1}}, Options: options.Index().SetUnique(true)}); err != nil {
		t.Fatal(err)
	}
	rings, sizes := [][]int{{0, 1}, {2, 3, 4, 5, 6}}, []int{9 << 20, 4 << 20}
	const ringed, others = 107, 200
	for i := range 50 {
		rings, sizes = append(rings, []int{7 + 2*i, 8 + 2*i}), append(sizes, 10)
	}
	for r, ring := range rings {
		for _, n := range ring {
			c.ok(ranks.InsertOne(ctx, bson.D{{Key: "_id", Value: n}, {Key: "rank", Value: n}, {Key: "filler", Value: make([]byte, sizes[r])}}))
		}
	}
	var small []any // written all the time beside the exchanges
	for i := range others {
		small = append(small, bson.D{{Key: "_id", Value: ringed + i}, {Key: "rank", Value: ringed + i}})
	}
	c.ok(ranks.InsertMany(ctx, small))
	told := map[int]int{} // the latest acknowledged value of each of these
	// beside does something while clients write other records. None of these writes is lost.
	beside := func(version string, do func()) {
		t.Helper()
		stop := s.touches(ctx, s.db[version].Collection("ranks"), ringed, others, told)
		defer func() {
			stop()
			s.awaitTouched(ctx, told)
		}()
		do()
	}
	exchange := func(version string, by int) {
		t.Helper()
		ranks := s.db[version].Collection("ranks")
		err := transaction(ctx, ranks, func(ctx context.Context) error {
			for _, away := range []bool{true, false} {
				for _, ring := range rings {
					for i, n := range ring {
						rank := ring[(i+by)%len(ring)]
						if away {
							rank = -1 - n
						}
						if _, err := ranks.UpdateByID(ctx, n, bson.D{{Key: "$set", Value: bson.D{{Key: "rank", Value: rank}}}}); err != nil {
							return err
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const id = `{"$oid":"655f1e5e00000000000000%02x"}`
	for i := range 20 {
		c.insert(s.db["v1"], "orders", `{"_id":`+id+`,"lines":[{"n":1,"_id":`+id+`},{"_id":`+id+`,"n":2}]}`, i, 2*i, 2*i+1)
	}
	s.controller("first", breakPoint{}).ready(ctx)
	s.awaitShards(ctx, "first")
	s.awaitOdd(ctx, refused, false)
	beside("v1", func() {
		exchange("v1", 1)
		s.awaitRanks(ctx, rings, 1)
	})

	// Each is changed, and each third one goes; of those some come back under an _id that only
	// looks otherwise.
	lookalikes := 0
	for i, doc := range docs {
		byID := bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: doc.Lookup("_id")}}}}
		if i%3 != 0 {
			if len(doc) < 1<<20 {
				c.ok(nil, undisturbed(func() error {
					_, err := odd.UpdateOne(ctx, byID, bson.D{{Key: "$set", Value: bson.D{{Key: "touched", Value: true}}}})
					return err
				}))
			}
			continue
		}
		c.ok(nil, undisturbed(func() error { _, err := odd.DeleteOne(ctx, byID); return err }))
		delete(refused, doc.Lookup("_id").String())
		if i%2 == 0 {
			again, other := lookalike(doc)
			insert(odd, again)
			if other {
				lookalikes++
			}
		}
	}
	if lookalikes == 0 {
		t.Error("no record came back under another _id")
	}
	s.awaitOdd(ctx, refused, false)
	for key := range refused {
		if _, err := s.record.Waive(ctx, "odd", key); err != nil {
			t.Fatal(err)
		}
	}
	s.begin(ctx)
	s.await(ctx, "the flip", flipped("v2"))
	s.awaitOdd(ctx, refused, true)
	s.awaitRanks(ctx, rings, 1)
	s.awaitTouched(ctx, told)
	c.has(s.db["v2"], "lines", fmt.Sprintf(`{"_id":`+id+`,"order":`+id+`,"at":0,"n":1}`, 14, 7))

	// The same in v2: changes, deletes, and records that come back under an _id that looks otherwise.
	beside("v2", func() {
		exchange("v2", 2)
		s.awaitRanks(ctx, rings, 2)
	})
	lookalikes = s.changeOdd(ctx)
	if lookalikes == 0 {
		t.Error("no record of v2 came back under another _id")
	}
	s.awaitOdd(ctx, refused, true)
	s.beginTo(ctx, "v1")
	s.await(ctx, "the rollback", flipped("v1"))
	s.awaitOdd(ctx, refused, true)
	s.awaitRanks(ctx, rings, 2)
	s.awaitTouched(ctx, told)
}

// touches writes so many ranks from one on, again and again, until stop is called. It notes each
// acknowledged value in told. Values only grow, so a repeated write and a later call differ.
func (s *system) touches(ctx context.Context, ranks *mongo.Collection, from, n int, told map[int]int) (stop func()) {
	ended := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 1 + slices.Max(append(slices.Collect(maps.Values(told)), 0)); ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond): // clients think
				err := undisturbed(func() error {
					_, err := ranks.UpdateByID(ctx, from+i%n, bson.D{{Key: "$set", Value: bson.D{{Key: "touched", Value: i}}}})
					return err
				})
				if err != nil {
					if ctx.Err() == nil {
						s.t.Errorf("small traffic: %v", err)
					}
					return
				}
				told[from+i%n] = i
			}
		}
	})
	return func() {
		close(ended)
		writing.Wait()
	}
}

// changeOdd changes the odd records of v2, and deletes each third one. Half of those come back, texts
// under a symbol and symbols under a text. It returns how many did.
func (s *system) changeOdd(ctx context.Context) (lookalikes int) {
	s.t.Helper()
	odd := s.db["v2"].Collection("odd")
	cursor, err := odd.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		s.t.Fatal(err)
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		s.t.Fatal(err)
	}
	for i, doc := range docs {
		if len(doc) >= 1<<20 {
			continue
		}
		byID := bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: doc.Lookup("_id")}}}}
		again, other := lookalike(doc)
		err := undisturbed(func() error {
			if i%3 != 0 {
				// Fields that v1 has touched, so that each stays in its place.
				touched := append(byID, bson.E{Key: "touched", Value: true})
				_, err := odd.UpdateOne(ctx, touched, bson.D{{Key: "$set", Value: bson.D{{Key: "touched", Value: false}}}})
				return err
			}
			_, err := odd.DeleteOne(ctx, byID)
			return err
		})
		if err == nil && i%6 == 0 {
			if other {
				lookalikes++
			}
			err = undisturbed(func() error { _, err := odd.InsertOne(ctx, again); return err })
		}
		if err != nil {
			s.t.Fatalf("change %.200s: %v", doc.Lookup("_id"), err)
		}
	}
	return lookalikes
}

// awaitRanks waits until both versions have the ranks of an exchange by so many places.
func (s *system) awaitRanks(ctx context.Context, rings [][]int, by int) {
	s.t.Helper()
	eventually(ctx, s.t, "the exchange", func() error {
		for _, version := range []string{"v1", "v2"} {
			got, err := s.ranks(ctx, version)
			if err != nil {
				return err
			}
			for _, ring := range rings {
				for i, n := range ring {
					if want := ring[(i+by)%len(ring)]; got[n].Rank != want {
						return fmt.Errorf("rank of %d in %s is %d, want %d", n, version, got[n].Rank, want)
					}
				}
			}
		}
		return nil
	})
}

// awaitTouched waits until both versions have the acknowledged small writes.
func (s *system) awaitTouched(ctx context.Context, told map[int]int) {
	s.t.Helper()
	eventually(ctx, s.t, "the small writes", func() error {
		for _, version := range []string{"v1", "v2"} {
			got, err := s.ranks(ctx, version)
			if err != nil {
				return err
			}
			for n, want := range told {
				if r := got[n]; r.Touched != want || r.Rank != n {
					return fmt.Errorf("%d in %s is %+v, and was touched as %d", n, version, r, want)
				}
			}
		}
		return nil
	})
}

// ranked is a record of ranks without its filler.
type ranked struct {
	ID            int `bson:"_id"`
	Rank, Touched int
}

// ranks reads the ranks of a version where they are now, by _id.
func (s *system) ranks(ctx context.Context, version string) (map[int]ranked, error) {
	d, err := s.record.Get(ctx)
	if err != nil {
		return nil, err
	}
	ns, _ := d.Namespace(version)
	k, _ := ns.Kind("ranks")
	cursor, err := s.db[version].Collection(k.Physical).Find(ctx, bson.D{}, options.Find().SetProjection(bson.D{{Key: "filler", Value: 0}}))
	if err != nil {
		return nil, err
	}
	var have []ranked
	if err := cursor.All(ctx, &have); err != nil {
		return nil, err
	}
	got := map[int]ranked{}
	for _, h := range have {
		got[h.ID] = h
	}
	return got, nil
}

// undisturbed repeats a write that a fence of another test on the shared server has interrupted. Such a
// fence kills the sessions of open transactions. The kill can meet a statement of the transaction, or
// the next write, for which a driver uses the same session.
func undisturbed(write func() error) error {
	const interrupted = 11601
	for {
		err := write()
		var refused mongo.ServerError
		if !errors.As(err, &refused) || !refused.HasErrorCode(interrupted) {
			return err
		}
	}
}

// transaction runs do in a transaction of the collection's server, and repeats it as undisturbed does.
func transaction(ctx context.Context, at *mongo.Collection, do func(context.Context) error) error {
	return undisturbed(func() error {
		return at.Database().Client().UseSession(ctx, func(ctx context.Context) error {
			_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, do(ctx) })
			return err
		})
	})
}

// lookalike is a document whose _id is a symbol in place of the string of the same text, or the other
// way round. A server takes both for one _id. Another document stays as it is.
func lookalike(doc bson.Raw) (again bson.Raw, differs bool) {
	const typeOfID = 4 // _id is the first field, behind the length
	as := map[bson.Type]bson.Type{bson.TypeString: bson.TypeSymbol, bson.TypeSymbol: bson.TypeString}
	other := as[bson.Type(doc[typeOfID])]
	if other == 0 {
		return doc, false
	}
	again = slices.Clone(doc)
	again[typeOfID] = byte(other)
	return again, true
}

// awaitOdd waits until v2 holds every document of v1 as the lens makes it, but for those that
// are parked, which are these and no others. Behind the switch they are the old version's alone,
// and kept.
func (s *system) awaitOdd(ctx context.Context, refused map[string]string, switched bool) {
	s.t.Helper()
	eventually(ctx, s.t, "the odd records", func() error {
		ps, err := s.record.ParkedNow(ctx)
		if err != nil {
			return err
		}
		left := maps.Clone(refused)
		for _, p := range ps {
			why, known := left[p.Key]
			if !known || !p.Kept && !strings.Contains(p.Error, why) {
				return fmt.Errorf("%s %.80s is parked for %.300s", p.Kind, p.Key, p.Error)
			}
			delete(left, p.Key)
		}
		if len(left) > 0 && !switched {
			return fmt.Errorf("%.300v are not parked", left)
		}
		d, err := s.record.Get(ctx)
		if err != nil {
			return err
		}
		all := map[string]map[record.Key]bson.Raw{}
		for _, version := range []string{"v1", "v2"} {
			ns, _ := d.Namespace(version)
			k, _ := ns.Kind("odd")
			cursor, err := s.db[version].Collection(k.Physical).Find(ctx, bson.D{})
			if err != nil {
				return err
			}
			all[version] = map[record.Key]bson.Raw{}
			for cursor.Next(ctx) {
				key, err := record.KeyOfDoc(cursor.Current)
				if err != nil {
					return err
				}
				all[version][key] = slices.Clone(cursor.Current)
			}
			if err := errors.Join(cursor.Err(), cursor.Close(ctx)); err != nil {
				return err
			}
		}
		for key, doc := range all["v1"] {
			if _, parked := refused[key.String()]; parked {
				continue
			}
			want := bytes.Clone(doc[:len(doc)-1])
			want = append(bsoncore.AppendInt32Element(want, "schema", 2), 0)
			have := all["v2"][key]
			if len(have) != len(want) || !bytes.Equal(have[4:], want[4:]) {
				return fmt.Errorf("%s %.80s is %.200s, want %.200s", key.Value().Type, key, have, doc)
			}
		}
		if n := len(all["v1"]) - len(refused); len(all["v2"]) != n {
			return fmt.Errorf("v2 has %d documents, want %d", len(all["v2"]), n)
		}
		return nil
	})
}
