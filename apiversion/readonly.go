package apiversion

import (
	"errors"
	"net/http"
	"path"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"dbcontroller.dev/refusal"
)

// Procedure returns the path of a method, such as /pkg.Service/Method.
func Procedure(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// IsRead reports whether a method promises to have no side effects.
func IsRead(m protoreflect.MethodDescriptor) bool {
	return idempotency(m) == connect.IdempotencyNoSideEffects
}

func idempotency(m protoreflect.MethodDescriptor) connect.IdempotencyLevel {
	options, ok := m.Options().(*descriptorpb.MethodOptions)
	if !ok {
		return connect.IdempotencyUnknown
	}
	switch options.GetIdempotencyLevel() {
	case descriptorpb.MethodOptions_NO_SIDE_EFFECTS:
		return connect.IdempotencyNoSideEffects
	case descriptorpb.MethodOptions_IDEMPOTENT:
		return connect.IdempotencyIdempotent
	default:
		return connect.IdempotencyUnknown
	}
}

// Readers returns a function that reports whether a procedure of the services promises to have no
// side effects. It reports false for unknown procedures, since they may write.
func Readers(services ...protoreflect.ServiceDescriptor) func(procedure string) bool {
	readers := map[string]bool{}
	for _, s := range services {
		for i := range s.Methods().Len() {
			if m := s.Methods().Get(i); IsRead(m) {
				readers[Procedure(m)] = true
			}
		}
	}
	return func(procedure string) bool { return readers[procedure] }
}

// ReadOnly serves procedures for which reads returns true by next. It refuses all others with
// refusal.VersionNotActive and the message, which should tell the client what to do instead.
func ReadOnly(next http.Handler, reads func(procedure string) bool, message string, options ...connect.HandlerOption) http.Handler {
	why := errors.New(message)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// Allow only what is known to be a read: an unknown procedure may write.
		if reads(req.URL.Path) {
			next.ServeHTTP(w, req)
			return
		}
		service := strings.Trim(path.Dir(req.URL.Path), "/")
		refusal.Write(w, req, refusal.New(refusal.VersionNotActive, why, refusal.MetaService, service), options...)
	})
}
