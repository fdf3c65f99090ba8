package apiversion_test

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/internal/prototest"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// keep changes nothing.
func keep(doc, _ bson.Raw) (bson.Raw, error) { return doc, nil }

// TestFiltersOnWhatIsNotSet: one version cannot distinguish 0 from unset, the other can.
func TestFiltersOnWhatIsNotSet(t *testing.T) {
	t.Parallel()
	plain, careful := prototest.Message(t, "kinds.proto", "Plain"), prototest.Message(t, "kinds.proto", "Careful")
	r, err := byDocuments(apiversion.Resource{Old: plain, New: careful, UpMapping: transform.Identity{}, DownMapping: transform.Identity{}}, keep, keep)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		r            *apiversion.Resource
		filter, want string // "" is an error
	}{
		{r, `count == 0`, `count == 0 || !has(count)`},
		{r, `count != 0`, `!(count == 0 || !has(count))`},
		{r, `count < 5`, `count < 5 || !has(count)`},
		{r, `count in [1, 0]`, `count in [1, 0] || !has(count)`},
		{r, `count > 0`, `count > 0`},
		{r, `has(count)`, `!(count == 0 || !has(count))`},
		{r, `key == "" && count == 1`, `key == "" && count == 1`},
		{r.Reverse(), `count == 0`, `count == 0`},
		{r.Reverse(), `has(count)`, ""},
		{r.Reverse(), `count == null`, ""},
	} {
		f, err := listing.ParseFilter(tc.filter, tc.r.Old)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tc.r.Filter(f)
		switch {
		case tc.want == "" && err == nil:
			t.Errorf("%s became %s", tc.filter, got)
		case tc.want != "" && (err != nil || got.String() != tc.want):
			t.Errorf("%s became %s, %v", tc.filter, got, err)
		}
		if tc.r != r || err != nil {
			continue
		}
		for _, m := range []string{``, `count: 0`, `count: 1`, `count: 5`, `count: -1 key: "k"`} {
			stored := text(t, careful, m)
			shown, err := r.Down(stored, nil)
			if err != nil || f.Eval(shown) != got.Eval(stored) {
				t.Errorf("%s of %v is %t, but %s of %v is %t (%v)", tc.filter, shown, f.Eval(shown), got, stored, got.Eval(stored), err)
			}
		}
	}
}

// TestConnectGet: reads of the old version can be asked for by GET, as before.
func TestConnectGet(t *testing.T) {
	t.Parallel()
	v2 := newLibrary(service(t, "v2"))
	v2.add(text(t, bookOf(v2.service), newBook))
	methods := make(chan string, 2)
	h := apiversion.NewHandler(libraryTable(t), v2.connectHandler(), apiversion.Options{})
	c := serve(t, service(t, "v1"), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		methods <- req.Method
		h.ServeHTTP(w, req)
	}), connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects))
	wantMessage(t, c.do("GetBook", `name: "shelves/a/books/dune"`), oldBook)
	if m := <-methods; m != http.MethodGet {
		t.Errorf("it was asked by %s", m)
	}
	_, err := c.try(t.Context(), "DeleteBook", `name: "shelves/a/books/dune"`)
	if err == nil {
		t.Error("a book was deleted by GET")
	}
	if v2.book(t, "shelves/a/floors/ground/books/dune") == nil {
		t.Error("the book is gone")
	}
}

// TestOtherPathsAreNotFound: the handler is for the old service alone.
func TestOtherPathsAreNotFound(t *testing.T) {
	t.Parallel()
	v2 := newLibrary(service(t, "v2"))
	h := apiversion.NewHandler(libraryTable(t), v2.connectHandler(), apiversion.Options{})
	if _, err := direct(t, v2.service, h).try(t.Context(), "GetBook", ``); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("error is %v", err)
	}
}
