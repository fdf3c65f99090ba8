package fanout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

const (
	oid  = `{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"}`
	hexa = "655f1e5e5e5e5e5e5e5e5e5e"
)

// TestFanOutOfObjectIDs takes embedded lists, maps and objects out of documents with
// ObjectIds, as a driver for Node.js writes them, into records with composed keys, and back.
func TestFanOutOfObjectIDs(t *testing.T) {
	t.Parallel()
	const (
		o2       = `{"$oid":"755f1e5e5e5e5e5e5e5e5e5e"}`
		hex2     = "755f1e5e5e5e5e5e5e5e5e5e"
		renames  = "key: {from: '{user:objectId}', to: 'users/{user}'}\n"
		byTenant = "key: {from: '{user:objectId}', to: {tenant: '{t}', id: '{user:objectId}'}, with: {t: acme}}\n"
	)
	for _, tc := range []struct {
		name, lens string
		old        string
		now        []string
	}{
		{"the parent keeps its ObjectId", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "{_key:objectId}/{index}", parent: order}`),
			`old {"_id":` + oid + `,"lines":[{"n":1},{"n":2}]}`,
			[]string{`new {"_id":` + oid + `}`, `lines {"_id":"` + hexa + `/0","order":` + oid + `,"n":1}`, `lines {"_id":"` + hexa + `/1","order":` + oid + `,"n":2}`}},
		{"items with an _id, in a text", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "{_key:objectId}/lines/{id:objectId}", id: _id, order: at}`),
			`old {"_id":` + oid + `,"lines":[{"n":1,"_id":` + o2 + `},{"_id":` + oid + `,"n":2}]}`,
			[]string{`new {"_id":` + oid + `}`, `lines {"_id":"` + hexa + `/lines/` + hex2 + `","at":0,"n":1}`, `lines {"_id":"` + hexa + `/lines/` + hexa + `","at":1,"n":2}`}},
		{"items with an _id, that is the record's", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "{id:objectId}", id: _id, parent: order, order: at}`),
			`old {"_id":` + oid + `,"lines":[{"n":1,"_id":` + o2 + `}]}`,
			[]string{`new {"_id":` + oid + `}`, `lines {"_id":` + o2 + `,"order":` + oid + `,"at":0,"n":1}`}},
		{"items with an _id, in a document", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: {order: "{_key}", line: "{item._id}"}, id: _id, parent: order, order: at}`),
			`old {"_id":` + oid + `,"lines":[{"n":1,"_id":` + o2 + `},{"n":1,"_id":5}]}`,
			[]string{`new {"_id":` + oid + `}`, `lines {"_id":{"order":` + oid + `,"line":` + o2 + `},"order":` + oid + `,"at":0,"n":1}`, `lines {"_id":{"order":` + oid + `,"line":5},"order":` + oid + `,"at":1,"n":1}`}},
		{"sorted by their _id", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "{_key:int}/{id:objectId}", id: _id}`),
			`old {"_id":7,"lines":[{"_id":` + oid + `,"n":1},{"_id":` + o2 + `}]}`,
			[]string{`new {"_id":7}`, `lines {"_id":"7/` + hexa + `","n":1}`, `lines {"_id":"7/` + hex2 + `"}`}},
		{"a document of the parent's id and the place", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: {order: "{_key}", n: "{index}"}, value: v, parent: order}`),
			`old {"_id":` + oid + `,"lines":["a",5]}`,
			[]string{`new {"_id":` + oid + `}`, `lines {"_id":{"order":` + oid + `,"n":0},"order":` + oid + `,"v":"a"}`, `lines {"_id":{"order":` + oid + `,"n":1},"order":` + oid + `,"v":5}`}},
		{"a document with a field of the item", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: {order: "{_key}", sku: "{id}"}, id: sku, parent: order, order: at}`),
			`old {"_id":` + oid + `,"lines":[{"sku":{"$numberLong":"7"}},{"sku":"7"}]}`,
			[]string{`new {"_id":` + oid + `}`, `lines {"_id":{"order":` + oid + `,"sku":{"$numberLong":"7"}},"order":` + oid + `,"at":0,"sku":{"$numberLong":"7"}}`, `lines {"_id":{"order":` + oid + `,"sku":"7"},"order":` + oid + `,"at":1,"sku":"7"}`}},
		{"the parent becomes a name", renames + lenstest.Orders(linesByOrder),
			`old {"_id":` + oid + `,"lines":[{"sku":"b"}]}`,
			[]string{`new {"_id":"users/` + hexa + `"}`, `lines {"_id":"users/` + hexa + `/b","order":"users/` + hexa + `","position":0,"sku":"b"}`}},
		{"the parent's variable alone", renames + lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: {user: "{user:objectId}", n: "{index}"}, parent: user}`),
			`old {"_id":` + oid + `,"lines":[{"a":1}]}`,
			[]string{`new {"_id":"users/` + hexa + `"}`, `lines {"_id":{"user":` + oid + `,"n":0},"user":"users/` + hexa + `","a":1}`}},
		{"the parent becomes a document", byTenant + lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "{user}/{index}", parent: order}`),
			`old {"_id":` + oid + `,"lines":[{"a":1}]}`,
			[]string{`new {"_id":{"tenant":"acme","id":` + oid + `}}`, `lines {"_id":"` + hexa + `/0","order":{"tenant":"acme","id":` + oid + `},"a":1}`}},
		{"the parent's document within", byTenant + lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: {of: "{_key}", n: "{index:long}"}, parent: order}`),
			`old {"_id":` + oid + `,"lines":[{"a":1}]}`,
			[]string{`new {"_id":{"tenant":"acme","id":` + oid + `}}`, `lines {"_id":{"of":{"tenant":"acme","id":` + oid + `},"n":{"$numberLong":"0"}},"order":{"tenant":"acme","id":` + oid + `},"a":1}`}},
		{"a map whose entries are named by ObjectIds", lenstest.Orders(`fanOut: {field: notes, as: map, kind: notes, key: {user: "{_key}", note: "{id:objectId}"}, parent: user}`),
			`old {"_id":5,"notes":{"` + hexa + `":{"t":1}}}`,
			[]string{`new {"_id":5}`, `notes {"_id":{"user":5,"note":` + oid + `},"user":5,"t":1}`}},
		{"an object under the same key", lenstest.Orders(`fanOut: {field: profile, as: object, kind: profiles, key: "{_key}"}`),
			`old {"_id":` + oid + `,"profile":{"a":1}}`,
			[]string{`new {"_id":` + oid + `}`, `profiles {"_id":` + oid + `,"a":1}`}},
		{"an object under the parent's id of old", renames + lenstest.Orders(`fanOut: {field: profile, as: object, kind: profiles, key: "{user:objectId}"}`),
			`old {"_id":` + oid + `,"profile":{"a":1}}`,
			[]string{`new {"_id":"users/` + hexa + `"}`, `profiles {"_id":` + oid + `,"a":1}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Parse(t, tc.lens)
			s := l.Spec("old", "new")
			old, want := lenstest.FromJSON(t, tc.old), lenstest.FromJSON(t, tc.now...)
			now := lenstest.MustTake(t, s.Up, old, nil)
			if got := lenstest.Show(t, now); got != lenstest.Show(t, want) {
				t.Fatalf("got\n%s\nwant\n%s", got, lenstest.Show(t, want))
			}
			for i, r := range now {
				if r.Key != want[i].Key {
					t.Errorf("key of %s is %s", r.Kind, r.Key)
				}
			}
			if back := lenstest.MustTake(t, s.Down, now, old); !lenstest.SameBytes(back, old) {
				t.Errorf("came back as\n%s", lenstest.Show(t, back))
			}
			if again := lenstest.MustTake(t, s.Up, old, now); !lenstest.SameBytes(again, now) {
				t.Errorf("over itself it became\n%s", lenstest.Show(t, again))
			}
			// The group of each record made follows from it, or from its key alone.
			up, down := lenstest.Ways(t, l)
			id, _, err := up.GroupOf("old", old[0].Key)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range now {
				got, _, err := down.GroupOf(r.Kind, r.Key)
				if up.LineageKind(id.Spec) != "" {
					got.Name, err = down.ContentOf(r)
					id.Name = string(old[0].Key)
				}
				if err != nil || got.Name != id.Name {
					t.Errorf("%s %s is of group %q, want %q (%v)", r.Kind, r.Key, got.Name, id.Name, err)
				}
			}
		})
	}
}

func TestFanOutOfObjectIDsRefuses(t *testing.T) {
	t.Parallel()
	const byID = `fanOut: {field: lines, as: list, kind: lines, key: "{_key:objectId}/{id:objectId}", id: _id, order: at}`
	const inDocument = `fanOut: {field: lines, as: list, kind: lines, key: {order: "{_key}", n: "{index}"}, value: v, parent: order}`
	for _, tc := range []struct {
		name, lens string
		up         bool
		records    []string
		err        string
	}{
		{"a parent of another type", lenstest.Orders(byID), true, []string{`old {"_id":"o","lines":[{"_id":` + oid + `}]}`}, "the _id of the record cannot be part of a key of lines: it is of type string, not objectId"},
		{"an item of another type", lenstest.Orders(byID), true, []string{`old {"_id":` + oid + `,"lines":[{"_id":"x"}]}`}, "_id is of type string, not objectId"},
		{"no _id", lenstest.Orders(byID), true, []string{`old {"_id":` + oid + `,"lines":[{}]}`}, "an entry of lines has no _id"},
		{"no ObjectId in the key", lenstest.Orders(byID), false, []string{`new {"_id":` + oid + `}`, `lines {"_id":"` + hexa + `/5","at":0}`}, "{id} is not the text of a value of type objectId"},
		{"number of another type in the key", lenstest.Orders(inDocument), false, []string{`new {"_id":` + oid + `}`, `lines {"_id":{"order":` + oid + `,"n":{"$numberDouble":"0.0"}},"order":` + oid + `,"v":1}`}, "n: it is of type double, not int"},
		{"an entry that is not named by an ObjectId", lenstest.Orders(`fanOut: {field: notes, as: map, kind: notes, key: {user: "{_key}", note: "{id:objectId}"}, parent: user}`), true, []string{`old {"_id":5,"notes":{"x":{"t":1}}}`}, "{id} is not the text of a value of type objectId"},
		{"a gap", lenstest.Orders(inDocument), false, []string{`new {"_id":` + oid + `}`, `lines {"_id":{"order":` + oid + `,"n":1},"order":` + oid + `,"v":1}`}, "its position give the key"},
		{"not a document", lenstest.Orders(inDocument), false, []string{`new {"_id":` + oid + `}`, `lines {"_id":5,"order":` + oid + `,"v":1}`}, "it is of type int, not a document of order, n"},
		{"a whole number of another type", lenstest.Orders(linesByContent), false, []string{`new {"_id":7}`, `lines {"_id":{"$numberLong":"5"},"order":7,"position":0,"sku":5}`}, "its _id has a number of another type"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := lenstest.Parse(t, tc.lens).Spec("old", "new")
			f := s.Down
			if tc.up {
				f = s.Up
			}
			if out, err := lenstest.Take(f, lenstest.FromJSON(t, tc.records...), nil); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error is %v, want %q\n%s", err, tc.err, lenstest.Show(t, out))
			}
		})
	}
}

// TestSelectOfObjectIDs: a parent whose name is not that of an ObjectId has no children, and
// none are looked for by a key that no document has.
func TestSelectOfObjectIDs(t *testing.T) {
	t.Parallel()
	s := lenstest.Parse(t, `
key: {from: "users/{user}", to: "{user:objectId}"}
operations:
  - gather: {field: profile, as: object, kind: profiles, key: "{user:objectId}"}
`).Spec("old", "new")
	children := s.Old.Kinds[1]
	for name, want := range map[string]string{
		"users/" + hexa: `{"_id":` + oid + `}`,
		"users/x":       `{"_id":"users/x"}`,
	} {
		sel := children.Select(string(record.StringKey(name)))
		if want := lenstest.FromJSON(t, "old "+want)[0].Key; sel.Key != want || sel.Prefix {
			t.Errorf("%s: selects %v", name, sel)
		}
	}
	if group, err := children.GroupOf(lenstest.FromJSON(t, `profiles {"_id":`+oid+`}`)[0].Key); err != nil || group != string(record.StringKey("users/"+hexa)) {
		t.Errorf("group %q, %v", group, err)
	}
	if _, err := children.GroupOf(record.StringKey(hexa)); err == nil {
		t.Error("a string is a child")
	}
}

func TestFanOutOfObjectIDsParseErrors(t *testing.T) {
	t.Parallel()
	fan := func(key string) string {
		return "operations:\n  - fanOut: {field: f, as: list, kind: k, key: " + key + "}\n"
	}
	for _, tc := range []struct{ name, text, want string }{
		{"no parent field", fan(`{o: "{_key}", n: "{index}"}`), "l.yaml:2:48: records cannot be found by a parent's key that is not a text: give parent"},
		{"the first of two lists", fan(`"{index}", parent: p`), "the first entries of two records would have the same key"},
		{"any in a text", fan(`"{_key:any}/{index}"`), "{_key} of type any cannot stand within a text"},
		{"an item's _id without a type", fan(`"{_key}/{id}", id: _id, order: o`), "{id} is the _id of an item, which the reverse reads from the key: declare its type, such as {id:objectId}"},
		{"index of a type", fan(`"{_key}/{index:objectId}"`), "{index} is a number"},
		{"documents in a text", "key: {from: '{id:objectId}', to: {t: '{t}', id: '{id:objectId}'}, with: {t: a}}\n" + fan(`"{_key}/{index}"`), "{_key} cannot stand within a text"},
		{"another type than the parent's", "key: {from: '{id:objectId}', to: '{id:uuid}'}\n" + fan(`"{_key}/{index}"`), "no reversible conversion to uuid"},
		{"another type of a variable", "key: {from: '{u:objectId}', to: 'users/{u}'}\n" + fan(`{u: "{u:uuid}", n: "{index}"}, parent: p`), "{u} is of type string in the key of the parent record, not uuid"},
		{"another type of _key", "key: {from: 'a/{id}', to: '{id:uuid}'}\n" + fan(`"{_key:objectId}/{index}"`), "{_key} is of type uuid in the key of the parent record, not objectId"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := lens.Parse("l.yaml", []byte(tc.text))
			var bad *lens.ParseError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
}

// TestFanOutOfObjectIDsLaws runs the laws over documents with lists of subdocuments that
// have an _id each, into records with composed keys, which groups follow from by name, and
// into such whose _id is a document, by content.
func TestFanOutOfObjectIDsLaws(t *testing.T) {
	t.Parallel()
	ids := []bson.ObjectID{{1}, {2}, {3}}
	draw := func(t *rapid.T, label string) bson.ObjectID { return rapid.SampledFrom(ids).Draw(t, label) }
	for _, tc := range []struct {
		name, lens string
		line       func(user, item bson.ObjectID) bson.D
	}{
		{"by name", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: "users/{user}/{item._id:objectId}", id: _id, order: at, operations: [{rename: {from: n, to: m}}]}`),
			func(user, item bson.ObjectID) bson.D {
				return bson.D{{Key: "_id", Value: "users/" + user.Hex() + "/" + item.Hex()}}
			}},
		{"by content", lenstest.Orders(`fanOut: {field: lines, as: list, kind: lines, key: {u: "{user:objectId}", item: "{item._id}"}, id: _id, order: at, parent: user, operations: [{rename: {from: n, to: m}}]}`),
			func(user, item bson.ObjectID) bson.D {
				return bson.D{{Key: "_id", Value: bson.D{{Key: "u", Value: user}, {Key: "item", Value: item}}}, {Key: "user", Value: "users/" + user.Hex()}}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			up, down := lenstest.Ways(t, lenstest.Parse(t, "key: {from: '{user:objectId}', to: 'users/{user}'}\n"+tc.lens))
			lawtest.Check(t, lawtest.Case{Up: up, Down: down, LossyDown: true,
				Old: rapid.Custom(func(t *rapid.T) []record.Record {
					d := bson.D{{Key: "_id", Value: draw(t, "id")}}
					list := bson.A{}
					for _, id := range rapid.Permutation(ids).Draw(t, "items")[:rapid.IntRange(0, 3).Draw(t, "number")] {
						list = append(list, append(lenstest.Maybe(t, bson.D{}, "n", 1, nil), bson.E{Key: "_id", Value: id}))
					}
					if len(list) > 0 || rapid.Bool().Draw(t, "empty") {
						d = append(d, bson.E{Key: "lines", Value: list})
					}
					return []record.Record{lenstest.Record(t, "old", d)}
				}),
				New: rapid.Custom(func(t *rapid.T) []record.Record {
					user := draw(t, "id")
					out := []record.Record{lenstest.Record(t, "new", lenstest.Maybe(t, bson.D{{Key: "_id", Value: "users/" + user.Hex()}}, "x", 1))}
					for i, id := range rapid.Permutation(ids).Draw(t, "items")[:rapid.IntRange(0, 3).Draw(t, "number")] {
						d := append(tc.line(user, id), bson.E{Key: "at", Value: i*i + 1})
						out = append(out, lenstest.Record(t, "lines", lenstest.Maybe(t, d, "m", 1, nil)))
					}
					return out
				}),
			})
		})
	}
}

