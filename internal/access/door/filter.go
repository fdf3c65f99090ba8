package door

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
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
	g.Names = access.Names{Hosts: lock.Hosts, Origins: slices.Concat(lock.Origins, f.cfg.Pages)}
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
	return f.bounded(f.shared(f.guard.Handler(f.reserved(next))))
}

// shared lets the configured pages of other origins read answers (CORS). A browser first asks for
// permission, without any proof of identity, so the guard must not see this question. The request
// itself passes the guard like every other.
func (f *filter) shared(next http.Handler) http.Handler {
	if len(f.cfg.Pages) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if !slices.Contains(f.cfg.Pages, origin) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", origin)
		// Client certificates count as credentials.
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Connect-Protocol-Version")
		w.Header().Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}

// bounded limits the resources of one request and of all requests together.
func (f *filter) bounded(next http.Handler) http.Handler {
	running := make(chan struct{}, f.cfg.Requests)
	budget := memory.NewBudget(f.cfg.BodiesBytes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		out := &patient{ResponseWriter: w, rc: rc, most: f.cfg.WriteTime}
		// The deadline of the former answer on this connection is still set.
		if r.ProtoMajor == 1 {
			_ = rc.SetWriteDeadline(time.Time{})
		}
		// The server sends the end of an answer, and all of a short one, after this handler has
		// returned. Without a deadline a client that never reads would hold its connection.
		var in *body
		defer func() {
			most := f.cfg.WriteTime
			// With HTTP/1 the server reads the rest of the body first.
			if in != nil && !in.done {
				most += f.cfg.BodyTime
			}
			_ = rc.SetWriteDeadline(time.Now().Add(most))
		}()
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			busy(out, r)
			return
		}
		share := budget.Share(limits.ShareBytes)
		defer share.End()
		// Until the caller is known, leave the operators' part free.
		share.Leave(f.cfg.BodiesBytes / limits.OperatorShare)
		r = r.WithContext(memory.With(r.Context(), share)) // handlers take their memory from it, too
		if r.Body != nil && r.Body != http.NoBody {
			in = f.body(w, r, rc, share)
			r.Body = in
		}
		next.ServeHTTP(out, r)
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
			if share.Possible(n) {
				busy(w, r)
			} else {
				refusal.Write(w, r, memory.Full(false))
			}
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
	data := []byte(query.Get("message"))
	if query.Get("base64") == "1" {
		// Connect accepts padding, and stops at the first error as well.
		data, _ = base64.RawURLEncoding.DecodeString(strings.TrimRight(string(data), "="))
	}
	return limits.BodyCopies * (int64(len(r.URL.RawQuery)) + memory.Decoded(data, f.cfg.BodyBytes, query["compression"]...))
}

// body is a request's body that counts in the budget of memory, with a deadline for each message.
type body struct {
	*memory.Body
	rc    *http.ResponseController
	most  time.Duration
	http2 bool
	done  bool // read to its end
}

// body returns the body of a request.
func (f *filter) body(w http.ResponseWriter, r *http.Request, rc *http.ResponseController, share *memory.Share) *body {
	in := r.Body
	// A stream may have any number of messages. Body limits each of them.
	if !memory.Framed(r.Header) {
		in = http.MaxBytesReader(w, in, f.cfg.BodyBytes)
	}
	b := &body{Body: memory.NewBody(in, r.Header, share.Body(), f.cfg.BodyBytes), rc: rc, most: f.cfg.BodyTime, http2: r.ProtoMajor > 1}
	b.wait()
	return b
}

// wait gives the client time to send a body, or the next message of a stream. An error here and below
// means that the connection is gone.
func (b *body) wait() { _ = b.rc.SetReadDeadline(time.Now().Add(b.most)) }

func (b *body) Read(p []byte) (int, error) {
	if b.Between() {
		b.wait()
	}
	n, err := b.Body.Read(p)
	b.done = b.done || errors.Is(err, io.EOF)
	// After a complete body, or between two messages, the handler may take its time. After any other
	// error the deadline stays, because the server still reads the rest. HTTP/1 keeps it between
	// messages: there the server reads the rest before it answers, and no deadline ends a body by
	// itself.
	if b.done || err == nil && b.http2 && b.Between() {
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
