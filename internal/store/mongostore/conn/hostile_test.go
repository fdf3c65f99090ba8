package conn

import (
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
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

// TestDeepErrors: the text of an error of the driver is made recursively from the details of a
// refusal. The stack would overflow, and the process would end.
func TestDeepErrors(t *testing.T) {
	t.Parallel()
	deep := nested(1_500_000, "x")
	err := Concealed(mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: CodeValidation, Message: "refused", Details: deep}}})
	if !strings.Contains(err.Error(), "refused") {
		t.Errorf("the error is %v", err)
	}
	we := mongo.WriteError{Code: CodeValidation, Message: "refused", Details: deep}
	for _, err := range []error{RefusedError("write", we), InvalidError("write", we)} {
		if text := err.(*record.ConcealedError).Err.Error(); !strings.Contains(text, "refused") { //nolint:errorlint // it is made here
			t.Errorf("the error is %s", text)
		}
	}
	reply := append([]byte{byte(len(deep) + 17), byte((len(deep) + 17) >> 8), byte((len(deep) + 17) >> 16), byte((len(deep) + 17) >> 24), 3}, "keyPattern\x00"...)
	if d := DuplicateOf(append(append(reply, deep...), 0), "x"); d.Index != "" || d.OnID {
		t.Errorf("the duplicate is %+v", d)
	}
}

// TestDamagedIndex: a document within an entry of listIndexes has no bytes.
func TestDamagedIndex(t *testing.T) {
	t.Parallel()
	entry := bson.Raw("\x24\x00\x00\x00\x03spec\x00\x05\x00\x00\x00\x00\x03indexBuildInfo\x00\x00\x00\x00\x00\x00")
	if ix := ListedFrom(entry); ix.Name != "" || ix.Build != "" {
		t.Errorf("the index is %+v", ix)
	}
}

// TestShortID: a view has no UUID.
func TestShortID(t *testing.T) {
	t.Parallel()
	c := Collection{}
	if id := c.ShortID(); id != "" {
		t.Errorf("the ID is %q", id)
	}
	c.Info.UUID.Data = []byte{1, 2, 3, 4, 5, 6, 7}
	if id := c.ShortID(); id != "010203040506" {
		t.Errorf("the ID is %q", id)
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
