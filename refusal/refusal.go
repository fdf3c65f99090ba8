package refusal

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// New is an answer with a reason. meta are pairs of a name and a value.
func New(reason Reason, err error, meta ...string) *connect.Error {
	out := connect.NewError(reason.Code(), err)
	info := &errdetails.ErrorInfo{Reason: string(reason), Domain: Domain}
	for i := 0; i+1 < len(meta); i += 2 {
		if info.Metadata == nil {
			info.Metadata = map[string]string{}
		}
		info.Metadata[meta[i]] = meta[i+1]
	}
	if detail, detailErr := connect.NewErrorDetail(info); detailErr == nil {
		out.AddDetail(detail)
	}
	if reason == OutcomeUnknown {
		out.Meta().Set(pushback, "-1")
	}
	return out
}

// pushback is what gRPC's retry policies, which know codes alone, are told by: what is negative
// forbids another attempt. A write whose outcome nobody knows would be made twice.
const pushback = "Grpc-Retry-Pushback-Ms"

// Because is an error that is an answer with a reason once it reaches a client (In). It wraps
// cause, if that is not nil.
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

// In returns the answer that an error is if it wraps one of Because, with the text of err.
func In(err error) (*connect.Error, bool) {
	var b *because
	if !errors.As(err, &b) {
		return nil, false
	}
	return New(b.reason, err, b.meta...), true
}

// Plain is the error of Because that err wraps, without the text around it; nil if there is
// none.
func Plain(err error) error {
	var b *because
	if errors.As(err, &b) {
		return b
	}
	return nil
}

// Of returns the reason of an answer, and its metadata; "" if it has none of these.
func Of(err error) (Reason, map[string]string) {
	var answer *connect.Error
	if !errors.As(err, &answer) {
		return "", nil
	}
	for _, d := range answer.Details() {
		v, err := d.Value()
		if info, ok := v.(*errdetails.ErrorInfo); err == nil && ok && info.Domain == Domain {
			return Reason(info.Reason), info.Metadata
		}
	}
	return "", nil
}

// Write answers a request in its protocol; one that is of none gets what Connect answers in
// JSON.
func Write(w http.ResponseWriter, req *http.Request, err *connect.Error, options ...connect.HandlerOption) {
	writer := connect.NewErrorWriter(options...)
	if !writer.IsSupported(req) {
		plain := req.Clone(req.Context())
		plain.Method = http.MethodPost
		plain.Header = http.Header{"Content-Type": {"application/json"}}
		req, writer = plain, connect.NewErrorWriter()
	}
	_ = writer.Write(w, req, err) // the client has gone, then
}
