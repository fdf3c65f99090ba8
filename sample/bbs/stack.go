package bbs

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	bbsv1 "dbcontroller/gen/bbs/v1"
	bbsv2 "dbcontroller/gen/bbs/v2"
)

// StackV1 serves both API versions while v1 is active: v1 over v1 data, reads of v2 over
// the v2 data that follow. v2 may be nil where there are none.
func StackV1(v1, v2 Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(NativeV1(v1, opts...))
	if v2 != nil {
		mux.Handle(ReadOnlyV2(v2, opts...))
	}
	return mux
}

// StackV2 serves both API versions over v2 data, while v2 is active.
func StackV2(v2 Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(V1OverV2(v2, opts...))
	mux.Handle(NativeV2(v2, opts...))
	return mux
}

// readers are the procedures whose descriptor promises to have no side effects.
var readers = func() map[string]bool {
	out := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{bbsv1.File_bbs_v1_bbs_proto, bbsv2.File_bbs_v2_bbs_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				if o, ok := m.Options().(*descriptorpb.MethodOptions); ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
					out["/"+string(service.FullName())+"/"+string(m.Name())] = true
				}
			}
		}
	}
	return out
}()

// IsWrite reports whether a procedure, the path of its URL, may write. Unknown ones may.
func IsWrite(procedure string) bool { return !readers[procedure] }
