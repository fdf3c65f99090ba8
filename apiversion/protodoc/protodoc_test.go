package protodoc_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/protodoc"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/internal/base/dynproto"
)

// kinds are the message types that the laws are checked on.
func kinds(t *testing.T) map[string]func() proto.Message {
	all := prototest.Message(t, "kinds.proto", "Kinds")
	return map[string]func() proto.Message{
		"Kinds":         func() proto.Message { return dynamicpb.NewMessage(all) },
		"DesiredLRP":    func() proto.Message { return new(bbsv1.DesiredLRP) },
		"LRPDeployment": func() proto.Message { return new(bbsv2.LRPDeployment) },
		"Struct":        func() proto.Message { return new(structpb.Struct) },
	}
}

func marshal(t rapid.TB, m proto.Message) bson.Raw {
	t.Helper()
	doc, err := protodoc.Marshal(m)
	if err != nil {
		t.Fatalf("%v of %v", err, m)
	}
	if err := doc.Validate(); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for name, fresh := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				m, back := fresh(), fresh()
				prototest.Draw(t, m)
				doc := marshal(t, m)
				if err := protodoc.Unmarshal(doc, back); err != nil {
					t.Fatalf("%v of %s", err, doc)
				}
				if !proto.Equal(m, back) {
					t.Fatalf("%v became %v by %s", m, back, doc)
				}
				// Canonical: what was read makes the same bytes.
				if again := marshal(t, back); !bytes.Equal(doc, again) {
					t.Fatalf("%s became %s", doc, again)
				}
			})
		})
	}
}

func TestMergeLaws(t *testing.T) {
	t.Parallel()
	for name, fresh := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				a, b, back := fresh(), fresh(), fresh()
				prototest.Draw(t, a)
				prototest.Draw(t, b)
				doc := marshal(t, a)
				same, err := protodoc.Merge(doc, a)
				if err != nil || !bytes.Equal(same, doc) {
					t.Fatalf("merging what is there made %s of %s: %v", same, doc, err)
				}
				changed, err := protodoc.Merge(doc, b)
				if err != nil {
					t.Fatal(err)
				}
				if err := protodoc.Unmarshal(changed, back); err != nil || !proto.Equal(b, back) {
					t.Fatalf("%v was merged and read as %v: %v", b, back, err)
				}
				if fresh, err := protodoc.Merge(emptyDoc, b); err != nil || protodoc.Unmarshal(fresh, back) != nil || !proto.Equal(b, back) {
					t.Fatalf("%v was merged into nothing and read as %v: %v", b, back, err)
				}
			})
		})
	}
}

var emptyDoc = bson.Raw{5, 0, 0, 0, 0}

// TestMergeSetsNegativeZero: it is equal to 0, and set.
func TestMergeSetsNegativeZero(t *testing.T) {
	t.Parallel()
	d := prototest.Message(t, "kinds.proto", "Kinds")
	m, back := dynamicpb.NewMessage(d), dynamicpb.NewMessage(d)
	edit(t, m, `db: -0.0`)
	got, err := protodoc.Merge(rawDoc(t, bson.D{{Key: "db", Value: 0.0}}), m)
	if err != nil || protodoc.Unmarshal(got, back) != nil || !proto.Equal(m, back) {
		t.Errorf("%v became %s, %v", m, got, err)
	}
}

