package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/examples/sampletest"
	libraryv1 "dbcontroller.dev/gen/library/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/record"
)

// selecting is a store that reads several records at one moment. refuses is the error for a prefix.
type selecting struct {
	*sampletest.Store
	selects [][]record.Selector
	refuses error
}

func (s *selecting) Select(ctx context.Context, sels []record.Selector, asList bool) (out []record.Record, err error) {
	if asList {
		return nil, errors.New("a batch is as recent as a get")
	}
	s.selects = append(s.selects, sels)
	for _, sel := range sels {
		name, _ := sel.Key.Name()
		if sel.Prefix && s.refuses != nil {
			return nil, s.refuses
		}
		if sel.Prefix {
			recs, err := s.List(ctx, sel.Kind, name, "", 0)
			if err != nil {
				return nil, err
			}
			out = append(out, recs...)
			continue
		}
		rec, err := s.Get(ctx, sel.Kind, name)
		if err == nil {
			out = append(out, rec)
		} else if !errors.Is(err, record.ErrNotFound) {
			return nil, err
		}
	}
	slices.Reverse(out) // they come in no particular order
	return out, nil
}

// TestBatchGet: resources come in the order of their names, with their parts, by one command if the
// store has it.
func TestBatchGet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newShelf(t)
	for i, id := range []string{"a", "b", "c"} {
		s.add(t, id, int32(i+1))
	}
	one := &selecting{Store: s.store}
	refusing := &selecting{Store: s.store, refuses: &record.UnsupportedError{What: "copies"}}
	for label, table := range map[string]*Table[*libraryv1.Book]{"one by one": s.books, "together": New(one, s.books.cfg), "refused": New(refusing, s.books.cfg)} {
		get := func(mask []string, names ...string) (string, error) {
			req := &secretsv2.BatchGetSecretsRequest{Names: names}
			if mask != nil {
				req.ReadMask = &fieldmaskpb.FieldMask{Paths: mask}
			}
			books, err := table.BatchGet(ctx, req)
			var got []string
			for _, b := range books {
				got = append(got, fmt.Sprint(b.GetName(), b.GetTitle(), b.GetCopies().GetTotal()))
			}
			return strings.Join(got, ", "), err
		}
		if got, err := get(nil, "books/c", "books/a"); err != nil || got != "books/cTitle c3, books/aTitle a1" {
			t.Errorf("%s: got %s, %v", label, got, err)
		}
		if got, err := get([]string{"title"}, "books/b"); err != nil || got != "Title b0" {
			t.Errorf("%s: got %s, %v", label, got, err)
		}
		got, err := get(nil, "books/a", "books/z", "books/y")
		if want(t, err, connect.CodeNotFound, "books/z: record not found"); got != "" {
			t.Errorf("%s: got %s of resources that are not all there", label, got)
		}
	}
	// The mask of the second one needs no parts.
	if len(one.selects) != 3 || len(one.selects[0]) != 4 || len(one.selects[1]) != 1 {
		t.Errorf("the commands are %v", one.selects)
	}
}

// TestBatchGetRefuses names that a request must not have.
func TestBatchGetRefuses(t *testing.T) {
	t.Parallel()
	table := New(sampletest.New(t, "secrets"), Config[*secretsv2.Secret]{Kind: "secrets", Pattern: "projects/{project}/regions/{region}/secrets/{secret}"})
	name := func(project string, i int) string { return fmt.Sprintf("projects/%s/regions/r/secrets/%d", project, i) }
	var many []string
	for i := range MaxNames + 1 {
		many = append(many, name("p", i))
	}
	for _, tc := range []struct {
		parent string
		names  []string
		code   connect.Code
		text   string
	}{
		{"", nil, connect.CodeInvalidArgument, "names: is missing"},
		{"", many, connect.CodeInvalidArgument, "names: has 1001 names, at most 1000 are allowed"},
		{"", many[:MaxNames], connect.CodeNotFound, name("p", 0)},
		{"", []string{name("p", 1), name("p", 2), name("p", 1)}, connect.CodeInvalidArgument, "is named twice"},
		{"", []string{"projects/p/secrets/s"}, connect.CodeInvalidArgument, "names"},
		{"projects/p/regions/r", []string{name("p", 1), name("q", 1)}, connect.CodeInvalidArgument, `"projects/q/regions/r/secrets/1" is not in projects/p/regions/r`},
		{"projects/p/regions/r", []string{name("p", 1)}, connect.CodeNotFound, ""},
		{"projects/-/regions/r", []string{name("q", 1)}, connect.CodeNotFound, ""},
		{"projects/-/regions/s", []string{name("q", 1)}, connect.CodeInvalidArgument, "is not in"},
		{"projects/p", []string{name("p", 1)}, connect.CodeInvalidArgument, "parent"},
	} {
		_, err := table.BatchGet(context.Background(), &secretsv2.BatchGetSecretsRequest{Parent: tc.parent, Names: tc.names})
		want(t, err, tc.code, tc.text)
	}
	_, err := table.BatchGet(context.Background(), &secretsv2.GetSecretRequest{})
	want(t, err, connect.CodeInternal, "has no field for the names of a Secret")
}
