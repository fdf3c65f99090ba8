// Package rest serves the google.api.http annotations of a service, for clients without Connect or
// gRPC. It translates a request, such as GET /v1/projects/p/secrets/s, into a call of the annotated
// method, by the library connectrpc.com/vanguard:
//
//	dbcontroller.Service{REST: rest.Front, ...}
//
// The import links vanguard into the program. Programs without it do not contain vanguard.
//
// # Guarantees
//
// Everything behind Front sees an ordinary call of a procedure: usage counts, the gate that holds
// writes during a switch, and the handlers of every version. So a path of the old version works
// before a switch, over the new version's data, and after a rollback. Calls of procedures pass
// unchanged.
//
// An error has the HTTP status of its code, and a google.rpc.Status in JSON with the same details.
// A request that cannot be translated has no effect.
//
// # What this package does not own
//
// The annotations are those of the protos. Streams have no REST, and neither do compressed requests.
// Access is checked before Front.
package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/vanguard"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/refusal"
)

// Front returns a handler that answers REST requests by calls to next, and passes all other requests
// to next. It is the value of dbcontroller.Service.REST. apis are the services of all versions. It
// returns an error if two methods have the same path, or if no method has one.
func Front(apis []protoreflect.ServiceDescriptor, next http.Handler) (http.Handler, error) {
	f := &front{next: next, reads: apiversion.Readers(apis...), services: map[string]bool{}, streams: map[string]bool{}}
	services := make([]*vanguard.Service, 0, len(apis))
	annotated := false
	for _, api := range apis {
		f.services[string(api.FullName())] = true
		// Calls of other protocols do not reach the transcoder. It calls next in the one that needs
		// neither HTTP/2 nor trailers.
		services = append(services, vanguard.NewServiceWithSchema(api, http.HandlerFunc(f.call),
			vanguard.WithTargetProtocols(vanguard.ProtocolConnect), vanguard.WithTargetCodecs(vanguard.CodecProto)))
		for i := range api.Methods().Len() {
			m := api.Methods().Get(i)
			f.streams[apiversion.Procedure(m)] = m.IsStreamingClient() || m.IsStreamingServer()
			f.bindings = append(f.bindings, bindingsOf(m)...)
			annotated = annotated || proto.HasExtension(m.Options(), annotations.E_Http)
		}
	}
	if !annotated {
		return nil, errors.New("rest: no method has a google.api.http annotation")
	}
	slices.SortStableFunc(f.bindings, compareBindings)
	var err error
	f.rest, err = vanguard.NewTranscoder(services, vanguard.WithUnknownHandler(http.HandlerFunc(f.unknown)))
	if err != nil {
		return nil, fmt.Errorf("rest: %w", err)
	}
	return f, nil
}

// front is the handler of Front.
type front struct {
	next     http.Handler
	rest     *vanguard.Transcoder
	services map[string]bool
	reads    func(procedure string) bool
	streams  map[string]bool // by procedure
	bindings []binding       // in the order in which the transcoder chooses
}

// exchange is one REST request.
type exchange struct {
	client   *http.Request // as the client sent it
	answered bool          // next has begun to answer the call
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange) //nolint:forcetypeassert // ServeHTTP has set it
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The transcoder accepts all protocols, and would answer these calls in its own way.
	if service, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); f.services[service] {
		f.next.ServeHTTP(w, r)
		return
	}
	// It changes the URL and the headers, which belong to handlers in front of this one.
	x := &exchange{client: r}
	call := r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	url := *r.URL
	// It decodes each part of the path, so a decoded path would be decoded twice.
	url.Path = r.URL.EscapedPath()
	call.URL, call.Header = &url, r.Header.Clone()
	// It would decompress without a limit, a GET even before call refuses it.
	call.Header.Del("Content-Encoding")
	// It would decompress a response to translate it, and answer counts the response as sent.
	call.Header.Del("Accept-Encoding")
	// It would take memory for as many bytes as the client claims to send, before the first one.
	call.ContentLength = -1
	// It compares the whole header with two texts, and libraries write a third and a fourth.
	if kind, with, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "application/json" && strings.EqualFold(cmp.Or(with["charset"], "utf-8"), "utf-8") {
		call.Header.Set("Content-Type", kind)
	}
	out := &reply{ResponseWriter: w, exchange: x}
	if err := f.checkParameters(r); err != nil {
		out.refuse(err)
		return
	}
	f.rest.ServeHTTP(out, call)
	out.end()
}

// unknown passes on what is no REST request.
func (f *front) unknown(w http.ResponseWriter, r *http.Request) {
	if out, ok := w.(*reply); ok {
		w = out.ResponseWriter
	}
	f.next.ServeHTTP(w, exchangeOf(r).client)
}

// call passes on a translated call.
func (f *front) call(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	a := &answer{to: w, header: http.Header{}, req: r, exchange: x, reads: f.reads(r.URL.Path)}
	defer a.begin() // a response may have no body
	switch encoding := x.client.Header.Get("Content-Encoding"); {
	case f.streams[r.URL.Path]:
		// The transcoder would keep the whole stream in memory until it ends.
		refusal.Write(a, r, connect.NewError(connect.CodeUnimplemented, errors.New("streams have no REST: use Connect, gRPC or gRPC-Web")))
		return
	case encoding != "" && encoding != "identity":
		refusal.Write(a, r, connect.NewError(connect.CodeUnimplemented, errors.New("REST requests must not be compressed: leave out Content-Encoding")))
		return
	}
	r.Body = &translated{r.Body}
	f.next.ServeHTTP(a, r)
}
