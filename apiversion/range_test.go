package apiversion_test

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/refusal"
)

// TestRange: a client of a version that is not served is told which are, in its own protocol,
// and nobody else is.
func TestRange(t *testing.T) {
	t.Parallel()
	v1, v2 := service(t, "v1"), service(t, "v2")
	r := apiversion.NewRange([]protoreflect.ServiceDescriptor{v1, v2}, nil)
	for path, want := range map[string]string{
		"/prototest.library.v0.Library/GetBook":   "prototest.library is not served in version v0: use one from v1 to v2",
		"/prototest.library.v3.Books/GetBook":     "prototest.library is not served in version v3: use one from v1 to v2",
		"/prototest.library.v3beta1.Library/Get":  "prototest.library is not served in version v3beta1: use one from v1 to v2",
		"/prototest.library.v1.Library/GetBook":   "",
		"/prototest.library.v2.Library/None":      "",
		"/prototest.library.v2.Other/None":        "", // a version that is served has no such service
		"/prototest.library.Library/GetBook":      "",
		"/prototest.other.v1.Library/GetBook":     "",
		"/prototest.library.version.Library/None": "",
		"/v3.Library/GetBook":                     "",
		"/prototest.library.v3.Library":           "",
		"/":                                       "",
		"":                                        "",
	} {
		refused := r.Refusal(path)
		switch {
		case refused == nil && want != "" || refused != nil && refused.Message() != want:
			t.Errorf("%s: %v, want %s", path, refused, want)
		case refused != nil:
			reason, meta := refusal.Of(refused)
			if reason != refusal.VersionNotServed || meta[refusal.MetaService] != "prototest.library" || meta[refusal.MetaOldest] != "v1" || meta[refusal.MetaNewest] != "v2" {
				t.Errorf("%s: reason %s %v", path, reason, meta)
			}
		}
	}
	only := apiversion.NewRange([]protoreflect.ServiceDescriptor{v2}, []protoreflect.ServiceDescriptor{v1, v2})
	for protocol, options := range protocols {
		lib := newLibrary(v2)
		lib.add(text(t, bookOf(v2), newBook))
		h := only.Handler(lib.connectHandler())
		_, err := serve(t, v1, h, options...).try(t.Context(), "GetBook", `name: "shelves/a/books/dune"`)
		if reason, meta := refusal.Of(err); reason != refusal.VersionNotServed || meta[refusal.MetaVersion] != "v1" || meta[refusal.MetaOldest] != "v2" {
			t.Errorf("%s: %v, reason %s %v", protocol, err, reason, meta)
		}
		serve(t, v2, h, options...).do("GetBook", `name: "shelves/a/floors/ground/books/dune"`)
	}
}
