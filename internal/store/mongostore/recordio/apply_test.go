package recordio_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// TestStaleTokens: after a rename every command with the earlier token is refused and
// without effect, also when a collection has taken the old name.
func TestStaleTokens(t *testing.T) {
	t.Parallel()
	for _, impostor := range []bool{false, true} {
		for _, fixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("impostor %t fixed %t", impostor, fixed), func(t *testing.T) {
				t.Parallel()
				e := storetest.NewEngine(t)
				stale := e.Collection("k", "k.n1", fixed)
				toks := storetest.TokensOf(stale)
				e.Want(e.Apply(1, toks, storetest.Group(1, storetest.Put(t, "k", bson.D{{Key: "_id", Value: "a"}}))), record.Applied)
				e.Rename("k.n1", "k.n2")
				if impostor {
					e.Collection("k", "k.n1", fixed)
				}
				key := record.StringKey("a")
				calls := map[string]func() error{
					"scan": func() error {
						_, err := e.NS.Scan(t.Context(), record.ScanRequest{Token: stale})
						return err
					},
					"read": func() error {
						_, err := e.NS.Read(t.Context(), record.ReadRequest{Tokens: toks, Select: []record.Selector{{Kind: "k", Key: key}}})
						return err
					},
				}
				for name, do := range map[string]func(record.Batch) error{
					"apply": func(b record.Batch) error { _, err := e.NS.Apply(t.Context(), b); return err },
					"load":  func(b record.Batch) error { _, err := e.NS.Load(t.Context(), b); return err },
				} {
					for i, w := range []record.GroupWrite{
						storetest.Group(9, storetest.Put(t, "k", bson.D{{Key: "_id", Value: "new"}})),
						storetest.Group(9, storetest.Put(t, "k", bson.D{{Key: "_id", Value: "a"}, {Key: "x", Value: 1}})),
						storetest.Group(9, storetest.Remove("k", key)),
						storetest.Group(9, storetest.Put(t, "k", bson.D{{Key: "_id", Value: "n1"}}), storetest.Put(t, "k", bson.D{{Key: "_id", Value: "n2"}})),
					} {
						if name == "load" && w.Writes[0].Doc == nil {
							continue // nothing is loaded
						}
						calls[fmt.Sprint(name, i)] = func() error {
							return do(record.Batch{Tokens: toks, Epoch: 1, Groups: []record.GroupWrite{w}})
						}
					}
				}
				for name, call := range calls {
					if err := call(); !errors.Is(err, record.ErrFenced) {
						t.Errorf("%s: %v, want ErrFenced", name, err)
					}
				}
				now := e.Scan(record.ScanRequest{Token: e.Token("k", "k.n2", fixed), Guards: true})
				if len(now) != 1 || now[0].Guard.Version != storetest.Version(1) || now[0].Tombstone {
					t.Errorf("after stale commands: %+v", now)
				}
				names, err := e.NS.DB.ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: "k.n1"}})
				if err != nil || (len(names) == 1) != impostor {
					t.Errorf("collections of the old name: %v, %v", names, err)
				}
				if impostor {
					if n, err := e.NS.DB.Collection("k.n1").CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
						t.Errorf("%d documents under the old name, %v", n, err)
					}
				}
			})
		}
	}
}

