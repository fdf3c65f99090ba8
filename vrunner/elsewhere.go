package vrunner

import (
	"context"
	"net/http"
)

// Elsewhere notes that another region owns the records that the running request would write. If
// Config.Forward is set and the request had no effect yet, the Runner sends the request there, and
// the answer of the handler is dropped. A later region replaces an earlier one.
//
// A Store that shows records of other regions calls it, together with the error that refuses the
// write. Outside of a writing request it does nothing.
func Elsewhere(ctx context.Context, region string) {
	// A controller has no request that could run elsewhere.
	if r := requestOf(ctx); r != nil && r.pass != nil && r.term == nil {
		r.elsewhere.Store(&region)
	}
}

type changingKey struct{}

// Changing returns a context for the read of a record that the caller is about to change. A Store
// that shows read-only copies refuses such a read of a copy, because the copy may be outdated.
func Changing(ctx context.Context) context.Context {
	return context.WithValue(ctx, changingKey{}, true)
}

// IsChanging reports whether ctx comes from Changing.
func IsChanging(ctx context.Context) bool { return ctx.Value(changingKey{}) != nil }

// Forward sends a request to the region that owns its records, and the answer of that region to the
// client. body is the whole body of the request. It returns false if it sent nothing to anyone: the
// client then gets the refusal of this server's handler.
type Forward func(w http.ResponseWriter, req *http.Request, body []byte, region string) bool
