package secrets_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"dbcontroller.dev/examples/sampletest"
	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/internal/store/blevesink"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// searchable is a Store with an index for search, which is made anew for each search.
type searchable struct {
	*sampletest.Store
	t      testing.TB
	fields map[string][]string
	mu     sync.Mutex // one search at a time
	index  *blevesink.Index
	scans  uint64
}

var _ vrunner.SearchStore = (*searchable)(nil)

// withSearch returns the store with an index of these fields of its kinds. It is here and not beside
// the store: tests of packages that services import must not bring the index into their go.sum.
func withSearch(t testing.TB, s *sampletest.Store, fields map[string][]string) *searchable {
	t.Helper()
	index, err := blevesink.Open(blevesink.Config{Folder: filepath.Join(t.TempDir(), "index"), Kinds: fields})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := index.Close(); err != nil {
			t.Error(err)
		}
	})
	return &searchable{Store: s, t: t, fields: fields, index: index}
}

// Searched reports whether the index has a field of a kind.
func (s *searchable) Searched(kind, field string) bool {
	fields, ok := s.fields[kind]
	return ok && (field == "" || field == record.NameField || slices.Contains(fields, field))
}

// Search searches all present records.
func (s *searchable) Search(ctx context.Context, req record.SearchRequest) (record.SearchPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scans++
	var items []sink.Item
	for kind, fields := range s.fields {
		for _, r := range s.All(s.t, kind) {
			name, _ := r.Key.Name()
			doc, err := sink.Fields(fields...)(r)
			if err != nil {
				return record.SearchPage{}, err
			}
			items = append(items, sink.Item{Kind: kind, Name: name, Doc: doc, Guard: record.Guard{Epoch: s.scans}})
		}
	}
	if err := s.index.Write(ctx, items, sink.State{Generation: s.scans}); err != nil {
		return record.SearchPage{}, err
	}
	if err := s.index.Forget(ctx, s.scans); err != nil {
		return record.SearchPage{}, err
	}
	return s.index.Search(ctx, req)
}
