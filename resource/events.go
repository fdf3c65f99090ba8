package resource

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/vrunner"
)

// events describes where the messages of a watch hold their events. One field is an enum with a
// value for an existing resource (the value's name ends in PUT), for a deleted one (DELETE), and
// for the end of the initial state (CAUGHT_UP or LEVEL). One field holds the name, and one the
// resource.
type events struct {
	event, name, message protoreflect.FieldDescriptor
	numbers              map[vrunner.EventType]protoreflect.EnumNumber
	types                map[protoreflect.EnumNumber]vrunner.EventType
}

// eventsOf finds these fields in the messages of a watch. nameField is the name field of the
// resource; it may be empty. If message is nil, the resource may be of any type.
func eventsOf(d protoreflect.MessageDescriptor, nameField protoreflect.Name, message protoreflect.MessageDescriptor) (events, error) {
	e := events{numbers: map[vrunner.EventType]protoreflect.EnumNumber{}, types: map[protoreflect.EnumNumber]vrunner.EventType{}}
	texts := map[protoreflect.Name]protoreflect.FieldDescriptor{}
	var only protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		switch fd := d.Fields().Get(i); {
		// Lists and maps have no role in an event.
		case fd.IsList() || fd.IsMap():
		case fd.Enum() != nil:
			e.event = fd
		case fd.Kind() == protoreflect.StringKind:
			texts[fd.Name()], only = fd, fd
		case fd.Message() != nil && (message == nil || fd.Message() == message):
			e.message = fd
		}
	}
	// The field is called as in the resource, or name, or is the only string.
	if e.name = texts[nameField]; e.name == nil {
		e.name = texts["name"]
	}
	if e.name == nil && len(texts) == 1 {
		e.name = only
	}
	if e.event == nil || e.name == nil || e.message == nil {
		return e, fmt.Errorf("%s is no message of a watch: it needs an enum for the event, a string for the name and a field for the resource", d.FullName())
	}
	values := e.event.Enum().Values()
	for i := range values.Len() {
		v := values.Get(i)
		for suffix, t := range map[string]vrunner.EventType{
			"PUT": vrunner.EventPut, "DELETE": vrunner.EventDelete, "CAUGHT_UP": vrunner.EventLevel, "LEVEL": vrunner.EventLevel,
		} {
			if name := string(v.Name()); name == suffix || strings.HasSuffix(name, "_"+suffix) {
				e.numbers[t], e.types[v.Number()] = v.Number(), t
			}
		}
	}
	// A watch without one of the three events cannot report a complete state.
	if len(e.numbers) != 3 {
		return e, fmt.Errorf("%s needs values that end in PUT, DELETE and CAUGHT_UP, for the events of a watch", e.event.Enum().FullName())
	}
	return e, nil
}

func (e events) write(to protoreflect.Message, t vrunner.EventType, name string, m protoreflect.Message) {
	to.Set(e.event, protoreflect.ValueOfEnum(e.numbers[t]))
	if name != "" {
		to.Set(e.name, protoreflect.ValueOfString(name))
	}
	// A deletion and the end of the initial state carry no resource.
	if m != nil && m.IsValid() {
		to.Set(e.message, protoreflect.ValueOfMessage(m))
	}
}

func (e events) read(m protoreflect.Message) vrunner.Event {
	return vrunner.Event{Type: e.types[m.Get(e.event).Enum()], Name: m.Get(e.name).String()}
}

// MountWatches mounts the watches of services in front of a runner. A watch is a server-streaming
// method whose messages have an enum field for the type of the event, a string field for the name, and
// a field for the resource. A client's stream continues over a
// switch: the client gets only the differences between its state and the state of the other
// version's handlers. Other streams stay with the stacks.
func MountWatches(mux *http.ServeMux, r *vrunner.Runner, services []protoreflect.ServiceDescriptor, opts ...connect.HandlerOption) {
	for _, s := range services {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			if !m.IsStreamingServer() || m.IsStreamingClient() {
				continue
			}
			layout, err := eventsOf(m.Output(), "", nil)
			if err != nil {
				continue // not a watch
			}
			mux.Handle(vrunner.NewWatchHandler[envelope](r, vrunner.WatchProcedure[envelope]{
				Procedure: apiversion.Procedure(m),
				Event: func(res *envelope) (vrunner.Event, error) {
					if res.Message == nil {
						return vrunner.Event{}, errors.New("a message without a type")
					}
					return layout.read(res.ProtoReflect()), nil
				},
				Deleted: func(name string) *envelope {
					res := &envelope{newMessage(m.Output())}
					layout.write(res.ProtoReflect(), vrunner.EventDelete, name, nil)
					return res
				},
				Client: []connect.ClientOption{connect.WithSchema(m), connect.WithResponseInitializer(initialize(m.Output()))},
			}, methodOptions(m, opts)...))
		}
	}
}

// envelope holds a message whose type is known only by its descriptor.
type envelope struct{ proto.Message }