// TestModerateValidator: a document that was there before a moderate validator comes along, and its
// change too. A strict validator of another kind still refuses, in the same transaction.
func TestModerateValidator(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	toks := record.Tokens{}
	for _, level := range []string{"moderate", "strict"} {
		tok, err := e.NS.Provision(t.Context(), record.KindSpec{Name: level, Fixed: true, Shape: record.Shape{Options: wire.MustMarshal(bson.D{
			{Key: "validator", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$exists", Value: true}}}}}, {Key: "validationLevel", Value: level},
		})}}, level)
		if err != nil {
			t.Fatal(err)
		}
		toks[level] = tok
	}
	groups := func(version byte, doc bson.D) []record.GroupWrite {
		return []record.GroupWrite{storetest.Group(version, storetest.Put(t, "moderate", doc)), storetest.Group(version, storetest.Put(t, "strict", doc))}
	}
	for version, doc := range []bson.D{{{Key: "_id", Value: "old"}}, {{Key: "_id", Value: "old"}, {Key: "x", Value: 1}}} {
		res := e.Apply(1, toks, groups(byte(version+1), doc)...)
		e.Want(res, record.Applied, record.Refused)
		if have := e.Scan(record.ScanRequest{Token: toks["moderate"]}); len(have) != 1 || !bytes.Equal(have[0].Doc, wire.MustMarshal(doc)) {
			t.Errorf("there is %v, want %v", have, doc)
		}
	}
	if have := e.Scan(record.ScanRequest{Token: toks["strict"]}); len(have) != 0 {
		t.Errorf("the strict kind took %v", have)
	}
}

// TestFenceDuringApply: a transaction that was open when the rename came either is in
// what the rename moved, or had no effect at all.
func TestFenceDuringApply(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("m")
	var writers errgroup.Group
	acked := make([][]string, 4)
	started := make(chan struct{}, len(acked))
	for w := range acked {
		writers.Go(func() error {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d/%05d", w, i)
				_, err := e.NS.Apply(t.Context(), record.Batch{Tokens: storetest.TokensOf(tok), Epoch: 1, Groups: []record.GroupWrite{
					storetest.Group(1, storetest.Put(t, "m", bson.D{{Key: "_id", Value: id}}), storetest.Put(t, "m", bson.D{{Key: "_id", Value: id + "/b"}})),
				}})
				if errors.Is(err, record.ErrFenced) {
					return nil
				}
				if err != nil {
					return err
				}
				acked[w] = append(acked[w], id)
				if i == 5 {
					started <- struct{}{}
				}
			}
		})
	}
	for range acked {
		<-started
	}
	e.Rename("m.n1", "m.n2")
	before := keysOf(e.Scan(record.ScanRequest{Token: e.Token("m", "m.n2", false)}))
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	after := keysOf(e.Scan(record.ScanRequest{Token: e.Token("m", "m.n2", false)}))
	if !slices.Equal(before, after) {
		t.Errorf("%d records at the fence, %d later", len(before), len(after))
	}
	for _, ids := range acked {
		for _, id := range ids {
			for _, name := range []string{id, id + "/b"} {
				if !slices.Contains(after, record.StringKey(name)) {
					t.Errorf("acknowledged %s is not there", name)
				}
			}
		}
	}
}

// TestUnique: values of a unique index that move between records of one batch are no
// conflict, in whatever order the groups stand; a true one refuses one group, names the
// index, and leaves the others alone.
func TestUnique(t *testing.T) {
	t.Parallel()
	for _, fixed := range []bool{false, true} {
		t.Run(fmt.Sprintf("fixed %t", fixed), func(t *testing.T) {
			t.Parallel()
			e := storetest.NewEngine(t)
			tok := e.Collection("k", "k", fixed)
			toks := storetest.TokensOf(tok)
			_, err := e.Coll(tok).Indexes().CreateOne(t.Context(), mongo.IndexModel{
				Keys:    bson.D{{Key: "mail", Value: 1}},
				Options: options.Index().SetUnique(true).SetName("by mail").SetPartialFilterExpression(bson.D{{Key: "mail", Value: bson.D{{Key: "$exists", Value: true}}}}),
			})
			if err != nil {
				t.Fatal(err)
			}
			mail := func(v byte, id, mail string) record.GroupWrite {
				return storetest.Group(v, storetest.Put(t, "k", bson.D{{Key: "_id", Value: id}, {Key: "mail", Value: mail}}))
			}
			ok := []record.Outcome{record.Applied, record.Applied, record.Applied}
			e.Want(e.Apply(1, toks, mail(1, "a", "1"), mail(1, "b", "2"), mail(1, "c", "3")), ok...)
			e.Want(e.Apply(1, toks, mail(2, "a", "2"), mail(2, "b", "3"), mail(2, "c", "1")), ok...) // a ring
			e.Want(e.Apply(1, toks, mail(3, "new", "1"), mail(3, "c", "4"), storetest.Group(3, storetest.Remove("k", record.StringKey("a")))), ok...)
			e.Want(e.Apply(1, toks, mail(4, "newer", "2")), record.Applied) // which the tombstone freed

			var batch []record.GroupWrite
			var want []record.Outcome
			for i := range 200 {
				if i%40 == 7 {
					batch = append(batch, mail(5, fmt.Sprintf("x%03d", i), "4"))
					want = append(want, record.Refused)
				} else {
					batch = append(batch, mail(5, fmt.Sprintf("x%03d", i), fmt.Sprintf("m%d", i)))
					want = append(want, record.Applied)
				}
			}
			for _, do := range []func(uint64, record.Tokens, ...record.GroupWrite) []record.Result{e.Load, e.Apply} {
				res := do(1, toks, batch...)
				e.Want(res, want...)
				for i, r := range res {
					if r.Outcome != record.Refused {
						continue
					}
					if !errors.Is(r.Err, record.ErrConflict) || !strings.Contains(r.Err.Error(), "by mail") {
						t.Errorf("group %d: %v", i, r.Err)
					}
				}
				for i := range batch {
					batch[i].Version = storetest.Version(6)
					batch[i].Group += "'"
				}
			}
			if n := len(e.Scan(record.ScanRequest{Token: tok})); n != 4+195 {
				t.Errorf("%d records, want %d", n, 4+195)
			}
		})
	}
}

