package apiversion

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/internal/inprocess"
)

// clientError turns an error of the new handler into that of the old procedure: the same
// code, details and headers, in the terms of the client's version where they are known.
func (c *call) clientError(err error) error {
	if err == nil {
		return nil
	}
	crashed := new(inprocess.PanicError)
	if errors.As(err, &crashed) {
		return connect.NewError(connect.CodeInternal, errors.New("the handler of the new version panicked"))
	}
	coded := new(connect.Error)
	if !errors.As(err, &coded) {
		return refuse("", err)
	}
	message := coded.Message()
	var details []*connect.ErrorDetail
	for _, d := range coded.Details() {
		details = append(details, d)
		v, err := d.Value()
		if err != nil {
			continue // of a type that is not known here; it passes as it is
		}
		bad, ok := v.(*errdetails.BadRequest)
		if !ok {
			continue
		}
		for _, violation := range bad.FieldViolations {
			if old, ok := c.oldField(violation.Field); ok {
				message = renamed(message, violation.Field, old)
				violation.Description = renamed(violation.Description, violation.Field, old)
				violation.Field = old
			}
			violation.Description = c.oldNames(violation.Description)
		}
		if translated, err := connect.NewErrorDetail(bad); err == nil {
			details[len(details)-1] = translated
		}
	}
	message = c.oldNames(message)
	out := connect.NewError(coded.Code(), errors.New(message))
	for _, d := range details {
		out.AddDetail(d)
	}
	copyHeader(out.Meta(), coded.Meta())
	return out
}

// oldNames replaces the names of the request by those that the client gave.
func (c *call) oldNames(text string) string {
	for _, pair := range c.names {
		text = renamed(text, pair[1], pair[0])
	}
	return text
}

// renamed replaces a name where it stands as a word of its own.
func renamed(text, from, to string) string {
	word := regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(from) + `($|[^\w.])`)
	return word.ReplaceAllStringFunc(text, func(m string) string { return strings.Replace(m, from, to, 1) })
}

// oldField returns what a field of the new request is called in the old one.
func (c *call) oldField(path string) (string, bool) {
	if c.route.now == nil {
		return "", false // one of several requests, which the table does not know
	}
	head, rest, nested := strings.Cut(path, ".")
	if old, isRole := c.to.counterpart(c.from, head); isRole && old != "" {
		if head != c.to.Resource || !nested {
			return old, !nested
		}
		inner, ok := c.oldPath(rest)
		return old + "." + inner, ok
	}
	for old, now := range c.RequestFields {
		if now == head {
			return strings.TrimSuffix(old+"."+rest, "."), true
		}
	}
	if c.route.now.Input().Fields().ByName(protoreflect.Name(head)) != nil {
		return path, true
	}
	// Handlers often leave the field that holds the resource out.
	if c.resource != nil && c.resource.New.Fields().ByName(protoreflect.Name(head)) != nil {
		return c.oldPath(path)
	}
	return "", false
}

// oldPath returns what a field of the resource is called in the old version.
func (c *call) oldPath(path string) (string, bool) {
	paths, err := c.resource.Reverse().field(path)
	if err != nil || len(paths) == 0 {
		return "", false
	}
	return strings.Join(paths, ", "), true
}

// protocolHeaders belong to one connection or protocol. All others pass both ways.
var protocolHeaders = []string{
	"Accept", "Accept-Encoding", "Accept-Post", "Allow", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Host",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Vary", "X-Grpc-Web",
	"Grpc-Accept-Encoding", "Grpc-Encoding", "Grpc-Message", "Grpc-Status", "Grpc-Status-Details-Bin", "Grpc-Timeout",
}

var isProtocolHeader = func() map[string]bool {
	out := map[string]bool{}
	for _, h := range protocolHeaders {
		out[h] = true
	}
	return out
}()

// copyHeader copies what is not of the protocol.
func copyHeader(dst, src http.Header) {
	for name, values := range src {
		canonical := http.CanonicalHeaderKey(name)
		if !isProtocolHeader[canonical] && !strings.HasPrefix(canonical, "Connect-") && !strings.HasPrefix(name, ":") {
			dst[canonical] = append([]string(nil), values...)
		}
	}
}