// TestReferenceWithOtherPart: the field next to a reference says something else than the key
// that it holds, which only the other version could have written.
func TestReferenceWithOtherPart(t *testing.T) {
	t.Parallel()
	ls, err := lenstest.Link(t, map[string]string{
		"accounts": lenstest.Keyed(`{from: "{id:objectId}", to: "{tenant}/{id}", with: {tenant: {field: tenant}}}`),
		"k":        "operations: [{reference: {field: owner, kind: accounts, with: {tenant: {field: org}}}}]",
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = lenstest.Take(ls["k"].Spec("k", "k").Down, lenstest.FromJSON(t, `k {"_id":1,"owner":"b/`+hexa+`","org":"a"}`), nil)
	if err == nil || !strings.Contains(err.Error(), "owner has another {tenant} than org") {
		t.Errorf("error is %v", err)
	}
	_, err = ls["k"].UpMapping().Compare(transform.Condition{Path: "owner", Op: transform.OpEqual, Values: []any{hexa}})
	if err == nil || !strings.Contains(err.Error(), "a part of the key is in another field") {
		t.Errorf("compared: %v", err)
	}
}

// TestReferenceToIDsCompares: a literal is the text of an ObjectId, a number or a time.
func TestReferenceToIDsCompares(t *testing.T) {
	t.Parallel()
	ls, err := lenstest.Link(t, map[string]string{
		"users":   lenstest.Keyed(`{from: "{id:objectId}", to: "users/{id}"}`),
		"numbers": lenstest.Keyed(`{from: "{id:int}", to: "n/{id:int}"}`),
		"times":   lenstest.Keyed(`{from: "{id:date}", to: "{id:string}"}`),
		"uuids":   lenstest.Keyed(`{from: "{id}", to: "{id:uuid}"}`),
		"k":       "operations: [{reference: {field: u, kind: users}}, {reference: {field: n, kind: numbers}}, {reference: {field: t, kind: times}}, {reference: {field: i, kind: uuids}}]",
	})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 10, 0, 0, 250e6, time.UTC)
	for _, tc := range []struct {
		up    bool
		field string
		given any
		want  any // nil: nothing
	}{
		{true, "u", hexa, "users/" + hexa},
		{true, "u", strings.ToUpper(hexa), nil},
		{true, "u", int64(5), nil},
		{false, "u", "users/" + hexa, hexa},
		{false, "u", "users/x", nil},
		{true, "n", int64(5), "n/5"},
		{true, "n", 5.0, "n/5"},
		{true, "n", 5.5, nil},
		{true, "n", int64(1) << 40, nil},
		{true, "n", "5", nil},
		{false, "n", "n/5", int64(5)},
		{true, "t", at, "2026-11-20T10:00:00.250Z"},
		{true, "t", at.Add(1), nil},
		{false, "t", "2026-11-20T10:00:00.250Z", at},
	} {
		m := ls["k"].UpMapping()
		if !tc.up {
			m = ls["k"].DownMapping()
		}
		got, err := m.Compare(transform.Condition{Path: tc.field, Op: transform.OpEqual, Values: []any{tc.given}})
		if err != nil || len(got) != 1 {
			t.Errorf("%s == %v: %v, %v", tc.field, tc.given, got, err)
			continue
		}
		want := []any{tc.want}
		if tc.want == nil {
			want = nil
		}
		if !slices.Equal(got[0].Values, want) {
			t.Errorf("%s == %v became %v, want %v", tc.field, tc.given, got[0].Values, want)
		}
	}
	_, err = ls["k"].UpMapping().Compare(transform.Condition{Path: "i", Op: transform.OpEqual, Values: []any{"00010203-0405-0607-0809-0a0b0c0d0e0f"}})
	if err == nil || !strings.Contains(err.Error(), "requests cannot write those") {
		t.Errorf("a UUID in a request: %v", err)
	}
	_, err = ls["k"].DownMapping().Compare(transform.Condition{Path: "i", Op: transform.OpEqual, Values: []any{"00010203-0405-0607-0809-0a0b0c0d0e0f"}})
	if err == nil || !strings.Contains(err.Error(), "which requests cannot write") {
		t.Errorf("a request for a UUID: %v", err)
	}
}

// TestReferenceToIDs: a field that holds an ObjectId, or another _id, of a kind whose keys
// change holds the new one afterwards.
func TestReferenceToIDs(t *testing.T) {
	t.Parallel()
	const users, tenants, many = "users", "tenants", "many"
	texts := map[string]string{
		users:   lenstest.Keyed(`{from: "{id:objectId}", to: "users/{id}"}`),
		tenants: lenstest.Keyed(`{from: "{id:int}", to: {region: eu, id: "{id:long}"}}`),
		many:    lenstest.Keyed(`{from: "{id:any}", to: {v: 2, id: "{id:any}"}}`),
	}
	texts["counted"] = lenstest.Keyed(`{from: "{n:number}", to: "c/{n}"}`)
	texts["uuids"] = lenstest.Keyed(`{from: "{id:uuid}", to: "u/{id}"}`)
	texts["accounts"] = lenstest.Keyed(`{from: "{id:objectId}", to: {tenant: "{tenant:int}", id: "{id:objectId}"}, with: {tenant: {field: tenant, type: long}}}`)
	ref := func(kind, more string) string {
		return fmt.Sprintf("reference: {field: owner, kind: %s%s}", kind, more)
	}
	for _, tc := range []struct{ name, operation, old, now, err string }{
		{"ObjectId", ref(users, ""), `{"_id":1,"owner":` + oid + `}`, `{"_id":1,"owner":"users/` + hexa + `"}`, ""},
		{"list", ref(users, ", list: true"), `{"_id":1,"owner":[` + oid + `,` + oid + `]}`, `{"_id":1,"owner":["users/` + hexa + `","users/` + hexa + `"]}`, ""},
		{"items", "each: {field: rows, operations: [" + ref(users, "") + "]}", `{"_id":1,"rows":[{"owner":` + oid + `}]}`, `{"_id":1,"rows":[{"owner":"users/` + hexa + `"}]}`, ""},
		{"int to a document", ref(tenants, ""), `{"_id":1,"owner":7}`, `{"_id":1,"owner":{"region":"eu","id":{"$numberLong":"7"}}}`, ""},
		{"any", ref(many, ""), `{"_id":1,"owner":` + oid + `}`, `{"_id":1,"owner":{"v":2,"id":` + oid + `}}`, ""},
		{"a part in another field", ref("accounts", ", with: {tenant: {field: org}}"), `{"_id":1,"owner":` + oid + `,"org":7}`, `{"_id":1,"owner":{"tenant":7,"id":` + oid + `},"org":7}`, ""},
		{"a part as a string, list", ref("accounts", ", list: true, with: {tenant: {field: of.org, type: string}}"), `{"_id":1,"owner":[` + oid + `],"of":{"org":"7"}}`, `{"_id":1,"owner":[{"tenant":7,"id":` + oid + `}],"of":{"org":"7"}}`, ""},
		{"no reference, no part", ref("accounts", ", with: {tenant: {field: org}}"), `{"_id":1,"owner":null}`, `{"_id":1,"owner":null}`, ""},
		{"no part", ref("accounts", ", with: {tenant: {field: org}}"), `{"_id":1,"owner":` + oid + `}`, "", "the record has no org, which is {tenant} of the key of accounts"},
		{"a part of another type", ref("accounts", ", with: {tenant: {field: org}}"), `{"_id":1,"owner":` + oid + `,"org":"7"}`, "", "org is of type string, not int"},
		{"a part that the key cannot hold", ref("accounts", ", with: {tenant: {field: org, type: string}}"), `{"_id":1,"owner":` + oid + `,"org":"07"}`, "", "org {tenant} is not the text of a value"},
		{"null", ref(users, ""), `{"_id":1,"owner":null}`, `{"_id":1,"owner":null}`, ""},
		{"kept as its hex string", ref(users, "}\n  - convert: {field: other, from: string, to: objectId}\n  - reference: {field: other, kind: users"), `{"_id":1,"other":"` + hexa + `"}`, `{"_id":1,"other":"users/` + hexa + `"}`, ""},
		{"the text of a uuid", "convert: {field: owner, from: string, to: uuid}\n  - " + ref("uuids", ""), `{"_id":1,"owner":"00010203-0405-0607-0809-0a0b0c0d0e0f"}`, `{"_id":1,"owner":"u/00010203-0405-0607-0809-0a0b0c0d0e0f"}`, ""},
		{"optional", ref(users, ", optional: true"), `{"_id":1,"owner":"system"}`, `{"_id":1,"owner":"system"}`, ""},
		{"hex string", ref(users, ""), `{"_id":1,"owner":"` + hexa + `"}`, "", "owner is no key of users: it is of type string, not objectId"},
		{"a number of JavaScript", ref("counted", ""), `{"_id":1,"owner":7}`, `{"_id":1,"owner":"c/7"}`, ""},
		{"a number of another language", ref("counted", ""), `{"_id":1,"owner":{"$numberLong":"7"}}`, "", "which JavaScript would write as int"},
		{"a double", ref(tenants, ""), `{"_id":1,"owner":{"$numberDouble":"7.0"}}`, "", "owner is no key of tenants: it is of type double, not int"},
		{"a double, optional", ref(tenants, ", optional: true"), `{"_id":1,"owner":{"$numberDouble":"7.0"}}`, "", "owner equals a key of tenants, but it is of type double, not int"},
		{"optional, of the other version", ref(users, ", optional: true"), `{"_id":1,"owner":"users/` + hexa + `"}`, "", "only in the other version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			lenstest.CheckOf(t, texts, tc.operation, tc.old, tc.now, tc.err)
		})
	}
}
