package keymap_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lawtest"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

const (
	oid  = `{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"}`
	hexa = "655f1e5e5e5e5e5e5e5e5e5e"
	uuid = `{"$binary":{"base64":"AAECAwQFBgcICQoLDA0ODw==","subType":"04"}}`
)

// TestIDForms: _ids of all types there and back, to the byte, and by the key alone.
func TestIDForms(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, key, old, now string }{
		{"objectId to a name", `{from: "{id:objectId}", to: "users/{id}"}`, oid, `"users/` + hexa + `"`},
		{"name to objectId", `{from: "users/{id}", to: "{id:objectId}"}`, `"users/` + hexa + `"`, oid},
		{"objectId to its hex string", `{from: "{id:objectId}", to: "{id}"}`, oid, `"` + hexa + `"`},
		{"objectId to a document", `{from: "{id:objectId}", to: {tenant: "{tenant}", id: "{id:objectId}"}, with: {tenant: acme}}`, oid, `{"tenant":"acme","id":` + oid + `}`},
		{"document to a name", `{from: {tenant: "{tenant:int}", id: "{id:objectId}"}, to: "tenants/{tenant}/users/{id}"}`, `{"tenant":7,"id":` + oid + `}`, `"tenants/7/users/` + hexa + `"`},
		{"document to a document", `{from: {a: "{a}", b: "{b:long}"}, to: {b: "{b:int}", v: 1, a: "x/{a}"}}`, `{"a":"k","b":{"$numberLong":"5"}}`, `{"b":5,"v":1,"a":"x/k"}`},
		{"int to a name", `{from: "{n:int}", to: "users/{n}"}`, `-5`, `"users/-5"`},
		{"int to long", `{from: "{n:int}", to: "{n:long}"}`, `5`, `{"$numberLong":"5"}`},
		{"long to a name", `{from: "{n:long}", to: "n/{n}"}`, `{"$numberLong":"-9223372036854775808"}`, `"n/-9223372036854775808"`},
		{"double to a name", `{from: "{n:double}", to: "n/{n}"}`, `{"$numberDouble":"9007199254740992.0"}`, `"n/9007199254740992"`},
		{"small number of JavaScript", `{from: "{n:number}", to: "n/{n}"}`, `2147483647`, `"n/2147483647"`},
		{"large number of JavaScript", `{from: "{n:number}", to: "n/{n}"}`, `{"$numberDouble":"2147483648.0"}`, `"n/2147483648"`},
		{"large number of JavaScript to long", `{from: "{n:number}", to: "{n:long}"}`, `{"$numberDouble":"2147483648.0"}`, `{"$numberLong":"2147483648"}`},
		{"uuid to a name", `{from: "{id:uuid}", to: "u/{id}"}`, uuid, `"u/00010203-0405-0607-0809-0a0b0c0d0e0f"`},
		{"name to uuid", `{from: "u/{id}", to: "{id:uuid}"}`, `"u/00010203-0405-0607-0809-0a0b0c0d0e0f"`, uuid},
		{"date to a name", `{from: "{at:date}", to: "at/{at}"}`, `{"$date":"2026-11-20T10:00:00.25Z"}`, `"at/2026-11-20T10:00:00.250Z"`},
		{"string to date", `{from: "{at}", to: "{at:date}"}`, `"2026-11-20T10:00:00Z"`, `{"$date":"2026-11-20T10:00:00Z"}`},
		{"any into a document", `{from: "{id:any}", to: {tenant: "{t}", id: "{id:any}"}, with: {t: a}}`, `{"x":[1,2.5]}`, `{"tenant":"a","id":{"x":[1,2.5]}}`},
		{"any double", `{from: "{id:any}", to: {id: "{id:any}"}}`, `{"$numberDouble":"5.0"}`, `{"id":{"$numberDouble":"5.0"}}`},
		{"a constant of another type", `{from: {id: "{id:objectId}", old: true}, to: "{id:objectId}"}`, `{"id":` + oid + `,"old":true}`, oid},
		{"typed in both texts", `{from: "a/{n:int}", to: "b/{n:int}"}`, `"a/7"`, `"b/7"`},
		{"slashes", `{from: {path: "{_key}"}, to: "p/{_key}"}`, `{"path":"a/b/"}`, `"p/a/b/"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Parse(t, lenstest.Keyed(tc.key))
			s := l.Spec("old", "new")
			old := lenstest.FromJSON(t, `old {"x":1,"_id":`+tc.old+`,"y":2}`)
			want := lenstest.FromJSON(t, `new {"x":1,"_id":`+tc.now+`,"y":2}`)
			now := lenstest.MustTake(t, s.Up, old, nil)
			if !lenstest.SameBytes(now, want) {
				t.Fatalf("got  %s\nwant %s", lenstest.Show(t, now), lenstest.Show(t, want))
			}
			if back := lenstest.MustTake(t, s.Down, now, nil); !lenstest.SameBytes(back, old) {
				t.Errorf("came back as %s", lenstest.Show(t, back))
			}
			up, down := lenstest.Ways(t, l)
			a, _, err := up.GroupOf("old", old[0].Key)
			if err != nil {
				t.Fatal(err)
			}
			b, _, err := down.GroupOf("new", now[0].Key)
			if err != nil || a != b {
				t.Errorf("groups %v and %v, error %v", a, b, err)
			}
			if kind, key := up.Anchor(a); kind != "new" || key != now[0].Key {
				t.Errorf("anchor up is %s %s", kind, key)
			}
			if kind, key := down.Anchor(a); kind != "old" || key != old[0].Key {
				t.Errorf("anchor down is %s %s", kind, key)
			}
		})
	}
}

// TestIDRefuses: what would not come back the same is an error of the record, and the
// error does not quote it.
func TestIDRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, key, old, err string }{
		{"upper case", `{from: "users/{id}", to: "{id:objectId}"}`, `"users/655F1E5E5E5E5E5E5E5E5E5E"`, "{id} is not the text of a value of type objectId: want lower-case hexadecimal digits"},
		{"too short", `{from: "users/{id}", to: "{id:objectId}"}`, `"users/655f"`, "not the text of a value of type objectId"},
		{"another type", `{from: "{id:objectId}", to: "users/{id}"}`, `"` + hexa + `"`, "the _id: it is of type string, not objectId"},
		{"string for an int", `{from: "{id:int}", to: "users/{id}"}`, `"5"`, "the _id: it is of type string, not int"},
		{"double for an int", `{from: "{id:int}", to: "users/{id}"}`, `{"$numberDouble":"5.0"}`, "the _id: it is of type double, not int: the reverse could not restore that type"},
		{"fraction for a number", `{from: "{id:number}", to: "users/{id}"}`, `5.5`, "a double that is not a whole number"},
		{"decimal for a number", `{from: "{id:number}", to: "users/{id}"}`, `{"$numberDecimal":"5"}`, "it is of type decimal, not number"},
		{"fraction", `{from: "{id:double}", to: "users/{id}"}`, `5.5`, "a double that is not a whole number"},
		{"negative zero", `{from: "{id:double}", to: "users/{id}"}`, `{"$numberDouble":"-0.0"}`, "a double that is not a whole number"},
		{"too long for int", `{from: "{n:long}", to: "{n:int}"}`, `{"$numberLong":"2147483648"}`, "{n} is not the text of a value of type int"},
		{"leading zero", `{from: "n/{n}", to: "{n:int}"}`, `"n/05"`, "without leading zeros"},
		{"plus", `{from: "n/{n}", to: "{n:long}"}`, `"n/+5"`, "without leading zeros and without a plus sign"},
		{"legacy uuid", `{from: "{id:uuid}", to: "u/{id}"}`, `{"$binary":{"base64":"AAECAwQFBgcICQoLDA0ODw==","subType":"03"}}`, "binary, but not of the subtype"},
		{"upper case uuid", `{from: "{id}", to: "{id:uuid}"}`, `"00010203-0405-0607-0809-0A0B0C0D0E0F"`, "not the text of a value of type uuid"},
		{"date with an offset", `{from: "{at}", to: "{at:date}"}`, `"2026-11-20T10:00:00+01:00"`, "a time in UTC"},
		{"date with needless zeros", `{from: "{at}", to: "{at:date}"}`, `"2026-11-20T10:00:00.000Z"`, "a time in UTC"},
		{"date of no text", `{from: "{at:date}", to: "{at}"}`, `{"$date":{"$numberLong":"999999999999999"}}`, "outside of the years"},
		{"no document", `{from: {a: "{a}"}, to: "{a}"}`, `"x"`, "the _id: it is of type string, not a document of a"},
		{"fields in another order", `{from: {a: "{a}", b: "{b}"}, to: "{a}/{b}"}`, `{"b":"x","a":"y"}`, "not a document of a, b, in this order and without other fields"},
		{"a field more", `{from: {a: "{a}"}, to: "{a}"}`, `{"a":"x","b":"y"}`, "without other fields"},
		{"field of another type", `{from: {a: "{a:objectId}"}, to: "{a}"}`, `{"a":"x"}`, "the _id: a: it is of type string, not objectId"},
		{"another constant", `{from: {a: "{a}", v: 1}, to: "{a}"}`, `{"a":"x","v":2}`, "the _id: v: it is not the constant of type int"},
		{"slash in a field", `{from: {a: "{a}"}, to: "k/{a}"}`, `{"a":"x/y"}`, "is not of the form {a}"},
		{"one-sided constant", `{from: {t: "{t:int}", id: "{id:objectId}"}, to: "{id}", without: {t: 7}}`, `{"t":8,"id":` + oid + `}`, "the other version has records of t"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Parse(t, lenstest.Keyed(tc.key))
			_, err := lenstest.Take(l.Spec("old", "new").Up, lenstest.FromJSON(t, `old {"_id":`+tc.old+`}`), nil)
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error is %v, want %q", err, tc.err)
			}
			if strings.Contains(tc.err, "not the text of") && strings.Contains(err.Error(), strings.Trim(tc.old, `"`)) {
				t.Errorf("the error has the value: %v", err)
			}
		})
	}
}

