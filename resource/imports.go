package resource

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/vrunner"
)

// MountImports mounts the imports of services in front of a runner (vrunner.NewImportHandler): each
// message of a client's stream is then a write of its own, and the stream goes on over a switch. An
// import is a client-streaming method whose name begins with Import and whose response has only counts,
// such as ImportBooks with the field created. Counts are fields of integers, and add up.
//
// Other client-streaming methods stay with the stacks: a stream is one write, and is kept until its
// end.
func MountImports(mux *http.ServeMux, r *vrunner.Runner, services []protoreflect.ServiceDescriptor, opts ...connect.HandlerOption) {
	for _, s := range services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			if !isImport(m) {
				continue
			}
			mux.Handle(vrunner.NewImportHandler[envelope](r, vrunner.ImportProcedure[envelope]{
				Procedure: apiversion.Procedure(m),
				Add:       func(total, part *envelope) error { return addCounts(total.ProtoReflect(), part.ProtoReflect()) },
				Client:    []connect.ClientOption{connect.WithSchema(m), connect.WithResponseInitializer(initialize(m.Output()))},
			}, methodOptions(m, opts)...))
		}
	}
}

func isImport(m protoreflect.MethodDescriptor) bool {
	fields := m.Output().Fields()
	if !m.IsStreamingClient() || m.IsStreamingServer() || !strings.HasPrefix(string(m.Name()), "Import") || fields.Len() == 0 {
		return false
	}
	for i := range fields.Len() {
		if !isCount(fields.Get(i)) {
			return false
		}
	}
	return true
}

func isCount(fd protoreflect.FieldDescriptor) bool {
	switch fd.Kind() {
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return !fd.IsList()
	default:
		return false
	}
}

// addCounts adds the counts of part to those of total.
func addCounts(total, part protoreflect.Message) error {
	// A handler newer than this program counts something that would be lost.
	if len(part.GetUnknown()) > 0 {
		return fmt.Errorf("%s has a field that this program does not know", part.Descriptor().FullName())
	}
	part.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch old := total.Get(fd); fd.Kind() {
		case protoreflect.Int32Kind:
			total.Set(fd, protoreflect.ValueOfInt32(int32(old.Int()+v.Int()))) // #nosec G115 -- as its author chose
		case protoreflect.Int64Kind:
			total.Set(fd, protoreflect.ValueOfInt64(old.Int()+v.Int()))
		case protoreflect.Uint32Kind:
			total.Set(fd, protoreflect.ValueOfUint32(uint32(old.Uint()+v.Uint()))) // #nosec G115 -- as its author chose
		default:
			total.Set(fd, protoreflect.ValueOfUint64(old.Uint()+v.Uint()))
		}
		return true
	})
	return nil
}
