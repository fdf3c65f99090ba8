// Package dynproto reads protobuf messages whose types the program knows only from descriptors.
package dynproto

import (
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// errMap is the error for the one kind of message at which the protobuf library panics.
var errMap = errors.New("an entry of a map has a key or a value of another type")

// Unmarshal is proto.Unmarshal. For a dynamic message proto.Unmarshal panics at an entry of a map that
// has its key or its value twice, once with a wrong type. Such an entry is an error here.
func Unmarshal(b []byte, m proto.Message) (err error) {
	defer func() {
		if recover() != nil {
			err = errMap
		}
	}()
	return proto.Unmarshal(b, m)
}

// Codec is an option of handlers and clients: it is connect's codec for protobuf with this Unmarshal.
func Codec() connect.Option { return connect.WithCodec(codec{}) }

type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(m any) ([]byte, error) { return codec{}.MarshalAppend(nil, m) }

// MarshalAppend lets connect reuse its buffers.
func (codec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, errNotProto
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, msg)
}

func (codec) Unmarshal(b []byte, m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return errNotProto
	}
	return Unmarshal(b, msg)
}

var errNotProto = errors.New("the message is not a protobuf message")
