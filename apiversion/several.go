package apiversion

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Call is one of several new requests that serve an old one.
type Call struct {
	Method  string // name of a unary method of the new service
	Request proto.Message
}

// checkSeveral checks the declaration of a method with Requests.
func (r *route) checkSeveral() error {
	switch {
	case r.Responses == nil:
		return errors.New("it has Requests and no Responses")
	case r.New != "" || r.Request != nil || r.Response != nil:
		return errors.New("its Requests take the place of New, Request and Response")
	case r.old.IsStreamingClient() || r.old.IsStreamingServer():
		return errors.New("it streams, and cannot be served by several requests")
	default:
		return nil
	}
}

// several serves a procedure by several requests in one transaction.
func (r *route) several(s *served, options []connect.HandlerOption) http.Handler {
	clients := map[string]*client{}
	for i := range r.service.Methods().Len() {
		if m := r.service.Methods().Get(i); !m.IsStreamingClient() && !m.IsStreamingServer() {
			clients[string(m.Name())] = newClient(s.next, m)
		}
	}
	return connect.NewUnaryHandler(Procedure(r.old), func(ctx context.Context, req *connect.Request[dynamicpb.Message]) (*connect.Response[dynamicpb.Message], error) {
		var out *connect.Response[dynamicpb.Message]
		var c *call
		err := s.opts.Together(ctx, func(ctx context.Context) error {
			// Together may run this function again, so each attempt starts with fresh state.
			c = r.call(ctx, s, req.Msg)
			c.later = &[]Event{}
			var err error
			out, err = c.all(ctx, clients, req.Header())
			return err
		})
		if coded := new(connect.Error); err != nil && !errors.As(err, &coded) {
			err = CodeError(Known(err)) // the commit failed, after all requests succeeded
		}
		if c != nil {
			c.told(ctx, out, err)
		}
		if err != nil {
			return nil, err
		}
		return out, nil
	}, options...)
}

// all sends the requests one after the other and makes the old response. It returns errors for the
// client.
func (c *call) all(ctx context.Context, clients map[string]*client, header http.Header) (*connect.Response[dynamicpb.Message], error) {
	calls, err := c.Requests(ctx, c.old)
	if err != nil {
		err = refuse("request", err)
		c.notify(ctx, Event{What: Request, Old: c.old, Err: err})
		return nil, err
	}
	out := connect.NewResponse(dynamicpb.NewMessage(c.route.old.Output()))
	var responses []proto.Message
	for _, one := range calls {
		// Each request sees the writes of the earlier ones, because they share the transaction.
		m := c.service.Methods().ByName(protoreflect.Name(one.Method))
		cl := clients[one.Method]
		if cl == nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("%s has no unary method %s", c.service.FullName(), one.Method))
		}
		req, err := dynamic(one.Request, m.Input())
		if err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
		c.notify(ctx, Event{What: Request, Served: Procedure(m), Old: c.old, New: req})
		asked := connect.NewRequest(req)
		copyHeader(asked.Header(), header)
		resp, err := cl.CallUnary(ctx, asked)
		if err != nil {
			return nil, c.clientError(err)
		}
		c.notify(ctx, Event{What: Response, Served: Procedure(m), New: resp.Msg})
		responses = append(responses, resp.Msg)
		copyHeader(out.Header(), resp.Header())
		copyHeader(out.Trailer(), resp.Trailer())
	}
	// An error here rolls the transaction back, so the client never gets an error for committed
	// writes.
	if err := c.Responses(ctx, c.old, responses, out.Msg); err != nil {
		if coded := new(connect.Error); !errors.As(err, &coded) {
			err = connect.NewError(connect.CodeDataLoss, fmt.Errorf("what was done cannot be shown in this version: %w", err))
		}
		return nil, err
	}
	return out, nil
}

// told passes the collected events to the observers, once the outcome of the transaction is known.
func (c *call) told(ctx context.Context, out *connect.Response[dynamicpb.Message], err error) {
	events := *c.later
	// From here on notify delivers.
	c.later = nil
	e := Event{What: Response, Err: err}
	if err == nil {
		e.Old = out.Msg
	}
	for _, e := range append(events, e) {
		c.notify(ctx, e)
	}
}
