package refusal

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// New returns the answer of a refused call: an error with the code of the reason, the text of err,
// and the reason in its details. meta has alternating names and values of the metadata.
func New(reason Reason, err error, meta ...string) *connect.Error {
	out := connect.NewError(reason.Code(), err)
	info := &errdetails.ErrorInfo{Reason: string(reason), Domain: Domain}
	for i := 0; i+1 < len(meta); i += 2 {
		if info.Metadata == nil {
			info.Metadata = map[string]string{}
		}
		info.Metadata[meta[i]] = meta[i+1]
	}
	// Without the detail the code is still right, so an error here is not worth failing.
	if detail, detailErr := connect.NewErrorDetail(info); detailErr == nil {
		out.AddDetail(detail)
	}
	// A write with an unknown outcome must not be repeated automatically: it could happen twice. The
	// same holds for messages that were done.
	if reason == OutcomeUnknown || reason == PartlyDone {
		out.Meta().Set(pushback, "-1")
	}
	return out
}

// pushback is the header that controls gRPC's retry policies, which otherwise see only codes. A
// negative value forbids another attempt.
const pushback = "Grpc-Retry-Pushback-Ms"

// Because returns an error with a reason and a text. In turns it into an answer at the handler. The
// error wraps cause, which may be nil. meta is as in New.
func Because(reason Reason, text string, cause error, meta ...string) error {
	return &because{reason: reason, text: text, cause: cause, meta: meta}
}

type because struct {
	reason Reason
	text   string
	cause  error
	meta   []string
}

func (e *because) Error() string {
	if e.cause == nil {
		return e.text
	}
	return e.text + ": " + e.cause.Error()
}

func (e *because) Unwrap() error { return e.cause }

// In returns the answer for an error that wraps an error of Because. The answer has the text of
// err. In returns false for any other error.
func In(err error) (*connect.Error, bool) {
	var b *because
	if !errors.As(err, &b) {
		return nil, false
	}
	return New(b.reason, err, b.meta...), true
}

// Plain returns the error of Because that err wraps, without the text around it. It returns nil if
// there is none.
func Plain(err error) error {
	var b *because
	if errors.As(err, &b) {
		return b
	}
	return nil
}

// Of returns the reason of an answer and its metadata. It serves clients. Without a reason of this
// package it returns "" and nil.
func Of(err error) (Reason, map[string]string) {
	var answer *connect.Error
	if !errors.As(err, &answer) {
		return "", nil
	}
	for _, d := range answer.Details() {
		v, err := d.Value()
		// Another service's ErrorInfo may be in the details as well.
		if info, ok := v.(*errdetails.ErrorInfo); err == nil && ok && info.Domain == Domain {
			return Reason(info.Reason), info.Metadata
		}
	}
	return "", nil
}

// Write answers a request with err in the protocol of the request: Connect, gRPC or gRPC-Web. For a
// plain HTTP request it writes the JSON of Connect.
func Write(w http.ResponseWriter, req *http.Request, err *connect.Error, options ...connect.HandlerOption) {
	writer := connect.NewErrorWriter(options...)
	// Write for a client of no known protocol as for a Connect client with JSON.
	if !writer.IsSupported(req) {
		plain := req.Clone(req.Context())
		plain.Method = http.MethodPost
		plain.Header = http.Header{"Content-Type": {"application/json"}}
		req, writer = plain, connect.NewErrorWriter()
	}
	_ = writer.Write(w, req, err) // it fails only if the client has gone
}
