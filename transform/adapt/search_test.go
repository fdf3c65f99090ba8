package adapt_test

import (
	"context"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
)

// searching is a store with an index of these names, the best first.
type searching struct {
	adapt.Store
	names []string
	asked record.SearchRequest
}

func (*searching) Searched(string, string) bool { return true }

func (s *searching) Search(_ context.Context, req record.SearchRequest) (page record.SearchPage, err error) {
	s.asked = req
	for _, name := range s.names {
		if !strings.HasPrefix(name, req.Prefix) {
			continue
		}
		if req.Limit > 0 && len(page.Names) == req.Limit {
			return page, nil
		}
		page.Names = append(page.Names, name)
	}
	page.Done = true
	return page, nil
}

// TestSearchOfAPrefix: better results with other names do not hide those of the prefix.
func TestSearchOfAPrefix(t *testing.T) {
	t.Parallel()
	show, err := regional(t).Direction("v2", "v1")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := regional(t).Direction("v1", "v2")
	if err != nil {
		t.Fatal(err)
	}
	s := &searching{Store: namespaceOn(t, memstore.New(), show.SourceKinds()...), names: []string{
		"q/1/regions/here/s/x", "p/2/regions/here/s/d", "p/1/regions/here/s/a", "p/1/regions/here/s/b",
	}}
	a, err := adapt.New(s, show, keep, adapt.Config{Leads: map[string]string{"secrets": "secrets"}, Names: map[string]transform.Mapping{"secrets": regions{}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		prefix, stored, want string
		done                 bool
	}{
		{"p/1/s/", "p/1/regions/here/s/", "p/1/s/a", false},
		{"p", "", "p/2/s/d", false},
		{"q", "", "q/1/s/x", true},
	} {
		page, err := a.Search(t.Context(), record.SearchRequest{Kind: "secrets", Prefix: tc.prefix, Limit: 1})
		if diff := gocmp.Diff(record.SearchPage{Names: []string{tc.want}, Done: tc.done}, page); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tc.prefix, err, diff)
		}
		if s.asked.Prefix != tc.stored {
			t.Errorf("%s: asked for %q", tc.prefix, s.asked.Prefix)
		}
	}
}
