package apiversion_test

import (
	"testing"

	"connectrpc.com/connect"
)

// TestBatch: a request with several names is one with several of the other version, and so is its
// error.
func TestBatch(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, _ *library, c client) {
		c.do("CreateBook", `book { `+oldBook+` }`)
		c.do("CreateBook", `book { name: "shelves/b/books/emma" title: "Emma" author: "Jane Austen" }`)
		const names = `names: "shelves/b/books/emma" names: "shelves/a/books/dune"`
		books := get(c.do("BatchGetBooks", names), "books").List()
		if books.Len() != 2 || get(books.Get(0).Message(), "author").String() != "Jane Austen" {
			t.Fatalf("got %v", books)
		}
		wantMessage(t, books.Get(1).Message().Interface().(*message), oldBook)
		books = get(c.do("BatchGetBooks", names+` read_mask { paths: "title" }`), "books").List()
		wantMessage(t, books.Get(0).Message().Interface().(*message), `title: "Emma"`)
		_, err := c.try(t.Context(), "BatchGetBooks", names+` names: "shelves/a/books/z"`)
		wantError(t, err, connect.CodeNotFound, `book "shelves/a/books/z" is not there`)
		_, err = c.try(t.Context(), "BatchGetBooks", names+` names: "shelf"`)
		wantError(t, err, connect.CodeInvalidArgument, "")
		if field := violated(err); field != "names" {
			t.Errorf("the error is about %q: %v", field, err)
		}
	})
}
