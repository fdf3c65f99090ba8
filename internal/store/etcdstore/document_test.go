package etcdstore

import (
	"bytes"
	"math"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
)

func TestJSONIsADocument(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bson.D{
		`{}`: {},
		`{"n": 5, "long": 5000000000, "f": 0.1, "whole": 2.0, "e": 1e3}`: {
			{Key: "n", Value: int32(5)}, {Key: "long", Value: int64(5000000000)}, {Key: "f", Value: 0.1}, {Key: "whole", Value: 2.0}, {Key: "e", Value: 1000.0},
		},
		`{"a":[1,{"b":null}],"t":true,"s":"ä\n\u00e4<"}`: {
			{Key: "a", Value: bson.A{int32(1), bson.D{{Key: "b", Value: nil}}}}, {Key: "t", Value: true}, {Key: "s", Value: "ä\nä<"},
		},
		`{"at":{"$date":"2024-05-06T07:08:09.123Z"},"l":{"$numberLong":"7"}}`: {
			{Key: "at", Value: time.Date(2024, 5, 6, 7, 8, 9, 123e6, time.UTC)}, {Key: "l", Value: int64(7)},
		},
	} {
		doc, err := JSON.document("x/y", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if have, _ := bson.Marshal(append(bson.D{{Key: "_id", Value: "x/y"}}, want...)); !bytes.Equal(have, doc) {
			t.Errorf("%s is %s, want %s", text, doc, bson.Raw(have))
		}
	}
}

// TestWhatIsNoDocument: values that would not come back as they are, are refused, without a word
// of what they hold.
func TestWhatIsNoDocument(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `secret`, `"secret"`, `[1]`, `5`, `{"a":1} {"b":2}`, `{"a":1}x`, `{"a"}`, `{`, `{"_id":"secret"}`,
		`{"n":12345678901234567890}`, `{"n":0.12345678901234567890123}`, `{"n":1e400}`, `{"n":-0}`,
		`{"n":{"$oid":"secret"}}`,
	} {
		doc, err := JSON.document("x", []byte(text))
		if err == nil {
			t.Errorf("%s is %s", text, doc)
		} else if bytes.Contains([]byte(err.Error()), []byte("secret")) || bytes.Contains([]byte(err.Error()), []byte("1234")) {
			t.Errorf("%s: %v quotes it", text, err)
		}
	}
	own, _ := bson.Marshal(bson.D{{Key: "a", Value: 1}, {Key: "_id", Value: "x"}})
	for _, value := range [][]byte{nil, []byte("secret"), own, own[:len(own)-2]} {
		if doc, err := BSON.document("x", value); err == nil {
			t.Errorf("%q is %s", value, doc)
		}
	}
	if _, err := BSON.document("\xff", []byte{5, 0, 0, 0, 0}); err == nil {
		t.Error("a key that is no text has a document")
	}
}

// TestDocumentsComeBack: whatever a document holds is the same, byte for byte, when it was
// written as a value and read again.
func TestDocumentsComeBack(t *testing.T) {
	t.Parallel()
	scalar := rapid.OneOf(
		rapid.Map(rapid.Int32(), func(n int32) any { return n }), rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Int64Range(-9, 9), func(n int64) any { return n }), rapid.Map(rapid.Float64(), func(f float64) any { return f }),
		rapid.Map(rapid.Int32(), func(n int32) any { return float64(n) }),
		rapid.Map(rapid.String(), func(s string) any { return s }), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64(), func(n int64) any { return bson.DateTime(n) }),
		rapid.SampledFrom([]any{
			nil, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), bson.NewObjectID(), bson.Binary{Data: []byte{1, 2}}, bson.Binary{Subtype: 4, Data: make([]byte, 16)},
			bson.Regex{Pattern: "a/b", Options: "i"}, bson.Timestamp{T: 5, I: 6}, bson.MinKey{}, bson.MaxKey{}, bson.Undefined{}, bson.JavaScript("f()"), bson.Symbol("s"),
			bson.NewDecimal128(0x3040000000000000, 15), bson.D{}, bson.A{},
		}),
	)
	field := rapid.StringMatching(`[a-zäß_."\\]{1,5}`)
	rapid.Check(t, func(t *rapid.T) {
		body := bson.D{{Key: "_id", Value: rapid.String().Draw(t, "id")}}
		var fill func(depth int) bson.D
		fill = func(depth int) (d bson.D) {
			for range rapid.IntRange(0, 4).Draw(t, "fields") {
				e := bson.E{Key: field.Draw(t, "field"), Value: scalar.Draw(t, "value")}
				if e.Key == "_id" {
					continue
				}
				switch {
				case depth > 2:
				case rapid.IntRange(0, 4).Draw(t, "nested") == 0:
					e.Value = fill(depth + 1)
				case rapid.IntRange(0, 4).Draw(t, "list") == 0:
					e.Value = bson.A{fill(depth + 1), scalar.Draw(t, "item")}
				}
				d = append(d, e)
			}
			return d
		}
		doc, err := bson.Marshal(append(body, fill(0)...))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []Format{JSON, BSON} {
			value, err := f.value(doc)
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			back, err := f.document(body[0].Value.(string), value)
			if err != nil {
				t.Fatalf("%s of %s: %v", f, value, err)
			}
			if !bytes.Equal(back, doc) {
				t.Fatalf("%s became %s as %s", bson.Raw(doc), back, value)
			}
		}
	})
}

