package lint_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/lint"
)

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestOpenReadsAllForms(t *testing.T) {
	t.Parallel()
	var dump []byte
	var want []bson.Raw
	for _, d := range []bson.D{{{Key: "_id", Value: int32(1)}, {Key: "n", Value: int64(5)}}, {{Key: "_id", Value: "x"}, {Key: "d", Value: bson.DateTime(1000)}}} {
		raw, err := bson.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		dump, want = append(dump, raw...), append(want, raw)
	}
	relaxed := []byte(`{"_id":1,"n":{"$numberLong":"5"}}` + "\n" + `{"_id":"x","d":{"$date":"1970-01-01T00:00:01Z"}}` + "\n")
	canonical := []byte(`{"_id":{"$numberInt":"1"},"n":{"$numberLong":"5"}} {"_id":"x","d":{"$date":{"$numberLong":"1000"}}}`)
	for name, data := range map[string][]byte{
		"relaxed": relaxed, "canonical": canonical, "dump": dump,
		"relaxed.gz": zipped(t, relaxed), "dump.gz": zipped(t, dump), "over several lines": bytes.ReplaceAll(relaxed, []byte(","), []byte(",\n  ")),
	} {
		s, err := lint.Open(name, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		got, err := all(t, s)
		if err != nil || len(got) != 2 || !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	s, err := lint.Open("empty", strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := all(t, s); got != nil || err != nil {
		t.Errorf("empty: %v, %v", got, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "some text"}})
	if err != nil {
		t.Fatal(err)
	}
	torn := bytes.Clone(doc)
	torn[4] = 0x7e // no BSON type
	for _, tc := range []struct {
		name string
		data []byte
		want string
	}{
		{"array", []byte(` [{"_id":1}]`), "array: it is one JSON array"},
		{"text", []byte(`hello`), "text: record 1: invalid character 'h'"},
		{"number", []byte(`{"_id":1} 7`), "number: record 2 is no object in Extended JSON"},
		{"cut", []byte(`{"_id":1} {"_id":`), "cut: record 2: unexpected EOF"},
		{"bad type", []byte(`{"_id":{"$oid":"x"}}`), "bad type: record 1 is no object in Extended JSON"},
		{"cut dump", doc[:len(doc)-1], "cut dump: record 1: unexpected EOF"},
		{"short dump", []byte{1, 0, 0, 0}, "short dump: record 1 is no BSON as mongodump writes it: its length would be 1"},
		{"torn dump", torn, "torn dump: record 1 is no BSON"},
		{"cut zip", zipped(t, doc)[:12], "cut zip: unexpected EOF"},
	} {
		s, err := lint.Open(tc.name, bytes.NewReader(tc.data))
		if err == nil {
			_, err = all(t, s)
		}
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}
