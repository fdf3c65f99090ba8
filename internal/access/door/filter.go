package door

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/refusal"
)

// filter checks and limits the requests of one API, whatever listener they come from.
type filter struct {
	cfg   Config
	guard *access.Guard
}

// guarded makes the guard. g has the settings that depend on the listener.
func (f *filter) guarded(g access.GuardConfig) error {
	lock := f.cfg.Lock
	g.Policy, g.Audit, g.Log = lock.Policy, lock.Audit, f.cfg.Log
	g.Table, g.Absent, g.Rest = f.cfg.Table, f.cfg.Absent, f.cfg.Rest
	// Also on loopback: a browser of this machine may run a foreign page.
	g.Names = access.Names{Hosts: lock.Hosts, Origins: lock.Origins}
	if lock.KeyPair != nil {
		g.Names.Certificate = lock.KeyPair.Leaf
	}
	var err error
	if f.guard, err = access.NewGuard(g); err != nil {
		return fmt.Errorf("%s: %w", f.cfg.What, err)
	}
	return nil
}

// handler returns next behind the filter. The order matters: limits first, then the guard, then
// memory for known callers only.
func (f *filter) handler(next http.Handler) http.Handler {
	return f.bounded(f.guard.Handler(f.reserved(next)))
}

// bounded limits the resources of one request and of all requests together.
func (f *filter) bounded(next http.Handler) http.Handler {
	running := make(chan struct{}, f.cfg.Requests)
	budget := memory.NewBudget(f.cfg.BodiesBytes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			busy(w, r)
			return
		}
		rc := http.NewResponseController(w)
		share := budget.Share(limits.ShareBytes)
		defer share.End()
		// Until the caller is known, leave the operators' part free.
		share.Leave(f.cfg.BodiesBytes / limits.OperatorShare)
		r = r.WithContext(memory.With(r.Context(), share)) // handlers take their memory from it, too
		if r.Body != nil && r.Body != http.NoBody {
			b := &body{ReadCloser: http.MaxBytesReader(w, r.Body, f.cfg.BodyBytes), rc: rc, share: share, becomes: f.becomes(encodings(r.Header)...)}
			// An error here and below means that the connection is gone.
			_ = rc.SetReadDeadline(time.Now().Add(f.cfg.BodyTime))
			r.Body = b
		}
		next.ServeHTTP(&patient{ResponseWriter: w, rc: rc, most: f.cfg.WriteTime}, r)
	})
}

// reserved keeps a share of the requests and of their memory for operators. Some calls of viewers
// and applications wait for minutes, and must not lock out an operator. A listener without
// operators needs no such share.
//
// It runs behind the guard. A request may wait there for an issuer, and must not hold memory before
// the guard knows its caller.
func (f *filter) reserved(next http.Handler) http.Handler {
	others := make(chan struct{}, max(1, f.cfg.Requests-f.cfg.Requests/limits.OperatorShare))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := memory.Of(r.Context())
		if c, ok := access.CallerOf(r.Context()); ok && c.May(access.Operator) {
			// An operator may use the reserved part of the memory.
			share.Leave(0)
		} else {
			select {
			case others <- struct{}{}:
				defer func() { <-others }()
			default:
				busy(w, r)
				return
			}
		}
		if n := f.inURL(r); n > 0 && !share.Reserve(n) {
			busy(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// busy refuses a request that exceeds a limit. The client may retry after a second.
func busy(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", "1")
	refusal.Write(w, r, refusal.New(refusal.Busy, errors.New("too many requests at the same time: try again")))
}

// inURL returns the memory for a request's message in its URL, which Connect uses with GET.
func (f *filter) inURL(r *http.Request) int64 {
	if r.Method != http.MethodGet || r.URL.RawQuery == "" {
		return 0
	}
	query := r.URL.Query() // decoded like Connect, so no other spelling passes
	if !query.Has("message") {
		return 0
	}
	return f.becomes(query["compression"]...)(int64(len(r.URL.RawQuery)))
}

// encodings returns the compressions that a header announces.
func encodings(h http.Header) (all []string) {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		all = append(all, h.Values(name)...)
	}
	return all
}

// gzipRatio is the most bytes that one byte of gzip can expand to: deflate encodes 258 bytes in two
// bits.
const gzipRatio = 1032

// becomes returns a function from the bytes of a message as sent to the memory for it.
func (f *filter) becomes(encodings ...string) func(sent int64) int64 {
	ratio := int64(1)
	for _, e := range encodings {
		switch e {
		case "", "identity":
		case "gzip":
			ratio = max(ratio, gzipRatio)
		default:
			ratio = f.cfg.BodyBytes // unknown: one byte may expand to the maximum
		}
	}
	return func(sent int64) int64 {
		return limits.BodyCopies * max(sent, min(sent*ratio, f.cfg.BodyBytes))
	}
}

// body is a request's body with a deadline and a budget of memory.
type body struct {
	io.ReadCloser
	rc      *http.ResponseController
	share   *memory.Share
	becomes func(sent int64) int64
	sent    int64 // bytes read so far
}

// noRoom is the error for the reader of a body. Connect sends it to the client unchanged.
func noRoom() error {
	return refusal.New(refusal.Busy, errors.New("too many large requests at the same time: try again"))
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	before := b.becomes(b.sent)
	// Reserve before the reader gets the bytes: it decompresses and decodes them at once.
	if b.sent += int64(n); !b.share.Reserve(b.becomes(b.sent) - before) {
		return 0, noRoom()
	}
	if err == io.EOF {
		// The body is complete, so the handler may take its time. After any other error the
		// deadline stays, because the server still reads the rest.
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// patient writes to a slow reader, with a deadline for each write.
type patient struct {
	http.ResponseWriter
	rc   *http.ResponseController
	most time.Duration
}

func (p *patient) Write(b []byte) (int, error) {
	defer p.until()()
	return p.ResponseWriter.Write(b)
}

func (p *patient) Flush() { _ = p.FlushError() }

// FlushError implements the optional interface of http.ResponseController.
func (p *patient) FlushError() error {
	defer p.until()()
	return p.rc.Flush()
}

// Unwrap gives http.ResponseController access to the connection.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// until sets the write deadline and returns a function that removes it. Between writes, a stream
// may be silent for any time.
func (p *patient) until() func() {
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.most))
	return func() { _ = p.rc.SetWriteDeadline(time.Time{}) }
}
