package dynproto_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"

	"dbcontroller.dev/internal/base/dynproto"
)

// twice is a Struct with an entry whose key comes twice, the second time as a number.
const twice = "\x0a\x05\x0a\x010\x08\x30"

// TestUnmarshal: the library panics at such an entry, in a dynamic message only.
func TestUnmarshal(t *testing.T) {
	t.Parallel()
	d := (&structpb.Struct{}).ProtoReflect().Descriptor()
	if err := dynproto.Unmarshal([]byte(twice), dynamicpb.NewMessage(d)); err == nil {
		t.Error("a key that is a number is read")
	}
	whole, err := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(1)}})
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(d)
	if err := dynproto.Unmarshal(whole, m); err != nil || !proto.Equal(m, &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(1)}}) {
		t.Errorf("read as %v, %v", m, err)
	}
}

// TestCodec: a caller of a handler with dynamic messages gets an error for it, and the connection
// stays.
func TestCodec(t *testing.T) {
	t.Parallel()
	d := (&structpb.Struct{}).ProtoReflect().Descriptor()
	handler := connect.NewUnaryHandler("/a.B/C", func(_ context.Context, req *connect.Request[dynamicpb.Message]) (*connect.Response[dynamicpb.Message], error) {
		return connect.NewResponse(req.Msg), nil
	}, dynproto.Codec(), connect.WithRequestInitializer(func(_ connect.Spec, m any) error {
		*m.(*dynamicpb.Message) = *dynamicpb.NewMessage(d)
		return nil
	}))
	s := httptest.NewServer(handler)
	defer s.Close()
	for body, want := range map[string]int{twice: http.StatusBadRequest, "": http.StatusOK} {
		resp, err := s.Client().Post(s.URL+"/a.B/C", "application/proto", strings.NewReader(body))
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		resp.Body.Close() //nolint:errcheck // nothing is read
		if resp.StatusCode != want {
			t.Errorf("%q: status %d, want %d", body, resp.StatusCode, want)
		}
	}
}
