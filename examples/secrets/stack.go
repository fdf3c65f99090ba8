package secrets

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	secretsv1 "dbcontroller.dev/gen/secrets/v1"
	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// StackV1 serves both API versions while v1 is active: v1 over v1 data, and reads of v2 over the v2
// data, which lag slightly behind. v2 may be nil if there are no v2 data.
func StackV1(v1, v2 vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(NativeV1(v1, opts...))
	if v2 != nil {
		path, native := NativeV2(v2, opts...)
		mux.Handle(path, apiversion.ReadOnly(native, reads, v1Active, opts...))
	}
	return mux
}

const v1Active = "v1 is the active version: write through secrets.v1.SecretService until the upgrade to v2 has completed"

// StackV2 serves both API versions over v2 data while v2 is active. v1's own handlers serve v1.
func StackV2(v2 vrunner.Store, opts ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	path, native := NativeV2(v2, opts...)
	mux.Handle(path, native)
	mux.Handle(NativeV1(OverV2(v2), opts...))
	return mux
}

var reads = apiversion.Readers(Services()...)

// IsWrite reports whether a procedure, given as its URL path, may write. Unknown procedures may.
func IsWrite(procedure string) bool { return !reads(procedure) }

var (
	serviceV1 = secretsv1.File_secrets_v1_secrets_proto.Services().ByName("SecretService")
	serviceV2 = secretsv2.File_secrets_v2_secrets_proto.Services().ByName("SecretService")
)

// Services returns the services of both versions.
func Services() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{serviceV1, serviceV2}
}

// SearchedV1 and SearchedV2 return the searchable fields of each version. The payload is not among
// them.
func SearchedV1() []string { return []string{"owner", "labels", "replaces"} }

// SearchedV2 returns the searchable fields of v2.
func SearchedV2() []string { return []string{"owner_team", "owner_person", "labels", "replaces"} }

// MountWatches mounts the watches and imports of both API versions in front of a runner. A client's
// watch continues across a flip: the runner compares the new stack's records with those the client has.
// Each message of an import is a write of its own, whatever version is active then.
func MountWatches(mux *http.ServeMux, r *vrunner.Runner, opts ...connect.HandlerOption) {
	resource.MountWatches(mux, r, Services(), opts...)
	resource.MountImports(mux, r, Services(), opts...)
}