// TestMergeKeepsUnknown has a newer program's document changed by an older one.
func TestMergeKeepsUnknown(t *testing.T) {
	t.Parallel()
	d := prototest.Message(t, "kinds.proto", "Kinds")
	m := dynamicpb.NewMessage(d)
	doc := rawDoc(t, bson.D{
		{Key: "_id", Value: "k"}, {Key: "owner", Value: "ann"}, {Key: "name", Value: "old"},
		{Key: "item", Value: bson.D{{Key: "origin", Value: "x"}, {Key: "count", Value: int64(3)}, {Key: "key", Value: "i"}}},
		{Key: "items", Value: bson.A{
			bson.D{{Key: "key", Value: "1"}, {Key: "new", Value: 1}}, bson.D{{Key: "key", Value: "2"}, {Key: "new", Value: 2}}, bson.D{{Key: "key", Value: "3"}, {Key: "new", Value: 3}},
		}},
		{Key: "by_number", Value: bson.D{{Key: "7", Value: bson.D{{Key: "new", Value: 7}}}}},
		{Key: "last", Value: true},
	})
	if err := protodoc.Unmarshal(doc, m); err != nil {
		t.Fatal(err)
	}
	edit(t, m, `name: "new" opt_int: 0 item { count: 4 key: "i" } items { key: "1" } items { key: "3" } by_number { key: 7 value { count: 1 } }`)
	got, err := protodoc.Merge(doc, m)
	if err != nil {
		t.Fatal(err)
	}
	want := rawDoc(t, bson.D{
		{Key: "_id", Value: "k"}, {Key: "owner", Value: "ann"}, {Key: "name", Value: "new"},
		{Key: "item", Value: bson.D{{Key: "origin", Value: "x"}, {Key: "count", Value: int32(4)}, {Key: "key", Value: "i"}}},
		{Key: "items", Value: bson.A{
			bson.D{{Key: "key", Value: "1"}, {Key: "new", Value: 1}}, bson.D{{Key: "key", Value: "3"}, {Key: "new", Value: 3}},
		}},
		{Key: "by_number", Value: bson.D{{Key: "7", Value: bson.D{{Key: "new", Value: 7}, {Key: "count", Value: int32(1)}}}}},
		{Key: "last", Value: true}, {Key: "opt_int", Value: int32(0)},
	})
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func edit(t *testing.T, m proto.Message, text string) {
	t.Helper()
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
}

func rawDoc(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestForms pins the stored form of each kind, which is a format on disk.
func TestForms(t *testing.T) {
	t.Parallel()
	d := prototest.Message(t, "kinds.proto", "Kinds")
	for _, tc := range []struct {
		text, field string
		want        any
	}{
		{``, "name", ""},
		{``, "i32", int32(0)},
		{``, "color", "COLOR_UNSPECIFIED"},
		{``, "texts", bson.A{}},
		{``, "labels", bson.D{}},
		{``, "opt_int", nil},
		{``, "item", nil},
		{`opt_int: 0`, "opt_int", int32(0)},
		{`u32: 4294967295`, "u32", int64(math.MaxUint32)},
		{`u64: 9223372036854775807`, "u64", int64(math.MaxInt64)},
		{`u64: 18446744073709551615`, "u64", decimal("18446744073709551615")},
		{`color: GREEN`, "color", "GREEN"},
		{`color: 9`, "color", int32(9)},
		{`raw: "\xff"`, "raw", bson.Binary{Data: []byte{0xff}}},
		{`by_number { key: 10 } by_number { key: -9 }`, "by_number", bson.D{
			{Key: "-9", Value: emptyItem}, {Key: "10", Value: emptyItem},
		}},
		{`at { seconds: 1 nanos: 5000000 }`, "at", bson.DateTime(1005)},
		{`at { seconds: 1 nanos: 5000001 }`, "at", "1970-01-01T00:00:01.005000001Z"},
		{`wait { seconds: -1 nanos: -500000000 }`, "wait", "-1.500s"},
		{`wait { }`, "wait", "0s"},
		{`boxed_text { }`, "boxed_text", ""},
		{`any { null_value: NULL_VALUE }`, "any", bson.Null{}},
		{`list { values { number_value: 1 } values { list_value { } } }`, "list", bson.A{1.0, bson.A{}}},
		{`extra { fields { key: "b" value { bool_value: true } } fields { key: "a" value { string_value: "x" } } }`, "extra", bson.D{{Key: "a", Value: "x"}, {Key: "b", Value: true}}},
	} {
		t.Run(tc.text+" "+tc.field, func(t *testing.T) {
			t.Parallel()
			m := dynamicpb.NewMessage(d)
			edit(t, m, tc.text)
			got := marshal(t, m).Lookup(tc.field)
			if tc.want == nil {
				if !got.IsZero() {
					t.Errorf("the document has %s", got)
				}
				return
			}
			typ, value, err := bson.MarshalValue(tc.want)
			if err != nil {
				t.Fatal(err)
			}
			if got.Type != typ || !bytes.Equal(got.Value, value) {
				t.Errorf("got %s %s", got.Type, got)
			}
		})
	}
}

var emptyItem = bson.D{{Key: "key", Value: ""}, {Key: "count", Value: int32(0)}, {Key: "tags", Value: bson.A{}}, {Key: "notes", Value: bson.D{}}}

func decimal(s string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(s)
	if err != nil {
		panic(err)
	}
	return d
}

func TestReadsWhatIsExact(t *testing.T) {
	t.Parallel()
	d := prototest.Message(t, "kinds.proto", "Kinds")
	for _, tc := range []struct {
		name string
		doc  bson.D
		want string // a message, or with "!" an error
	}{
		{"null is unset", bson.D{{Key: "name", Value: nil}, {Key: "texts", Value: nil}, {Key: "item", Value: nil}, {Key: "opt_int", Value: nil}}, ``},
		{"integral double", bson.D{{Key: "i32", Value: 7.0}, {Key: "u64", Value: 7.0}}, `i32: 7 u64: 7`},
		{"integer as double", bson.D{{Key: "db", Value: int64(7)}}, `db: 7`},
		{"enum number", bson.D{{Key: "color", Value: int32(2)}}, `color: GREEN`},
		{"fraction", bson.D{{Key: "i32", Value: 7.5}}, "!i32: the number is not a whole one"},
		{"too large", bson.D{{Key: "i32", Value: int64(1) << 40}}, "!i32: the number is out of the field's range"},
		{"negative", bson.D{{Key: "u32", Value: int32(-1)}}, "!u32: the number is out of the field's range"},
		{"inexact", bson.D{{Key: "db", Value: int64(1)<<60 + 1}}, "!db: the integer is too large"},
		{"wrong type", bson.D{{Key: "item", Value: bson.D{{Key: "key", Value: 5}}}}, "!item.key: is of type 32-bit integer, not a string"},
		{"wrong item", bson.D{{Key: "items", Value: bson.A{bson.D{}, "x"}}}, "!items.1: is of type string, not a document"},
		{"wrong key", bson.D{{Key: "by_number", Value: bson.D{{Key: "01", Value: bson.D{}}}}}, "!by_number.01: the key is not a int32"},
		{"enum name", bson.D{{Key: "color", Value: "MAUVE"}}, "!color: the name is not one of enum prototest.Color"},
		{"oneof twice", bson.D{{Key: "choice_text", Value: "a"}, {Key: "choice_item", Value: bson.D{}}}, "!choice_item: another field of oneof choice"},
		{"field twice", bson.D{{Key: "i32", Value: 1}, {Key: "i32", Value: 2}}, "!i32: is there twice"},
		{"bad time", bson.D{{Key: "at", Value: "yesterday"}}, "!at: 9 characters that are not a time"},
		{"bad duration", bson.D{{Key: "wait", Value: "1.s"}}, "!wait: 3 characters that are not a duration"},
		{"date out of range", bson.D{{Key: "at", Value: bson.DateTime(math.MaxInt64)}}, "!at: the time is not one of the years"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := dynamicpb.NewMessage(d)
			err := protodoc.Unmarshal(rawDoc(t, tc.doc), m)
			if wantErr, isErr := strings.CutPrefix(tc.want, "!"); isErr {
				var typed *protodoc.Error
				if !errors.As(err, &typed) || !strings.HasPrefix(err.Error(), wantErr) {
					t.Fatalf("error is %v", err)
				}
				return
			}
			want := dynamicpb.NewMessage(d)
			edit(t, want, tc.want)
			if err != nil || !proto.Equal(m, want) {
				t.Errorf("got %v, %v", m, err)
			}
		})
	}
}

func TestRefusesWhatADocumentCannotHold(t *testing.T) {
	t.Parallel()
	d := prototest.Message(t, "kinds.proto", "Kinds")
	set := func(text string) proto.Message {
		m := dynamicpb.NewMessage(d)
		edit(t, m, text)
		return m
	}
	unknown := set(`item { key: "x" }`)
	unknown.ProtoReflect().Get(d.Fields().ByName("item")).Message().SetUnknown(protoreflect.RawFields{0xf8, 0x01, 0x01})
	inStruct := set(`extra { }`)
	inStruct.ProtoReflect().Get(d.Fields().ByName("extra")).Message().SetUnknown(protoreflect.RawFields{0xf8, 0x01, 0x01})
	notUTF8 := dynamicpb.NewMessage(d)
	notUTF8.Set(d.Fields().ByName("name"), protoreflect.ValueOfString("\xff"))
	deep := dynamicpb.NewMessage(d)
	for m, i := protoreflect.Message(deep), 0; i < 100; i++ {
		m = m.Mutable(d.Fields().ByName("child")).Message()
	}
	for _, tc := range []struct {
		name, want string
		msg        proto.Message
	}{
		{"unknown field", "item: protobuf field 31 of prototest.Item is unknown", unknown},
		{"unknown field of a Struct", "extra: protobuf field 31 of google.protobuf.Struct is unknown", inStruct},
		{"NUL in key", "labels: a key of the map holds a NUL", set(`labels { key: "a\000" value: "x" }`)},
		{"not UTF-8", "name: text is not UTF-8", notUTF8},
		{"deep", "more than 100 levels", deep},
		{"bad timestamp", "at: the timestamp is not one of", set(`at { nanos: -1 }`)},
		{"bad duration", "wait: the duration is out of range", set(`wait { seconds: 1 nanos: -1 }`)},
		{"empty Value", "any: a google.protobuf.Value has no value", set(`any { }`)},
		{"no document", "a google.protobuf.Timestamp alone", timestamppb.New(time.Unix(0, 0))},
		{"no document", "a google.protobuf.Duration alone", durationpb.New(1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := protodoc.Marshal(tc.msg)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Marshal: %v", err)
			}
			if _, mergeErr := protodoc.Merge(emptyDoc, tc.msg); mergeErr == nil || !strings.Contains(mergeErr.Error(), tc.want) {
				t.Errorf("Merge: %v", mergeErr)
			}
		})
	}
}