// TestDamagedText: the driver accepts a string that lacks its final zero. It has no form in JSON.
func TestDamagedText(t *testing.T) {
	t.Parallel()
	doc := bson.Raw("\x17\x00\x00\x00\x02_id\x00\x02\x00\x00\x00x\x00\x02s\x00\x00\x00\x00\x00\x00")
	if err := doc.Validate(); err != nil {
		t.Fatal(err)
	}
	if value, err := JSON.value(doc); err == nil {
		t.Errorf("it is written as %s", value)
	}
}

// TestJSONRefusesWhatChanges: a document that JSON cannot carry is refused, so that its group is
// parked instead of being stored as something else.
func TestJSONRefusesWhatChanges(t *testing.T) {
	t.Parallel()
	deep := bson.D{}
	for range maxDepth + 1 {
		deep = bson.D{{Key: "d", Value: deep}}
	}
	s := &Store{at: "/r/", bytes: defaultBytes, fixed: map[string]Keys{"json": {Prefix: "/json/", Format: JSON}, "bson": {Prefix: "/bson/", Format: BSON}}}
	for name, tc := range map[string]struct {
		fields  bson.D
		refused bool
	}{
		"names that are not UTF-8":      {bson.D{{Key: "x\xff", Value: 1}, {Key: "x\xfe", Value: 2}}, true},
		"a subdocument like a long":     {bson.D{{Key: "price", Value: bson.D{{Key: "$numberLong", Value: "5"}}}}, true},
		"a subdocument like an id":      {bson.D{{Key: "v", Value: bson.D{{Key: "$oid", Value: "000000000000000000000000"}}}}, true},
		"a subdocument like no date":    {bson.D{{Key: "when", Value: bson.D{{Key: "$date", Value: "tomorrow"}}}}, true},
		"a nested one":                  {bson.D{{Key: "l", Value: bson.A{bson.D{{Key: "$numberInt", Value: "5"}}}}}, true},
		"too deep":                      {deep, true},
		"a date beyond the calendar":    {bson.D{{Key: "at", Value: bson.DateTime(253402300800000)}}, false},
		"a reference":                   {bson.D{{Key: "r", Value: bson.D{{Key: "$ref", Value: "c"}, {Key: "$id", Value: 1}}}}, false},
		"types that JSON does not have": {bson.D{{Key: "l", Value: int64(5)}, {Key: "d", Value: 5.0}, {Key: "b", Value: bson.Binary{Subtype: 4, Data: make([]byte, 16)}}}, false},
	} {
		doc, err := bson.Marshal(append(bson.D{{Key: "_id", Value: "a"}}, tc.fields...))
		if err != nil {
			t.Fatal(err)
		}
		check := func(kind string) error {
			return s.checkDoc(record.Token{Kind: kind, Name: kind, ID: "x", Fixed: true}, record.StringKey("a"), doc)
		}
		if err := check("json"); (err != nil) != tc.refused {
			t.Errorf("%s: %v, want refused: %t", name, err, tc.refused)
		}
		if err := check("bson"); err != nil {
			t.Errorf("%s as BSON: %v", name, err)
		}
	}
}
