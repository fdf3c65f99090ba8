package apiversion

import (
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/internal/base/inprocess"
)

// clientError translates an error of the new handler for the client of the old procedure. It keeps
// code, details and headers, and renames fields and names where it knows the old ones.
func (c *call) clientError(err error) error {
	if err == nil {
		return nil
	}
	// A panic value may hold record data, so the client gets a fixed text.
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
			continue // unknown detail type: pass it on unchanged
		}
		// Only BadRequest names fields. Other details have nothing to translate.
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
		// A detail that cannot be encoded again stays as the new handler sent it.
		if translated, err := connect.NewErrorDetail(bad); err == nil {
			details[len(details)-1] = translated
		}
	}
	// The message may also contain resource names, which can differ between versions.
	message = c.oldNames(message)
	out := connect.NewError(coded.Code(), errors.New(message))
	for _, d := range details {
		out.AddDetail(d)
	}
	copyHeader(out.Meta(), coded.Meta())
	return out
}

// oldNames replaces translated resource names with the names that the client sent.
func (c *call) oldNames(text string) string {
	for _, pair := range c.names {
		text = renamed(text, pair[1], pair[0])
	}
	return text
}

// maxRenamed is the maximum length of a name that is replaced in messages. A search for a long name
// that repeats itself takes time in proportion to its length for each byte of the message.
const maxRenamed = 4 << 10

// renamed replaces a name where it stands as a whole word. A name that is part of a longer path
// stays. The name comes from the client, so the search needs no memory for it.
func renamed(text, from, to string) string {
	if from == "" || from == to || len(from) > maxRenamed {
		return text
	}
	var out strings.Builder
	done := 0
	for at := 0; ; {
		i := strings.Index(text[at:], from)
		if i < 0 {
			break
		}
		i += at
		end := i + len(from)
		if i > 0 && inPath(text[i-1]) || end < len(text) && inPath(text[end]) {
			at = i + 1
			continue
		}
		out.WriteString(text[done:i])
		out.WriteString(to)
		done, at = end, end
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// inPath reports whether a byte next to a name makes it a part of a longer name or path.
func inPath(b byte) bool {
	return b == '.' || b == '_' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z'
}

// oldField returns the old path of a field of the new request. ok is false if there is none.
func (c *call) oldField(path string) (string, bool) {
	if c.route.now == nil {
		return "", false // several requests: the table has no pairs for them
	}
	head, rest, nested := strings.Cut(path, ".")
	// A field with a role has its counterpart by that role, whatever both are called.
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
	// A request field without a pair has the same name in both versions.
	if c.route.now.Input().Fields().ByName(protoreflect.Name(head)) != nil {
		return path, true
	}
	// Handlers often report a path inside the resource without the request field that holds it.
	if c.resource != nil && c.resource.New.Fields().ByName(protoreflect.Name(head)) != nil {
		return c.oldPath(path)
	}
	return "", false
}

// oldPath returns the old path of a field of the resource. Several old fields are joined by commas.
func (c *call) oldPath(path string) (string, bool) {
	paths, err := c.resource.reverse().field(path)
	if err != nil || len(paths) == 0 {
		return "", false
	}
	return strings.Join(paths, ", "), true
}

// protocolHeaders belong to one connection or protocol. All other headers pass in both directions.
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

// copyHeader copies all headers except those of the protocol.
func copyHeader(dst, src http.Header) {
	for name, values := range src {
		// The caller may have set header names in any case, and the table has canonical ones.
		canonical := http.CanonicalHeaderKey(name)
		if !isProtocolHeader[canonical] && !strings.HasPrefix(canonical, "Connect-") && !strings.HasPrefix(name, ":") {
			dst[canonical] = append([]string(nil), values...)
		}
	}
}