// TestIDFields: parts of an _id are fields of the other version's record, with types of
// their own; an ObjectId gives way to a number that the record has.
func TestIDFields(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, key, old, now string }{
		{"tenant out of a field", `{from: "{id:objectId}", to: {tenant: "{tenant:objectId}", id: "{id:objectId}"}, with: {tenant: {field: tenantId}}}`,
			`{"_id":` + oid + `,"tenantId":` + oid + `,"x":1}`, `{"_id":{"tenant":` + oid + `,"id":` + oid + `},"x":1}`},
		{"tenant as a string in the record", `{from: "{id:objectId}", to: {tenant: "{tenant:objectId}", id: "{id:objectId}"}, with: {tenant: {field: tenantId, type: string, keep: true}}}`,
			`{"_id":` + oid + `,"tenantId":"` + hexa + `"}`, `{"_id":{"tenant":` + oid + `,"id":` + oid + `},"tenantId":"` + hexa + `"}`},
		{"numbers instead of ObjectIds", `{from: "{id:objectId}", to: "{n:int}", with: {n: {field: number}}, without: {id: {field: oid}}}`,
			`{"_id":` + oid + `,"number":7,"x":1}`, `{"_id":7,"x":1,"oid":` + oid + `}`},
		{"any in a field", `{from: "{id:any}", to: "u/{n}", with: {n: {field: n, type: long}}, without: {id: {field: was}}}`,
			`{"_id":{"a":1},"n":{"$numberLong":"5"}}`, `{"_id":"u/5","was":{"a":1}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := lenstest.Parse(t, lenstest.Keyed(tc.key)).Spec("old", "new")
			old, want := lenstest.FromJSON(t, "old "+tc.old), lenstest.FromJSON(t, "new "+tc.now)
			now := lenstest.MustTake(t, s.Up, old, nil)
			if lenstest.Show(t, now) != lenstest.Show(t, want) || now[0].Key != want[0].Key {
				t.Fatalf("got  %s\nwant %s", lenstest.Show(t, now), lenstest.Show(t, want))
			}
			if back := lenstest.MustTake(t, s.Down, now, old); !lenstest.SameBytes(back, old) {
				t.Errorf("came back as %s", lenstest.Show(t, back))
			}
			if group, err := s.New.Kinds[0].Content(now[0]); err != nil || group != string(old[0].Key) {
				t.Errorf("group %q, %v", group, err)
			}
		})
	}
	s := lenstest.Parse(t, lenstest.Keyed(`{from: "{id:objectId}", to: "{n:int}", with: {n: {field: number}}, without: {id: {field: oid}}}`)).Spec("old", "new")
	for doc, want := range map[string]string{
		`{"_id":` + oid + `}`:                                    "the record has no int number, which is part of its name in the other version",
		`{"_id":` + oid + `,"number":{"$numberLong":"7"}}`:       "number is of type long, not int",
		`{"_id":` + oid + `,"number":7,"oid":1}`:                 "oid is there already (int)",
		`{"_id":"` + hexa + `","number":7}`:                      "the _id: it is of type string, not objectId",
		`{"_id":` + oid + `,"number":{"$numberDouble":"7.0"}}`:   "number is of type double, not int",
		`{"_id":` + oid + `,"number":"7"}`:                       "number is of type string, not int",
		`{"_id":` + oid + `,"number":{"$numberDecimal":"7.00"}}`: "number is of type decimal, not int",
	} {
		if _, err := lenstest.Take(s.Up, lenstest.FromJSON(t, "old "+doc), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q", doc, err, want)
		}
	}
}

// someIDs are _ids of a type, few of them, so that two drawn ones are often the same.
var someIDs = map[string][]any{
	"objectId": {bson.ObjectID{1}, bson.ObjectID{2}, bson.ObjectID{0xff, 11: 0xff}},
	"int":      {int32(0), int32(-7), int32(1 << 30)},
	"long":     {int64(0), int64(-7), int64(1 << 30)},
	"double":   {0.0, -7.0, 1e9},
	"number":   {int32(0), int32(-7), 1e10},
	"uuid":     {bson.Binary{Subtype: 4, Data: make([]byte, 16)}, bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}},
	"date":     {bson.DateTime(0), bson.DateTime(-1), bson.DateTime(1700000000250)},
	"string":   {"a", "ü", "0", "655f1e5e5e5e5e5e5e5e5e5e"},
}

// textOf is an _id of someIDs as part of a name.
func textOf(t interface{ Fatal(...any) }, typ string, v any) string {
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: v}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := lens.Parse("text.yaml", []byte(lenstest.Keyed(fmt.Sprintf("{from: '{id:%s}', to: '{id}'}", typ))))
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.Up(doc, nil)
	if err != nil {
		t.Fatal(typ, v, err)
	}
	return out.Lookup("_id").StringValue()
}

// TestIDLaws runs the laws that every transformer promises, for _ids of every type: as a
// whole, in a name, and in a document.
func TestIDLaws(t *testing.T) {
	t.Parallel()
	for typ, ids := range someIDs {
		l := lenstest.Parse(t, fmt.Sprintf("key: {from: '{id:%[1]s}', to: {v: 2, id: '{id:%[1]s}', n: 'n/{id2}'}, with: {id2: {field: name, keep: true}}}\noperations: [{rename: {from: a, to: b}}]", typ))
		up, down := lenstest.Ways(t, l)
		draw := func(t *rapid.T) (any, string) {
			return rapid.SampledFrom(ids).Draw(t, "id"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name")
		}
		t.Run(typ+" in a document", func(t *testing.T) {
			lawtest.Check(t, lawtest.Case{Up: up, Down: down,
				Old: rapid.Custom(func(t *rapid.T) []record.Record {
					id, name := draw(t)
					return []record.Record{lenstest.Record(t, "old", lenstest.Maybe(t, bson.D{{Key: "_id", Value: id}, {Key: "name", Value: name}}, "a", 1, nil))}
				}),
				New: rapid.Custom(func(t *rapid.T) []record.Record {
					id, name := draw(t)
					return []record.Record{lenstest.Record(t, "new", lenstest.Maybe(t, bson.D{{Key: "_id", Value: bson.D{{Key: "v", Value: 2}, {Key: "id", Value: id}, {Key: "n", Value: "n/" + name}}}, {Key: "name", Value: name}}, "b", 1, nil))}
				}),
			})
		})
		t.Run(typ+" in a name", func(t *testing.T) {
			lenstest.Laws(t, lenstest.Parse(t, lenstest.Keyed(fmt.Sprintf("{from: '{id:%s}', to: 'k/{id}'}", typ))), false, false,
				func(t *rapid.T) []record.Record {
					id, _ := draw(t)
					return []record.Record{lenstest.Record(t, "old", lenstest.Maybe(t, bson.D{{Key: "_id", Value: id}}, "a", 1, nil))}
				},
				func(t *rapid.T) []record.Record {
					id, _ := draw(t)
					return []record.Record{lenstest.Record(t, "new", lenstest.Maybe(t, bson.D{{Key: "_id", Value: "k/" + textOf(t, typ, id)}}, "a", 1, nil))}
				})
		})
	}
}

// TestNumbersOfAnyType: an _id that is a number of any type keeps it, as long as the record
// is there; made anew it is what JavaScript writes.
func TestNumbersOfAnyType(t *testing.T) {
	t.Parallel()
	numbers := []any{int32(5), int64(5), 5.0, math.Copysign(0, -1), 0.0, 1e10, int64(1e10), 1e17}
	id := func(t *rapid.T) any { return rapid.SampledFrom(numbers).Draw(t, "id") }
	for name, tc := range map[string]struct {
		lens string
		now  func(t *rapid.T) any
	}{
		"alone":    {"key: {from: '{n:number}', to: 'k/{n}'}\noperations: []", func(t *rapid.T) any { return "k/" + rapid.SampledFrom([]string{"5", "0", "10000000000"}).Draw(t, "n") }},
		"document": {"key: {from: '{n:number}', to: {v: 1, n: '{n:number}'}}\noperations: [{rename: {from: a, to: b}}]", func(t *rapid.T) any { return bson.D{{Key: "v", Value: int32(1)}, {Key: "n", Value: id(t)}} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lenstest.Parse(t, tc.lens)
			lenstest.Laws(t, l, true, name == "document",
				func(t *rapid.T) []record.Record {
					return []record.Record{lenstest.Record(t, "old", lenstest.Maybe(t, bson.D{{Key: "_id", Value: id(t)}}, "a", 1))}
				},
				func(t *rapid.T) []record.Record {
					return []record.Record{lenstest.Record(t, "new", lenstest.Maybe(t, bson.D{{Key: "_id", Value: tc.now(t)}}, "b", 1))}
				})
			up, _ := l.Lost()
			if len(up) != 1 || up[0].Field != "_id" {
				t.Errorf("the lens says that it loses %v", up)
			}
		})
	}
	s := lenstest.Parse(t, lenstest.Keyed("{from: '{n:number}', to: 'k/{n}'}")).Spec("old", "new")
	for was, want := range map[string]string{`5`: `5`, `{"$numberLong":"5"}`: `5`, `{"$numberDouble":"1e10"}`: `{"$numberDouble":"1e10"}`, `{"$numberLong":"10000000000"}`: `{"$numberDouble":"1e10"}`, `{"$numberDouble":"1e17"}`: `{"$numberLong":"100000000000000000"}`} {
		now := lenstest.MustTake(t, s.Up, lenstest.FromJSON(t, `old {"_id":`+was+`}`), nil)
		if back := lenstest.MustTake(t, s.Down, now, nil); !lenstest.SameBytes(back, lenstest.FromJSON(t, `old {"_id":`+want+`}`)) {
			t.Errorf("%s is made anew as %s, want %s", was, lenstest.Show(t, back), want)
		}
	}
}

// TestEqualNumbersAreOneKey: a delete names a record by a number of any type.
func TestEqualNumbersAreOneKey(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"int", "long", "double", "number"} {
		up, _ := lenstest.Ways(t, lenstest.Parse(t, lenstest.Keyed("{from: '{id:"+typ+"}', to: {a: 'x', id: '{id:"+typ+"}'}}")))
		var want record.Key
		for _, v := range []any{int32(5), int64(5), 5.0} {
			old := lenstest.Record(t, "old", bson.D{{Key: "_id", Value: v}})
			id, _, err := up.GroupOf("old", old.Key)
			if err != nil {
				t.Fatal(err)
			}
			_, key := up.Anchor(id)
			if want == "" {
				want = key
			}
			if again := lenstest.Record(t, "new", bson.D{{Key: "_id", Value: bson.D{{Key: "a", Value: "x"}, {Key: "id", Value: v}}}}); key != want || key != again.Key {
				t.Errorf("%s %T: %s", typ, v, key)
			}
		}
	}
}

// drawnForm is one of the forms that an _id of two variables can have.
func drawnForm(shape int, types [2]string) string {
	a, b := "{a:"+types[0]+"}", "{b:"+types[1]+"}"
	return []string{
		fmt.Sprintf("'%s/%s'", a, b), fmt.Sprintf("'x/%s/y-%s'", b, a),
		fmt.Sprintf("{a: '%s', b: '%s'}", a, b), fmt.Sprintf("{b: 'k/%s', c: 3, a: '%s'}", b, a),
	}[shape]
}

// drawnID is an _id of that form.
func drawnID(t *rapid.T, shape int, types [2]string) any {
	a := rapid.SampledFrom(someIDs[types[0]]).Draw(t, "a")
	b := rapid.SampledFrom(someIDs[types[1]]).Draw(t, "b")
	textA, textB := textOf(t, types[0], a), textOf(t, types[1], b)
	return []any{
		textA + "/" + textB, "x/" + textB + "/y-" + textA,
		bson.D{{Key: "a", Value: a}, {Key: "b", Value: b}}, bson.D{{Key: "b", Value: "k/" + textB}, {Key: "c", Value: int32(3)}, {Key: "a", Value: a}},
	}[shape]
}

// TestIDsAreOneToOne: whatever _id drawn forms do not refuse comes back the same, to the
// byte, and no two become one. The key alone gives the same key.
func TestIDsAreOneToOne(t *testing.T) {
	t.Parallel()
	pairs := [][2]string{{"string", "objectId"}, {"objectId", "objectId"}, {"int", "long"}, {"number", "double"}, {"long", "number"}, {"uuid", "string"}, {"date", "string"}, {"string", "int"}}
	there := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SampledFrom(pairs).Draw(t, "a"), rapid.SampledFrom(pairs).Draw(t, "b")
		shape, from, to := rapid.IntRange(0, 3).Draw(t, "shape"), [2]string{a[0], b[0]}, [2]string{a[1], b[1]}
		l, err := lens.Parse("drawn.yaml", []byte(lenstest.Keyed("{from: "+drawnForm(shape, from)+", to: "+drawnForm(rapid.IntRange(0, 3).Draw(t, "to"), to)+"}")))
		if err != nil {
			t.Fatal(err)
		}
		s := l.Spec("old", "new")
		x, z := []record.Record{lenstest.Record(t, "old", bson.D{{Key: "_id", Value: drawnID(t, shape, from)}})}, []record.Record{lenstest.Record(t, "old", bson.D{{Key: "_id", Value: drawnID(t, shape, from)}})}
		y, err := lenstest.Take(s.Up, x, nil)
		if err != nil {
			return
		}
		there++
		back, err := lenstest.Take(s.Down, y, nil)
		if err != nil || !lenstest.SameBytes(back, x) {
			t.Fatalf("%s became %s and came back as %s (%v)", x[0].Doc, y[0].Doc, lenstest.Show(t, back), err)
		}
		if other, err := lenstest.Take(s.Up, z, nil); err == nil && (x[0].Key == z[0].Key) != (y[0].Key == other[0].Key) {
			t.Fatalf("%s and %s became %s and %s", x[0].Doc, z[0].Doc, y[0].Doc, other[0].Doc)
		}
		if _, key := s.New.Anchor(string(x[0].Key)); key != y[0].Key {
			t.Fatalf("%s became %s, and its key alone %s", x[0].Doc, y[0].Doc, key)
		}
	})
	if there == 0 && !raced.FewDrawn() {
		t.Error("no drawn _id had a counterpart")
	}
}

// TestNotes: what only data can show is noted, with its place, before there are any.
func TestNotes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`key: {from: "{id:objectId}", to: "users/{id}"}`:                                                               "",
		`key: {from: "{id:objectId}", to: {t: "{t}", id: "{id}"}, with: {t: acme}}`:                                    "",
		`key: {from: "r/{r}/{i}", to: "{i}", without: {r: {field: r}}}`:                                                "1:30 the keys of the new version have no {r}: records with the same {i} would become one",
		`key: {from: "{id:objectId}", to: {t: "{t}", id: "{id}"}, with: {t: {field: t}}}`:                              "1:13 the keys of the old version have no {t}: records with the same {id} would become one",
		`key: {from: "{id:objectId}", to: "{n:int}", with: {n: {field: n}}, without: {id: {field: was}}}`:              "1:34 the keys of the new version have no {id}: records with the same {n} would become one; 1:13 the keys of the old version have no {n}",
		`operations: [{fanOut: {field: f, as: list, kind: k, key: "{id}", id: x, order: o, parent: p}}]`:               "1:58 the keys of k do not contain the key of the parent record",
		`operations: [{fanOut: {field: f, as: list, kind: k, key: "{_key}/{id}", id: x, order: o, parent: p}}]`:        "",
		`operations: [{fanOut: {field: f, as: list, kind: k, key: {a: "{_key}", b: "{index}"}, parent: p}}]`:           "",
		`operations: [{fanOut: {field: f, as: object, kind: k, key: {a: "{item.a}", b: "{item.b}"}, parent: p}}]`:      "1:60 the keys of k do not contain",
		`operations: [{gather: {field: f, as: object, kind: k, key: "{item.a:objectId}", parent: p, operations: []}}]`: "1:60 the keys of k do not contain",
	} {
		if strings.HasPrefix(text, "key") {
			text += "\noperations: []"
		}
		var got []string
		for _, n := range lenstest.Parse(t, text).Notes() {
			got = append(got, fmt.Sprintf("%d:%d %s", n.Line, n.Column, n.Message))
		}
		parts := strings.Split(want, "; ")
		if want == "" {
			parts = nil
		}
		if len(got) != len(parts) {
			t.Errorf("%s: %v, want %q", text, got, want)
			continue
		}
		for i := range parts {
			if !strings.HasPrefix(got[i], parts[i]) {
				t.Errorf("%s: %q, want %q", text, got[i], parts[i])
			}
		}
	}
}

func TestIDParseErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, at, want string }{
		{"unknown type", `key: {from: "{id:oid}", to: "u/{id}"}`, "1:13", `{id}: unknown type "oid" of a key; allowed: string, objectId, int, long, double, number, uuid, date, any`},
		{"no conversion", `key: {from: "{id:objectId}", to: "{id:int}"}`, "1:34", "{id} is of type objectId in the old version, which has no reversible conversion to int; possible: string, objectId"},
		{"no conversion of a field", `key: {from: "{id:objectId}", to: "{n:int}", with: {n: {field: n, type: date}}, without: {id: {field: i}}}`, "1:52", "{n} is of type date"},
		{"any and another", `key: {from: "{id:any}", to: "{id:int}"}`, "1:29", "{id} is of type any in one version and of type int in the other"},
		{"any in a text", `key: {from: "{id:any}", to: "u/{id:any}"}`, "1:29", "{id} of type any cannot stand within a text, and cannot be read back from it"},
		{"any is a constant", `key: {from: "{id:objectId}", to: {a: "{a:any}", id: "{id:objectId}"}, with: {a: 5}}`, "1:78", "a constant has one type"},
		{"constant of another type", `key: {from: "{id:objectId}", to: {a: "{a:int}", id: "{id:objectId}"}, with: {a: x}}`, "1:78", "the constant of {a} is not the text of a value of type int"},
		{"one key for all", `key: {from: "{id:objectId}", to: "users/all", without: {id: {field: was}}}`, "1:34", "to has no variable that differs from record to record, so that all records would have the same key"},
		{"one old key for all", `key: {from: "{a}", to: "{id:objectId}", with: {id: {field: was}}, without: {a: x}}`, "1:13", "from has no variable that differs from record to record"},
		{"empty document", `key: {from: {}, to: "{id}"}`, "1:13", "the fields of a document"},
		{"list", `key: {from: [a], to: "{id}"}`, "1:13", "must be a pattern such as projects/{project}, or the fields of a document"},
		{"field with a dollar", `key: {from: {$a: "{id}"}, to: "{id}"}`, "1:14", "cannot be the name of a field of an _id"},
		{"variable twice", `key: {from: {a: "{id}", b: "{id}"}, to: "{id}"}`, "1:28", "{id} is there twice"},
		{"empty field", `key: {from: {a: ""}, to: "{id}"}`, "1:17", "it is empty"},
		{"type of the field", `key: {from: "{id:objectId}", to: "{n:int}", with: {n: {field: n, type: text}}, without: {id: {field: i}}}`, "1:72", `type: unknown type "text"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := lens.Parse("l.yaml", []byte(tc.text+"\noperations: []\n"))
			var bad *lens.ParseError
			if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), "l.yaml:"+tc.at) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q at %s", err, tc.want, tc.at)
			}
		})
	}
}
