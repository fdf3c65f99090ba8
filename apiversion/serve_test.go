package apiversion_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/internal/base/inprocess"
)

// connectHandler serves the library with Connect.
func (l *library) connectHandler(more ...connect.HandlerOption) http.Handler {
	mux := http.NewServeMux()
	for i := range l.service.Methods().Len() {
		m := l.service.Methods().Get(i)
		p := apiversion.Procedure(m)
		options := []connect.HandlerOption{connect.WithSchema(m), connect.WithRequestInitializer(func(_ connect.Spec, v any) error {
			*v.(*message) = *dynamicpb.NewMessage(m.Input())
			return nil
		})}
		options = append(options, more...)
		if m.IsStreamingClient() {
			mux.Handle(p, connect.NewClientStreamHandler(p, func(ctx context.Context, in *connect.ClientStream[message]) (*connect.Response[message], error) {
				out, err := l.imports(ctx, m, in.RequestHeader(), func() (*message, error) {
					if !in.Receive() {
						return nil, in.Err()
					}
					return in.Msg(), nil
				})
				if err != nil {
					return nil, err
				}
				resp := connect.NewResponse(out)
				resp.Header().Set("Library", "open")
				return resp, nil
			}, options...))
			continue
		}
		if m.IsStreamingServer() {
			mux.Handle(p, connect.NewServerStreamHandler(p, func(ctx context.Context, req *connect.Request[message], out *connect.ServerStream[message]) error {
				out.ResponseHeader().Set("Library", "open")
				return l.watch(ctx, m, req.Msg, out.Send)
			}, options...))
			continue
		}
		mux.Handle(p, connect.NewUnaryHandler(p, func(ctx context.Context, req *connect.Request[message]) (*connect.Response[message], error) {
			out, err := l.call(ctx, m, req.Header(), req.Msg)
			if err != nil {
				return nil, err
			}
			resp := connect.NewResponse(out)
			resp.Header().Set("Library", "open")
			resp.Trailer().Set("Closing", "soon")
			return resp, nil
		}, options...))
	}
	return mux
}

// grpcHandler serves the library with grpc-go.
func (l *library) grpcHandler() http.Handler {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	desc := grpc.ServiceDesc{ServiceName: string(l.service.FullName()), HandlerType: (*any)(nil)}
	for i := range l.service.Methods().Len() {
		m := l.service.Methods().Get(i)
		if m.IsStreamingClient() {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: string(m.Name()), ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
				out, err := l.imports(stream.Context(), m, nil, func() (*message, error) {
					req := dynamicpb.NewMessage(m.Input())
					if err := stream.RecvMsg(req); errors.Is(err, io.EOF) {
						return nil, nil
					} else if err != nil {
						return nil, err
					}
					return req, nil
				})
				if err != nil {
					return grpcError(err)
				}
				return stream.SendMsg(out)
			}})
			continue
		}
		if m.IsStreamingServer() {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: string(m.Name()), ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
				req := dynamicpb.NewMessage(m.Input())
				if err := stream.RecvMsg(req); err != nil {
					return err
				}
				return grpcError(l.watch(stream.Context(), m, req, func(m *message) error { return stream.SendMsg(m) }))
			}})
			continue
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: string(m.Name()), Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			req := dynamicpb.NewMessage(m.Input())
			if err := dec(req); err != nil {
				return nil, err
			}
			out, err := l.call(ctx, m, nil, req)
			return out, grpcError(err)
		}})
	}
	server.RegisterService(&desc, struct{}{})
	return server
}

func grpcError(err error) error {
	coded := new(connect.Error)
	if !errors.As(err, &coded) {
		return err
	}
	s := status.New(codes.Code(coded.Code()), coded.Message())
	for _, d := range coded.Details() {
		if v, err := d.Value(); err == nil {
			if with, err := s.WithDetails(protoadapt.MessageV1Of(v)); err == nil {
				s = with
			}
		}
	}
	return s.Err()
}

// client calls a service in one protocol.
type client struct {
	tb      testing.TB
	service protoreflect.ServiceDescriptor
	http    *http.Client
	url     string
	options []connect.ClientOption
}

// serve opens a server for a handler and returns a client of it.
func serve(tb testing.TB, s protoreflect.ServiceDescriptor, h http.Handler, options ...connect.ClientOption) client {
	tb.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	tb.Cleanup(server.Close)
	return client{tb, s, server.Client(), server.URL, options}
}

// direct returns a client of a handler that needs no server.
func direct(tb testing.TB, s protoreflect.ServiceDescriptor, h http.Handler) client {
	return client{tb, s, inprocess.Client(h), "http://inprocess", nil}
}

func (c client) method(name string) (protoreflect.MethodDescriptor, *connect.Client[message, message]) {
	m := c.service.Methods().ByName(protoreflect.Name(name))
	options := append([]connect.ClientOption{connect.WithSchema(m), connect.WithResponseInitializer(func(_ connect.Spec, v any) error {
		*v.(*message) = *dynamicpb.NewMessage(m.Output())
		return nil
	})}, c.options...)
	return m, connect.NewClient[message, message](c.http, c.url+apiversion.Procedure(m), options...)
}

func (c client) try(ctx context.Context, name, req string) (*message, error) {
	m, cl := c.method(name)
	resp, err := cl.CallUnary(ctx, connect.NewRequest(text(c.tb, m.Input(), req)))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

func (c client) do(name, req string) *message {
	c.tb.Helper()
	out, err := c.try(c.tb.Context(), name, req)
	if err != nil {
		c.tb.Fatalf("%s: %v", name, err)
	}
	return out
}
