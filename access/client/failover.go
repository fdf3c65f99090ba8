package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"
)

// How long one controller of several is waited for before the next one is asked.
const (
	connectWait = 5 * time.Second  // for a connection
	answerWait  = 15 * time.Second // for an answer to begin, of a call without a deadline
)

// NotSentError is a call that has reached no controller, so that it had no effect.
type NotSentError struct{ Err error }

func (e *NotSentError) Error() string { return e.Err.Error() }

func (e *NotSentError) Unwrap() error { return e.Err }

type repeatableKey struct{}

// Repeatable marks the calls of a context as ones that change nothing, such as dry runs: when
// the answer of a controller does not come, the next one is asked. Calls that only read are
// that anyway. Any other call is sent to one controller alone, for only the caller knows
// whether it may be done twice.
func Repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatableKey{}, true)
}

// repeatable reports whether a call may be made again when its answer was lost.
func repeatable(r *http.Request) bool {
	if r.Context().Value(repeatableKey{}) != nil {
		return true
	}
	method := path.Base(r.URL.Path)
	for _, reads := range []string{"Get", "List", "Watch", "Plan", "StreamPlan", "Verify", "EstimateLoss"} {
		if strings.HasPrefix(method, reads) {
			return true
		}
	}
	return false
}

// failover sends each call to the controller that has answered last, and to the next one when
// that cannot be reached.
type failover struct {
	at   []*url.URL
	base http.RoundTripper
	next atomic.Int64 // index of the one that is asked first
}

var _ http.RoundTripper = (*failover)(nil)

// CloseIdleConnections is what http.Client calls.
func (f *failover) CloseIdleConnections() {
	if c, ok := f.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (f *failover) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body) // requests are small: limits.RequestBytes
		_ = r.Body.Close()
		if err != nil {
			return nil, &NotSentError{err}
		}
	}
	start, again := int(f.next.Load()), repeatable(r)
	var failed []error
	sent := false
	for i := range f.at {
		n, left := (start+i)%len(f.at), len(f.at)-1-i
		res, reached, err := f.try(r, body, f.at[n], left)
		sent = sent || reached
		switch {
		case err == nil && again && left > 0 && overloaded(res.StatusCode):
			failed = append(failed, fmt.Errorf("%s: %s", f.at[n].Host, res.Status))
			_ = res.Body.Close()
			continue
		case err == nil:
			f.next.Store(int64(n))
			return res, nil
		}
		if len(f.at) > 1 {
			err = fmt.Errorf("%s: %w", f.at[n].Host, err)
		}
		failed = append(failed, err)
		f.next.Store(int64((n + 1) % len(f.at)))
		if r.Context().Err() != nil || reached && !again {
			break
		}
	}
	err := errors.Join(failed...)
	if !sent {
		err = &NotSentError{err}
	}
	return nil, err
}

// overloaded reports whether a status says that another controller may do better.
func overloaded(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// try sends a call to one controller; left is how many could be asked after it. reached
// reports whether any of it may have arrived.
func (f *failover) try(r *http.Request, body []byte, at *url.URL, left int) (res *http.Response, reached bool, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	answer := answerWait
	if deadline, ok := ctx.Deadline(); ok {
		answer = time.Until(deadline) / time.Duration(left+1)
	}
	wait := time.AfterFunc(min(connectWait, answer), func() { cancel(errors.New("it does not answer")) })
	defer wait.Stop()
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			wait.Stop()
			if left > 0 && repeatable(r) { // or no other one is asked
				wait.Reset(answer)
			}
		},
		WroteHeaders: func() { wrote.Store(true) },
	})
	to := r.Clone(ctx)
	to.URL.Scheme, to.URL.Host, to.Host = at.Scheme, at.Host, at.Host
	to.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	to.Body, _ = to.GetBody() //nolint:errcheck // it has none
	to.ContentLength = int64(len(body))
	if len(body) == 0 {
		to.Body = http.NoBody
	}
	res, err = f.base.RoundTrip(to)
	if err != nil {
		if r.Context().Err() == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // of this attempt, not of the call
		}
		cancel(nil)
		return nil, wrote.Load(), err
	}
	if !wait.Stop() && ctx.Err() != nil && r.Context().Err() == nil {
		_ = res.Body.Close() // it came in the moment in which it was given up
		return nil, true, context.Cause(ctx)
	}
	res.Body = &ending{res.Body, cancel}
	return res, true, nil
}

// ending releases the context of an attempt with the body of its answer.
type ending struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (e *ending) Close() error {
	defer e.cancel(nil)
	return e.ReadCloser.Close()
}
