package apiversion_test

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
)

const duneV2 = "shelves/a/floors/ground/books/dune"

// changedMeanwhile is a library of v2 whose book another client changes after it was read
// for an update, and before the update is made.
func changedMeanwhile(t *testing.T, times int) *library {
	v2 := newLibrary(service(t, "v2"))
	v2.add(text(t, bookOf(v2.service), newBook))
	v2.before = func(_ context.Context, method string) error {
		if method != "UpdateBook" || times == 0 {
			return nil
		}
		times--
		b := v2.book(t, duneV2)
		put(b, "summary", "changed")
		put(b, "page_count", int32(1000+times))
		v2.add(b)
		return nil
	}
	return v2
}

// TestUpdatesWriteWhatTheyAreAskedFor: of what was read, nothing is written back over what
// another client has changed meanwhile.
func TestUpdatesWriteWhatTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		req  string
		want map[string]string
	}{
		{`book { name: "shelves/a/books/dune" }`, map[string]string{"display_title": "Dune", "last_name": "van Herbert"}},
		{`book { name: "shelves/a/books/dune" title: "D" }`, map[string]string{"display_title": "D", "last_name": "van Herbert"}},
		{`book { name: "shelves/a/books/dune" author: "A B" title: "D" } update_mask { paths: "author" }`, map[string]string{"display_title": "Dune", "first_name": "A", "last_name": "B"}},
	} {
		v2 := changedMeanwhile(t, 1)
		c := serve(t, service(t, "v1"), apiversion.NewHandler(libraryTable(t), v2.connectHandler(), apiversion.Options{}))
		c.do("UpdateBook", tc.req)
		b := v2.book(t, duneV2)
		if get(b, "page_count").Int() != 1000 || get(b, "summary").String() != "changed" {
			t.Errorf("%s undid what another client has changed: %v", tc.req, b)
		}
		for field, want := range tc.want {
			if got := get(b, field).String(); got != want {
				t.Errorf("%s: %s is %q", tc.req, field, got)
			}
		}
	}
}

// TestReplacingUpdatesAreConditional: where the new version has no mask, an update writes
// all that was read. It is made again when that has changed.
func TestReplacingUpdatesAreConditional(t *testing.T) {
	t.Parallel()
	cfg := libraryConfig(t, bookResource(t))
	cfg.Methods = append(cfg.Methods, apiversion.Method{Old: "UpdateBook", New: "UpdateBook", NewRoles: apiversion.Roles{UpdateMask: "-"}})
	table, err := apiversion.NewTable(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, mask := range []string{"title", "*"} {
		v2 := changedMeanwhile(t, 2)
		c := serve(t, service(t, "v1"), apiversion.NewHandler(table, v2.connectHandler(), apiversion.Options{}))
		c.do("UpdateBook", `book { name: "shelves/a/books/dune" title: "D" } update_mask { paths: "`+mask+`" }`)
		if b := v2.book(t, duneV2); get(b, "display_title").String() != "D" || get(b, "summary").String() != "changed" {
			t.Errorf("mask %s: %v", mask, b)
		}

		// A condition of the client's own is the client's to repeat.
		v2 = changedMeanwhile(t, 1)
		c = serve(t, service(t, "v1"), apiversion.NewHandler(table, v2.connectHandler(), apiversion.Options{}))
		etag := get(v2.book(t, duneV2), "etag").String()
		_, err := c.try(t.Context(), "UpdateBook", `book { name: "shelves/a/books/dune" title: "D" etag: "`+etag+`" } update_mask { paths: "`+mask+`" }`)
		wantError(t, err, connect.CodeAborted, "etag has changed")

		// Nor does it go on for ever.
		v2 = changedMeanwhile(t, 1000)
		c = serve(t, service(t, "v1"), apiversion.NewHandler(table, v2.connectHandler(), apiversion.Options{}))
		_, err = c.try(t.Context(), "UpdateBook", `book { name: "shelves/a/books/dune" title: "D" } update_mask { paths: "`+mask+`" }`)
		wantError(t, err, connect.CodeAborted, "etag has changed")
	}
}

// TestErrorsSpeakOfTheClientsNames: also of those that the new version makes of a parent,
// and never of parts of other words.
func TestErrorsSpeakOfTheClientsNames(t *testing.T) {
	t.Parallel()
	v2 := newLibrary(service(t, "v2"))
	v2.before = func(context.Context, string) error {
		return connect.NewError(connect.CodeAlreadyExists, errors.New("shelves/a/floors/ground/books/dune, not shelves/a/floors/ground2"))
	}
	c := serve(t, service(t, "v1"), apiversion.NewHandler(libraryTable(t), v2.connectHandler(), apiversion.Options{}))
	_, err := c.try(t.Context(), "CreateBook", `parent: "shelves/a" book { title: "Dune" }`)
	wantError(t, err, connect.CodeAlreadyExists, "shelves/a/books/dune, not shelves/a/floors/ground2")
}
