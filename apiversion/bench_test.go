package apiversion_test

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion"
)

// BenchmarkGet compares a call of the native handler with one that is translated.
func BenchmarkGet(b *testing.B) {
	v2 := newLibrary(service(b, "v2"))
	v2.add(text(b, bookOf(v2.service), newBook))
	native := v2.connectHandler()
	for name, c := range map[string]struct {
		handler http.Handler
		version string
		book    string
	}{
		"native":     {native, "v2", "shelves/a/floors/ground/books/dune"},
		"translated": {apiversion.NewHandler(libraryTable(b), native, apiversion.Options{}), "v1", "shelves/a/books/dune"},
	} {
		b.Run(name, func(b *testing.B) {
			cl := direct(b, service(b, c.version), c.handler)
			m, call := cl.method("GetBook")
			req := text(b, m.Input(), `name: "`+c.book+`"`)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := call.CallUnary(b.Context(), connect.NewRequest(req)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
