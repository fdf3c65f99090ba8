package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"dbcontroller.dev/record"
)

// sized is a source of records that have a size each.
type sized struct {
	Source
	size int
	runs []int
}

func (s *sized) Read(_ context.Context, sels []record.Selector, _ record.Version, bytes int) (record.Snapshot, error) {
	if bytes > 0 && len(sels)*s.size > bytes {
		return record.Snapshot{}, fmt.Errorf("source: %w", record.ErrTooLarge)
	}
	s.runs = append(s.runs, len(sels))
	return record.Snapshot{}, nil
}

// TestReadsBoundedBytes: no read returns more than its bytes, except for a single record.
func TestReadsBoundedBytes(t *testing.T) {
	t.Parallel()
	for size, want := range map[int][]int{
		100:           {500, 500},
		readBytes / 4: nil, // at most 4
		readBytes + 1: nil, // each alone
	} {
		s := &sized{size: size}
		f := New(s, nil, Config{})
		sels := make([]record.Selector, 1000)
		n := 0
		err := f.read(t.Context(), sels, record.Version{}, func(run []record.Selector, _ record.Snapshot) error {
			n += len(run)
			if len(run) > 1 && len(run)*size > readBytes {
				t.Errorf("%d records of %d bytes at once", len(run), size)
			}
			return nil
		})
		if err != nil || n != len(sels) {
			t.Errorf("%d records of %d bytes were read, %v", n, size, err)
		}
		if diff := gocmp.Diff(want, s.runs); want != nil && diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestCutsTexts: a document has at most so many bytes of texts, and no half characters.
func TestCutsTexts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ doc, want Document }{
		{Document{"a": {"12"}, "b": {"345"}}, Document{"a": {"12"}, "b": {"345"}}},
		{Document{"b": {"345", "6"}, "a": {"12"}}, Document{"a": {"12"}, "b": {"345"}}},
		{Document{"b": {"34", "567"}, "a": {"12"}}, Document{"a": {"12"}, "b": {"34", "5"}}},
		{Document{"a": {"1234\u00e4"}}, Document{"a": {"1234"}}},
	} {
		if diff := gocmp.Diff(tc.want, tc.doc.cut(5)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	text := strings.Repeat("a ", textBytes)
	f := New(nil, nil, Config{Kinds: map[string]Transform{"items": func(record.Record) (Document, error) { return Document{"text": {text}}, nil }}})
	item := f.item(record.Record{Kind: "items", Key: record.StringKey("n")}, record.Guard{})
	if len(item.Doc["text"][0]) != textBytes || item.Digest != item.Doc.Digest() {
		t.Errorf("%d bytes of text", len(item.Doc["text"][0]))
	}
}

// TestUnreadableRecord: the error of a record that cannot be read has no values of it.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	cause := errors.New(`cannot decode "hunter2secret"`)
	doc, err := New(nil, nil, Config{}).document(record.Record{Kind: "items", Key: record.StringKey("n"), Err: cause})
	if !errors.Is(err, cause) || strings.Contains(err.Error(), "hunter2") || len(doc) > 0 || doc == nil {
		t.Errorf("%v %v", doc, err)
	}
}
