package api

import (
	"bytes"
	"encoding/json"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// ToJSON returns the JSON of the API on one line. It contains every field, even empty ones, so that
// scripts find "readyShards": []. Only absent messages are left out (no upgradeState: no upgrade).
func ToJSON(m proto.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	// protojson varies its blanks on purpose, but the output of a command must be stable.
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// jsonCodec is the codec for JSON clients such as curl. It refuses unknown fields: ignoring a
// misspelt field could begin the wrong upgrade.
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
	// An empty body stands for an empty message.
	if len(bytes.TrimSpace(b)) == 0 {
		b = []byte("{}")
	}
	return protojson.Unmarshal(b, m)
}
