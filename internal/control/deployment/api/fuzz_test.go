package api

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// FuzzJSON: what curl sends is a message, which reads the same after it was written again, or an error.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"clientId": "client-a-b", "ttlMs": 1000}`))
	f.Add([]byte(` `))
	f.Add([]byte(`{"ttlMs": 1e3, "x": {}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range []proto.Message{&pb.RegisterClientRequest{}, &pb.GetLocationRequest{}, &pb.BeginUpgradeRequest{}} {
			c := jsonCodec{"json"}
			if c.Unmarshal(text, m) != nil {
				continue
			}
			again := m.ProtoReflect().New().Interface()
			if b, err := c.Marshal(m); err != nil || c.Unmarshal(b, again) != nil || !proto.Equal(m, again) {
				t.Errorf("%q is read as %v, and again as %v: %v", text, m, again, err)
			}
		}
	})
}
