package copies

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/internal/base/dynproto"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// Owner is the API of another region, as a Source.
type Owner struct {
	client *connect.Client[envelope, envelope]
	input  protoreflect.MessageDescriptor
	read   func(proto.Message) (vrunner.Event, record.Record, error)
}

var _ Source = (*Owner)(nil)

// messageMost is the maximum size of one message of an owner. The largest document of a database has
// 16 MiB, and the message of a record is hardly larger than its document.
const messageMost = 17 << 20

// NewOwner returns the source for the watch m at a base URL. read is region.Table.Watched. client must
// find out by itself that a connection is dead, or an idle stream over it never ends.
func NewOwner(client *http.Client, base string, m protoreflect.MethodDescriptor, read func(proto.Message) (vrunner.Event, record.Record, error)) *Owner {
	return &Owner{
		client: connect.NewClient[envelope, envelope](client, base+apiversion.Procedure(m), dynproto.Codec(), connect.WithSchema(m), connect.WithReadMaxBytes(messageMost), connect.WithResponseInitializer(func(_ connect.Spec, msg any) error {
			e, ok := msg.(*envelope)
			if !ok {
				return errors.New("the message is no envelope")
			}
			e.Message = message(m.Output())
			return nil
		})),
		input: m.Input(), read: read,
	}
}

// envelope holds a message whose type is known only by its descriptor.
type envelope struct{ proto.Message }

// message returns a message of its generated type if the program has it, or else a dynamic one.
func message(d protoreflect.MessageDescriptor) proto.Message {
	if t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName()); err == nil && t.Descriptor() == d {
		return t.New().Interface()
	}
	return dynamicpb.NewMessage(d)
}

// Watch opens a watch of all records that the region owns.
func (o *Owner) Watch(ctx context.Context) (Stream, error) {
	req := connect.NewRequest(&envelope{message(o.input)})
	req.Header().Set(region.OwnedHeader, "1")
	stream, err := o.client.CallServerStream(ctx, req)
	if err != nil {
		return nil, err
	}
	return &ownerStream{stream, o.read}, nil
}

type ownerStream struct {
	*connect.ServerStreamForClient[envelope]
	read func(proto.Message) (vrunner.Event, record.Record, error)
}

func (s *ownerStream) Next(context.Context) (Event, error) {
	if !s.Receive() {
		if err := s.Err(); err != nil {
			return Event{}, err
		}
		return Event{}, errors.New("the owner ended the stream")
	}
	ev, rec, err := s.read(s.Msg().Message)
	if err != nil {
		err = fmt.Errorf("it cannot be stored here: %w", err)
	}
	return Event{Type: ev.Type, Name: ev.Name, Doc: rec.Doc, Refused: err}, nil
}

// Close ends the stream. Its error says only that it had not ended before.
func (s *ownerStream) Close() { _ = s.ServerStreamForClient.Close() }
