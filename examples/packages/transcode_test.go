package packages

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestTranscodeAgreesWithTheDriver compares with the slow, general reader: the
// unusual records and every tenth of the others.
func TestTranscodeAgreesWithTheDriver(t *testing.T) {
	t.Parallel()
	zip, err := gzip.NewReader(bytes.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(zip)
	lines.Buffer(nil, maxLine)
	for i := 0; lines.Scan(); i++ {
		plain := bytes.HasPrefix(lines.Bytes(), []byte(`{"_id":"`)) && !bytes.ContainsRune(lines.Bytes(), '\\')
		if plain && i%10 > 0 {
			continue
		}
		compareWithDriver(t, lines.Bytes())
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
}

func TestTranscodeCorners(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{}`, `{"a":[]}`, `{"a":{}}`, `{"a":true,"b":false}`, `{"a":[[1],[2,"x"],{"y":[3]}]}`,
		`{"a":2147483647}`, `{"a":2147483648}`, `{"a":-2147483648}`, `{"a":-2147483649}`,
		`{"a":"","b":"q\"\\\n\u00e9\ud83d\ude00ü"}`, `{"k\"ey":1}`,
	} {
		compareWithDriver(t, []byte(line))
	}
}

func TestTranscodeRefuses(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		``, `[]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1.5}`, `{"a":null}`, `{"a":tru}`, `{"a":"b}`, `{"a":1}}`,
		`{"a":1 }`, `{a:1}`, `{"a" 1}`, `{"a":1"b":2}`, `{"a":[1 2]}`, `{"a":"\x"}`, `{"a":[}`,
	} {
		if raw, err := transcode([]byte(line)); err == nil {
			t.Errorf("%s was read as %s", line, raw)
		}
	}
}

func compareWithDriver(t *testing.T, line []byte) {
	t.Helper()
	got, err := transcode(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var want bson.Raw
	if err := bson.UnmarshalExtJSON(line, false, &want); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("transcoded %s\nas   %s\nwant %s", line, got, want)
	}
}