func TestMarshalIDPutsTheIDFirst(t *testing.T) {
	t.Parallel()
	doc, err := protodoc.MarshalID("g", &bbsv1.EnvVar{Name: "A", Value: "1"})
	if want := `{"_id": "g","name": "A","value": "1"}`; err != nil || doc.String() != want {
		t.Errorf("%s, %v", doc, err)
	}
}

func TestMalformedDocuments(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]bson.Raw{
		"nothing": nil, "cut": emptyDoc[:4], "bytes after it": append(bytes.Clone(emptyDoc), 0), "length too large": {6, 0, 0, 0, 0}, "no type": {7, 0, 0, 0, 0x42, 0, 0},
	} {
		if err := protodoc.Unmarshal(doc, new(bbsv1.EnvVar)); err == nil || !strings.Contains(err.Error(), "malformed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(emptyDoc))
	seed, err := protodoc.Marshal(&bbsv1.DesiredLRP{ProcessGuid: "g", Routes: map[string]string{"a": "b"}, Definition: &bbsv1.Definition{Env: []*bbsv1.EnvVar{{Name: "x"}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(seed))
	f.Fuzz(func(t *testing.T, doc []byte) {
		m := new(bbsv1.DesiredLRP)
		if protodoc.Unmarshal(doc, m) != nil {
			return
		}
		if same, err := protodoc.Merge(doc, m); err != nil || !bytes.Equal(same, doc) {
			t.Errorf("merging the content of %x made %x: %v", doc, same, err)
		}
	})
}

// FuzzMarshal: a message that a client sent makes a valid document that is read as the same
// message, or is refused.
func FuzzMarshal(f *testing.F) {
	d := prototest.Message(f, "kinds.proto", "Kinds")
	for _, text := range []string{
		``, `name: "n" i32: -1 u64: 18446744073709551615 fl: nan db: -0.0 raw: "\xff" color: GREEN opt_int: 0 texts: "" items { notes { key: "k" value: "v" } }`,
		`labels { key: "a\000" value: "x" }`, `by_number { key: -9 value { } } by_flag { key: true value: 1 } by_big { key: 18446744073709551615 value: "" }`,
		`child { child { choice_item { } } } color: 9 boxed_text { } boxed_number { value: 1 }`,
		`at { seconds: 253402300800 } wait { seconds: 1 nanos: -1 }`, `at { seconds: -1 nanos: 5 } times { } wait { nanos: -5 }`,
		`any { } values { key: "$x" value { null_value: NULL_VALUE } }`, `extra { fields { key: "_id" value { number_value: inf } } } list { values { struct_value { } } }`,
	} {
		m := dynamicpb.NewMessage(d)
		if err := prototext.Unmarshal([]byte(text), m); err != nil {
			f.Fatal(err)
		}
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, "")
	}
	f.Add([]byte{0xf8, 0x3f, 1}, "id\x00\xff")        // an unknown field
	f.Add([]byte{0xda, 0x04, 3, 0xf8, 0x01, 1}, "id") // one of a Struct
	f.Add([]byte{0xe2, 0x04, 3, 0xf8, 0x01, 1}, "id") // one of a google.protobuf.Value
	f.Add([]byte("\xf2\x04\b\n\x040000\b0"), "0")     // a map's key twice, once as a number
	f.Fuzz(func(t *testing.T, wire []byte, id string) {
		m, back := dynamicpb.NewMessage(d), dynamicpb.NewMessage(d)
		if dynproto.Unmarshal(wire, m) != nil {
			return
		}
		doc, err := protodoc.Marshal(m)
		if _, mergeErr := protodoc.Merge(emptyDoc, m); (mergeErr == nil) != (err == nil) {
			t.Errorf("%v: %v alone, and %v in a document", m, err, mergeErr)
		}
		var typed *protodoc.Error
		if err != nil {
			if !errors.As(err, &typed) {
				t.Errorf("error %v", err)
			}
			return
		}
		if err := doc.Validate(); err != nil {
			t.Fatalf("%v made %x: %v", m, []byte(doc), err)
		}
		if err := protodoc.Unmarshal(doc, back); err != nil || !proto.Equal(m, back) {
			t.Fatalf("%v became %v by %s: %v", m, back, doc, err)
		}
		if again, err := protodoc.Marshal(back); err != nil || !bytes.Equal(again, doc) {
			t.Errorf("%s became %s: %v", doc, again, err)
		}
		if named, err := protodoc.MarshalID(id, m); err == nil && named.Lookup("_id").StringValue() != id {
			t.Errorf("_id %q became %s", id, named)
		}
	})
}

func BenchmarkMarshal(b *testing.B) {
	m := sample()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := protodoc.Marshal(m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	doc, err := protodoc.Marshal(sample())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := protodoc.Unmarshal(doc, new(bbsv1.DesiredLRP)); err != nil {
			b.Fatal(err)
		}
	}
}

func sample() *bbsv1.DesiredLRP {
	return &bbsv1.DesiredLRP{
		ProcessGuid: "guid", Domain: "cf-apps", Instances: 3, Routes: map[string]string{"http": "{}", "tcp": "[]"},
		Definition: &bbsv1.Definition{Rootfs: "docker:///x", Env: []*bbsv1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}, Ports: []uint32{8080, 2222}},
	}
}