// TestValidator: what a target's validator refuses is one group's trouble.
func TestValidator(t *testing.T) {
	t.Parallel()
	for _, fixed := range []bool{false, true} {
		e := storetest.NewEngine(t)
		tok := e.Collection("k", "k", fixed)
		toks := storetest.TokensOf(tok)
		if err := e.NS.DB.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "k"}, {Key: "validator", Value: bson.D{{Key: "bad", Value: bson.D{{Key: "$exists", Value: false}}}}}}).Err(); err != nil {
			t.Fatal(err)
		}
		good := storetest.Group(1, storetest.Put(t, "k", bson.D{{Key: "_id", Value: "good"}}))
		bad := storetest.Group(1, storetest.Put(t, "k", bson.D{{Key: "_id", Value: "bad"}, {Key: "bad", Value: "secret"}}))
		res := e.Load(1, toks, bad, good)
		e.Want(res, record.Refused, record.Applied)
		if strings.Contains(res[0].Err.Error(), "secret") {
			t.Errorf("the error shows the document: %v", res[0].Err)
		}
		good.Version = storetest.Version(2)
		e.Want(e.Apply(1, toks, bad, good), record.Refused, record.Applied)
	}
}

// TestRefusedDocuments: what cannot be stored is refused before the database is asked.
func TestRefusedDocuments(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("m")
	good := storetest.Group(1, storetest.Put(t, "m", bson.D{{Key: "_id", Value: "good"}}))
	reserved := storetest.Group(1, storetest.Put(t, "m", bson.D{{Key: "_id", Value: "r"}, {Key: "_dbc", Value: 1}}))
	noID := storetest.Group(1, record.Write{Kind: "m", Key: record.StringKey("n"), Doc: storetest.Raw(t, bson.D{{Key: "x", Value: 1}})})
	cut := storetest.Group(1, record.Write{Kind: "m", Key: record.StringKey("c"), Doc: storetest.Raw(t, bson.D{{Key: "_id", Value: "c"}})[:8]})
	inner := slices.Clone(storetest.Raw(t, bson.D{{Key: "_id", Value: "i"}, {Key: "d", Value: bson.D{{Key: "a", Value: "text"}}}}))
	inner[len(inner)-9] = 0x7f // the length of the inner string
	malformed := storetest.Group(1, record.Write{Kind: "m", Key: record.StringKey("i"), Doc: inner})
	e.Want(e.Load(1, storetest.TokensOf(tok), reserved, noID, good, cut, malformed),
		record.Refused, record.Refused, record.Applied, record.Refused, record.Refused)
	good.Version = storetest.Version(2)
	e.Want(e.Apply(1, storetest.TokensOf(tok), reserved, noID, good, cut, malformed),
		record.Refused, record.Refused, record.Applied, record.Refused, record.Refused)
}

