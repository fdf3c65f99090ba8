package bbs

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// StackV1 serves both API versions while v1 is active: v1 over v1 data, reads of v2 over
// the v2 data that follow, a moment late. v2 may be nil where there are none.
func StackV1(v1, v2 vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(NativeV1(v1, opts...))
	mux.Handle(ActualsV1(v1, opts...))
	if v2 != nil {
		for _, native := range nativesV2 {
			path, h := native(v2, opts...)
			mux.Handle(path, apiversion.ReadOnly(h, reads, v1Active, opts...))
		}
	}
	return mux
}

var nativesV2 = []func(vrunner.Store, ...connect.HandlerOption) (string, http.Handler){NativeV2, ActualsV2}

const v1Active = "v1 is the active version: write through bbs.v1.DesiredLRPService and bbs.v1.ActualLRPService until the upgrade to v2 has completed"

// StackV2 serves both API versions over v2 data, while v2 is active: v1 by way of v2,
// which therefore keeps what v1 does not know of.
func StackV2(v2 vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	return AuditedV2(v2, nil, opts...)
}

var reads = apiversion.Readers(Services()...)

// IsWrite reports whether a procedure, the path of its URL, may write. Unknown ones may.
func IsWrite(procedure string) bool { return !reads(procedure) }

// Usage counts the calls of both versions, to tell when v1 is no longer used.
func Usage(cfg apiversion.UsageConfig) *apiversion.Usage {
	cfg.Services = append(cfg.Services, Services()...)
	return apiversion.NewUsage(cfg)
}

// ServicesV1 and ServicesV2 are those of one version.
func ServicesV1() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{serviceV1, actualServiceV1}
}

func ServicesV2() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{serviceV2, actualServiceV2}
}

// Services are those of both versions, which a stack serves.
func Services() []protoreflect.ServiceDescriptor { return append(ServicesV1(), ServicesV2()...) }

// MountWatches mounts the watches of both API versions in front of a runner, so that a
// client's stream goes on over a flip: what the other stack sends is compared with what
// the client has.
func MountWatches(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
	resource.MountWatches(mux, r, Services(), opts...)
}
