package rawdoc

import (
	"encoding/binary"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func marshal(t testing.TB, doc any) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// nested returns a document with that many levels.
func nested(levels int) bson.Raw {
	const around = 4 + 1 + 2 // the length and the end of a document, and the head of an element
	var b []byte
	for i := range levels {
		// The innermost document has no element.
		b = binary.LittleEndian.AppendUint32(b, uint32(5+(levels-1-i)*around))
		if i < levels-1 {
			b = append(b, byte(bson.TypeEmbeddedDocument), 0)
		}
	}
	return append(b, make([]byte, levels)...)
}

func TestLookup(t *testing.T) {
	t.Parallel()
	doc := marshal(t, bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: bson.A{"x", bson.D{{Key: "c", Value: "y"}}}}}}, {Key: "s", Value: "z"}})
	for path, want := range map[string]string{"a.b.1.c": "y", "a.b.0": "x", "s": "z", "s.a": "", "a.c": "", "a.b.2": "", "a.b.0.c": ""} {
		if got, _ := Lookup(doc, strings.Split(path, ".")...).StringValueOK(); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	for _, damaged := range []string{
		"\x0d\x00\x00\x00\x03a\x00\x00\x00\x00\x00\x00",
		"\x0d\x00\x00\x00\x04a\x00\x04\x00\x00\x00\x00",
		"\x0d\x00\x00\x00\x03a\x00\xff\xff\xff\x7f\x00",
		"\x0d\x00\x00\x00\x03a\x00\xff\xff\xff\xff\x00",
		"\x03", "",
	} {
		if got := Lookup(bson.Raw(damaged), "a", "0", "b"); !got.IsZero() {
			t.Errorf("%q has %v", damaged, got)
		}
	}
}

// TestUnmarshalReturns: the driver never returns for the first document. The field x is unknown, and
// the driver goes back by its negative length.
func TestUnmarshalReturns(t *testing.T) {
	t.Parallel()
	type into struct {
		In struct{ A string }
	}
	text := "\x02x\x00\xf9\xff\xff\xff/0000000"
	inner := string(binary.LittleEndian.AppendUint32(nil, uint32(4+len(text)+1))) + text + "\x00"
	outer := "\x03in\x00" + inner
	damaged := bson.Raw(string(binary.LittleEndian.AppendUint32(nil, uint32(4+len(outer)+1))) + outer + "\x00")
	if err := damaged.Validate(); err != nil {
		t.Fatalf("the driver sees the fault at the top: %v", err)
	}
	var v into
	if err := Unmarshal(damaged, &v); err == nil {
		t.Errorf("it is read as %+v", v)
	}
	if err := Unmarshal(marshal(t, bson.D{{Key: "in", Value: bson.D{{Key: "x", Value: 1}, {Key: "a", Value: "b"}}}}), &v); err != nil || v.In.A != "b" {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	for levels, deep := range map[int]bool{1: false, 100: false, MaxDepth: false, MaxDepth + 1: true, 1_000_000: true} {
		doc := nested(levels)
		if got := DocTooDeep(doc); got != deep {
			t.Errorf("%d levels are too deep: %t", levels, got)
		}
		if err := Validate(doc); (err != nil) != deep {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
	// The deep document may be in a list, in a scope of code, or behind other fields.
	for name, v := range map[string]any{
		"list":  bson.A{1, nested(MaxDepth)},
		"scope": bson.CodeWithScope{Code: "x", Scope: nested(MaxDepth)},
		"field": bson.D{{Key: "a", Value: strings.Repeat("x", 1000)}, {Key: "b", Value: nested(MaxDepth)}},
	} {
		if doc := marshal(t, bson.D{{Key: "v", Value: v}}); !DocTooDeep(doc) || Validate(doc) == nil {
			t.Errorf("a deep document in a %s is accepted", name)
		}
	}
}
