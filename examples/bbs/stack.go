package bbs

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/bbs/task"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// StackV1 serves both API versions while v1 is active: v1 over v1 data, and reads of v2 over the v2
// data, which lag slightly behind. v2 may be nil if there are no v2 data.
func StackV1(v1, v2 vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(NativeV1(v1, opts...))
	mux.Handle(ActualsV1(v1, opts...))
	mux.Handle(task.NativeV1(v1, opts...))
	if v2 != nil {
		for _, native := range nativesV2 {
			// v2's data belong to the sync until the flip. A client's write would be lost or
			// refused.
			path, h := native(v2, opts...)
			mux.Handle(path, apiversion.ReadOnly(h, reads, v1Active, opts...))
		}
	}
	return mux
}

var nativesV2 = []func(vrunner.Store, ...connect.HandlerOption) (string, http.Handler){NativeV2, ActualsV2, task.NativeV2}

const v1Active = "v1 is the active version: write through bbs.v1.DesiredLRPService, bbs.v1.ActualLRPService and bbs.v1.TaskService until the upgrade to v2 has completed"

// StackV2 serves both API versions over v2 data while v2 is active. v1 requests go through v2's
// handlers, so v2 fields that v1 does not know are kept. Those of tasks go through v1's handlers over
// an adapted store.
func StackV2(v2 vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	return AuditedV2(v2, nil, opts...)
}

var reads = apiversion.Readers(Services()...)

// IsWrite reports whether a procedure, given as its URL path, may write. Unknown procedures may.
func IsWrite(procedure string) bool { return !reads(procedure) }

// Usage counts the calls of both versions, so that an operator can see whether v1 is still in use.
func Usage(cfg apiversion.UsageConfig) *apiversion.Usage {
	cfg.Services = append(cfg.Services, Services()...)
	return apiversion.NewUsage(cfg)
}

// ServicesV1 returns v1's services, and ServicesV2 those of v2.
func ServicesV1() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{serviceV1, actualServiceV1, task.ServiceV1}
}

func ServicesV2() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{serviceV2, actualServiceV2, task.ServiceV2}
}

// Services returns the services of both versions.
func Services() []protoreflect.ServiceDescriptor { return append(ServicesV1(), ServicesV2()...) }

// MountWatches mounts the watches of both API versions in front of a runner. A client's stream
// continues across a flip: the runner compares the new stack's records with those the client has.
func MountWatches(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
	resource.MountWatches(mux, r, Services(), opts...)
}
