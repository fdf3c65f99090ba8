package inprocess

import (
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// responseWriter is the handler's side of a response. It belongs to the handler's goroutine. The
// client reads response once ready is closed.
type responseWriter struct {
	header   http.Header
	pipe     *io.PipeWriter
	response *http.Response
	bodyless bool          // the request or the status allows no body
	declared []string      // trailers that the handler announced
	trailer  http.Header   // complete before the pipe ends; the client takes it at the end of the body
	ready    chan struct{} // closed when response or failed is set
	failed   error
}

var _ http.Flusher = (*responseWriter)(nil)

func newResponseWriter(req *http.Request, pipe *io.PipeWriter) *responseWriter {
	return &responseWriter{
		header: http.Header{}, pipe: pipe, bodyless: req.Method == http.MethodHead, ready: make(chan struct{}),
		response: &http.Response{Proto: "HTTP/2.0", ProtoMajor: 2, Request: req, ContentLength: -1},
	}
}

func (w *responseWriter) Header() http.Header { return w.header }

// sent reports whether the headers have been delivered.
func (w *responseWriter) sent() bool { return w.response.StatusCode != 0 }

// WriteHeader delivers the headers. It drops informational statuses.
func (w *responseWriter) WriteHeader(status int) {
	if w.sent() || status < http.StatusOK {
		return
	}
	w.response.StatusCode, w.response.Status = status, strconv.Itoa(status)+" "+http.StatusText(status)
	w.bodyless = w.bodyless || status == http.StatusNoContent || status == http.StatusNotModified
	// The client owns the response's headers from here on, so it gets a clone.
	w.response.Header, w.response.Trailer = w.header.Clone(), http.Header{}
	for _, list := range w.header.Values("Trailer") {
		for name := range strings.SplitSeq(list, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			w.declared = append(w.declared, name)
			w.response.Trailer[name] = nil
			delete(w.response.Header, name)
		}
	}
	// Trailers travel after the body. They must not show among the headers.
	maps.DeleteFunc(w.response.Header, func(name string, _ []string) bool {
		return name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix)
	})
	if n, err := strconv.ParseInt(w.response.Header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		w.response.ContentLength = n
	}
	close(w.ready)
}

// Write blocks until the client has read b or is gone.
func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.bodyless {
		if w.response.Request.Method == http.MethodHead {
			return len(b), nil
		}
		return 0, http.ErrBodyNotAllowed
	}
	if len(b) == 0 {
		return 0, nil
	}
	return w.pipe.Write(b)
}

// Flush delivers the headers. Written data is already delivered.
func (w *responseWriter) Flush() { w.WriteHeader(http.StatusOK) }

// finish ends the response after the handler has returned. The client sees the trailers once it has
// read to the end of the body.
func (w *responseWriter) finish(err error) {
	if err != nil {
		// Without headers the client still waits on ready: only failed can reach it.
		if !w.sent() {
			w.failed = err
			close(w.ready)
		}
		_ = w.pipe.CloseWithError(err)
		return
	}
	w.WriteHeader(http.StatusOK)
	// The client's own map must not change here: a client that was cancelled may already look at it.
	w.trailer = http.Header{}
	for _, name := range w.declared {
		if values := w.header.Values(name); len(values) > 0 {
			w.trailer[name] = values
		}
	}
	for name, values := range w.header {
		if trailer, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			w.trailer[textproto.CanonicalMIMEHeaderKey(trailer)] = values
		}
	}
	_ = w.pipe.Close()
}