// TestNumberTypes: equal ids of another number type are one record.
func TestNumberTypes(t *testing.T) {
	t.Parallel()
	for _, fixed := range []bool{false, true} {
		e := storetest.NewEngine(t)
		tok := e.Collection("k", "k", fixed)
		toks := storetest.TokensOf(tok)
		dec, err := bson.ParseDecimal128("5.00")
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range []any{int32(5), int64(5), 5.0, dec} {
			w := storetest.Put(t, "k", bson.D{{Key: "_id", Value: id}, {Key: "i", Value: i}})
			e.Want(e.Apply(1, toks, storetest.Group(byte(10*i+1), w)), record.Applied)
			e.Want(e.Load(1, toks, storetest.Group(byte(10*i+2), w)), record.Changed)
			recs := e.Scan(record.ScanRequest{Token: tok, Guards: true})
			if len(recs) != 1 || recs[0].Key != w.Key || recs[0].Doc.Lookup("i").AsInt64() != int64(i) {
				t.Errorf("fixed %t, %T: %+v", fixed, id, recs)
			}
			e.Want(e.Apply(1, toks, storetest.Group(byte(10*i+3), storetest.Remove("k", w.Key))), record.Applied)
		}
	}
}

// TestWireOrder: a document whose _id stands elsewhere is stored with it first, as the
// server would, and a guard that a stranger moved is still found.
func TestWireOrder(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	tok := e.Managed("m")
	w := record.Write{Kind: "m", Key: record.StringKey("a"), Doc: storetest.Raw(t, bson.D{{Key: "x", Value: 1}, {Key: "_id", Value: "a"}, {Key: "$y", Value: 2}})}
	e.Want(e.Apply(1, storetest.TokensOf(tok), storetest.Group(1, w)), record.Applied)
	e.Want(e.Apply(1, storetest.TokensOf(tok), storetest.Group(2, w)), record.Applied)
	want := storetest.Raw(t, bson.D{{Key: "_id", Value: "a"}, {Key: "x", Value: 1}, {Key: "$y", Value: 2}})
	if recs := e.Scan(record.ScanRequest{Token: tok}); len(recs) != 1 || !bytes.Equal(recs[0].Doc, want) {
		t.Errorf("read %v", recs)
	}
	if _, err := e.Coll(tok).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "z", Value: 3}}}}); err != nil {
		t.Fatal(err)
	}
	want = storetest.Raw(t, bson.D{{Key: "_id", Value: "a"}, {Key: "x", Value: 1}, {Key: "$y", Value: 2}, {Key: "z", Value: int32(3)}})
	recs := e.Scan(record.ScanRequest{Token: tok, Guards: true})
	if len(recs) != 1 || !bytes.Equal(recs[0].Doc, want) || recs[0].Guard.Version != storetest.Version(2) {
		t.Errorf("read %v", recs)
	}
}

// TestSplitBatches: more than one transaction and more than one command hold.
func TestSplitBatches(t *testing.T) {
	t.Parallel()
	e := storetest.NewEngine(t)
	m, f := e.Managed("m"), e.Collection("f", "f", true)
	var groups []record.GroupWrite
	for i := range 5000 {
		id := fmt.Sprintf("%05d", i)
		size := 10
		if i%500 == 0 {
			size = 5 << 20
		}
		groups = append(groups, storetest.Group(1,
			storetest.Put(t, "m", bson.D{{Key: "_id", Value: id}, {Key: "b", Value: make([]byte, size)}}),
			storetest.Put(t, "f", bson.D{{Key: "_id", Value: i}})))
	}
	toks := storetest.TokensOf(m, f)
	all := slices.Repeat([]record.Outcome{record.Applied}, len(groups))
	e.Want(e.Load(1, toks, groups...), all...)
	for i := range groups {
		groups[i].Version = storetest.Version(2)
	}
	e.Want(e.Apply(1, toks, groups...), all...)
	for _, tok := range toks {
		if n := len(e.Scan(record.ScanRequest{Token: tok, Guards: true})); n != len(groups) {
			t.Errorf("%s: %d records, want %d", tok.Kind, n, len(groups))
		}
	}
}
