package conn

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestAnswersOfAnotherForm: details of a refusal and descriptions of a collMod that no server sends
// today cause no panic. A proxy, a newer server or a hostile one may send them.
func TestAnswersOfAnotherForm(t *testing.T) {
	t.Parallel()
	raw := func(d bson.D) bson.Raw {
		t.Helper()
		b, err := bson.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	details := raw(bson.D{{Key: "details", Value: bson.D{
		{Key: "operatorName", Value: "$jsonSchema"}, {Key: "missingProperties", Value: bson.A{1, "born", bson.D{}, nil}},
	}}})
	if got, want := unfit(details, "", 0), []string{"born is missing"}; !slices.Equal(got, want) {
		t.Errorf("the fields are %q, want %q", got, want)
	}
	// A string must have its zero byte. The length of this one is 0.
	if mark := FenceMark(bson.Raw("\x0c\x00\x00\x00\x02a\x00\x00\x00\x00\x00\x00")); mark != "" {
		t.Errorf("a damaged string is the mark %q", mark)
	}
	for levels, want := range map[int]string{3: "orders.n2", 1000: "", 1_000_000: ""} {
		if mark := FenceMark(nested(levels, FencePrefix+"orders.n2")); mark != want {
			t.Errorf("a mark %d levels deep is %q, want %q", levels, mark, want)
		}
	}
}

// nested returns a document with a text that many levels deep.
func nested(levels int, text string) bson.Raw {
	inner := append([]byte{2, 'a', 0, byte(len(text) + 1), 0, 0, 0}, append([]byte(text), 0)...)
	size := func(n int) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }
	const around = 4 + 1 // the length before and the end behind a document
	var b []byte
	for i := range levels {
		b = append(append(b, size(len(inner)+around+(levels-i)*(around+3))...), 3, 'a', 0)
	}
	b = append(append(append(b, size(len(inner)+around)...), inner...), 0)
	return append(b, make([]byte, levels)...)
}
