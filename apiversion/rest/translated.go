package rest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"
)

// translated is the body of a call. The transcoder answers a request that it cannot translate
// itself. It then ends the body like an empty message, and reports the error to the next Read only.
// Without that Read the method would run with an empty request.
type translated struct{ io.ReadCloser }

func (b *translated) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		if _, err = b.ReadCloser.Read(p); err == nil {
			err = io.EOF
		}
	}
	return n, err
}

// reply is the response to a REST request. The transcoder answers most requests that it cannot
// translate with code UNKNOWN or INTERNAL, or with a plain text. The client has to correct them. reply
// keeps such a response back, and end gives it the form of the other errors.
type reply struct {
	http.ResponseWriter
	exchange *exchange
	begun    bool
	keeps    int // the status of a response that is kept back; 0: none is
	kept     []byte
}

// Unwrap gives http.ResponseController access to the connection.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *reply) WriteHeader(status int) {
	// Errors that the handlers returned have the right form already.
	if !r.begun && !r.exchange.answered && status >= http.StatusBadRequest {
		r.keeps = status
	}
	r.begun = true
	if r.keeps == 0 {
		r.ResponseWriter.WriteHeader(status)
	}
}

func (r *reply) Write(p []byte) (int, error) {
	if !r.begun {
		r.WriteHeader(http.StatusOK)
	}
	if r.keeps != 0 {
		r.kept = append(r.kept, p...)
		return len(p), nil
	}
	return r.ResponseWriter.Write(p)
}

// Flush implements http.Flusher, which the transcoder requires. net/http sends the response when the
// handler returns.
func (r *reply) Flush() {}

// end sends a response that was kept back.
func (r *reply) end() {
	if r.keeps == 0 {
		return
	}
	var s status
	// The texts of the transcoder itself are plain.
	if err := json.Unmarshal(r.kept, &s); err != nil {
		s.Message = strings.TrimSpace(string(r.kept))
	}
	switch code := connect.Code(s.Code); {
	case r.keeps == http.StatusMethodNotAllowed:
		s.Code = uint32(connect.CodeUnimplemented)
	case code == 0 || code == connect.CodeUnknown || code == connect.CodeInternal:
		s.Code = uint32(connect.CodeInvalidArgument)
		if r.keeps >= http.StatusInternalServerError {
			r.keeps = http.StatusBadRequest
		}
	}
	r.answer(s)
}

// status is a google.rpc.Status in JSON.
type status struct {
	Code    uint32            `json:"code"`
	Message string            `json:"message"`
	Details []json.RawMessage `json:"details,omitempty"`
}

// refuse answers a request that must not be translated.
func (r *reply) refuse(err error) {
	r.keeps = http.StatusBadRequest
	r.answer(status{Code: uint32(connect.CodeInvalidArgument), Message: err.Error()})
}

func (r *reply) answer(s status) {
	r.Header().Set("Content-Type", "application/json")
	r.ResponseWriter.WriteHeader(r.keeps)
	_ = json.NewEncoder(r.ResponseWriter).Encode(s) // it fails only if the client has gone
}
