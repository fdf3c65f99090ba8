package api

import (
	"bytes"
	"encoding/json"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// ToJSON is the JSON of the API, on one line: every field is there, empty ones too, so
// that "readyShards": [] is no riddle; only an absent message (no upgradeState: no
// upgrade) is left out.
func ToJSON(m proto.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	// protojson varies its blanks on purpose; the output of a command must not.
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// jsonCodec is what curl meets. An unknown field is an error: a misspelt one that is
// ignored would begin the wrong upgrade.
type jsonCodec struct{ name string }

var _ connect.Codec = jsonCodec{}

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return ToJSON(m)
}

func (c jsonCodec) Unmarshal(b []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", v)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		b = []byte("{}")
	}
	return protojson.Unmarshal(b, m)
}
