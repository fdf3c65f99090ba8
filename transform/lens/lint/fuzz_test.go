package lint

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"dbcontroller.dev/transform/lens"
)

// FuzzParse: whatever a file holds, it is a lens or has errors, the first of them the one
// that lens.Parse finds.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"operations:\n  - rename: {from: a, too: b}\n  - add: {field: y}\nlens: 2\n",
		"operations:\r\n  - nothing: 1\r\n  - convert:\r\n      field: x\r\n",
		"operations:\r  - nothing: 1\r  - other: 2\r", "operations: [a: 1, b: 2]", "- a\n- b", "",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, errs := parse("f.yaml", text, nil)
		_, want := lens.Parse("f.yaml", text)
		if (want == nil) != (l != nil) || (want == nil) != (len(errs) == 0) {
			t.Fatalf("a lens: %t, errors %v, Parse returns %v", l != nil, errs, want)
		}
		if want != nil && errs[0].Error() != want.Error() {
			t.Fatalf("the first error is %v, Parse returns %v", errs[0], want)
		}
	})
}

// FuzzOpen: whatever a sample holds, it is documents or an error.
func FuzzOpen(f *testing.F) {
	for _, text := range []string{`{"_id":1} {"_id":{"$oid":"x"}}`, "\x05\x00\x00\x00\x00", "\x1f\x8b\x08", "[", "\xff\xff\xff\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Open("sample", bytes.NewReader(data))
		if err != nil {
			return
		}
		for {
			doc, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) || err != nil {
				return
			}
			if err := doc.Validate(); err != nil {
				t.Fatalf("%x: %v", []byte(doc), err)
			}
		}
	})
}
