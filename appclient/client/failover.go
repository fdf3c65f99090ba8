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

// Waiting times for one of several controllers before the next one is tried.
const (
	connectWait = 5 * time.Second  // for a connection
	answerWait  = 15 * time.Second // for the start of an answer, without a deadline
)

// NotSentError means that the call reached no controller, so it had no effect. The caller may retry
// it.
type NotSentError struct{ Err error }

func (e *NotSentError) Error() string { return e.Err.Error() }

func (e *NotSentError) Unwrap() error { return e.Err }

type repeatableKey struct{}

// Repeatable marks the calls of a context as harmless to repeat, such as dry runs. If a controller
// does not answer, the client then asks the next one. Reading calls are repeatable anyway. Any
// other call reaches only one controller, because only the caller knows whether it may run twice.
func Repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatableKey{}, true)
}

// repeatable reports whether the client may repeat a call after a lost answer.
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

// failover sends each call to the controller that answered last. If that one cannot be reached, it
// tries the next.
type failover struct {
	at   []*url.URL
	base http.RoundTripper
	next atomic.Int64 // index of the first controller to try
}

var _ http.RoundTripper = (*failover)(nil)

// CloseIdleConnections implements the optional interface of http.Client.
func (f *failover) CloseIdleConnections() {
	if c, ok := f.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (f *failover) RoundTrip(r *http.Request) (*http.Response, error) {
	// Keep the body, because a second controller needs it again.
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body) // bounded by limits.RequestBytes
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
		// The next call begins with another controller.
		f.next.Store(int64((n + 1) % len(f.at)))
		// The call may have had an effect there, so it must not run twice.
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

// overloaded reports whether another controller may succeed after this status.
func overloaded(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// try sends a call to one controller. left is the number of controllers after it. reached reports
// whether any part of the call may have arrived.
func (f *failover) try(r *http.Request, body []byte, at *url.URL, left int) (res *http.Response, reached bool, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	answer := answerWait
	// Share the remaining time, so that every controller gets its turn.
	if deadline, ok := ctx.Deadline(); ok {
		answer = time.Until(deadline) / time.Duration(left+1)
	}
	// A timer and not a deadline, because a connection extends it.
	wait := time.AfterFunc(min(connectWait, answer), func() { cancel(errors.New("it does not answer")) })
	defer wait.Stop()
	var wrote atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			wait.Stop()
			if left > 0 && repeatable(r) { // otherwise wait as long as the caller does
				wait.Reset(answer)
			}
		},
		// From here on the controller may have received the call.
		WroteHeaders: func() { wrote.Store(true) },
	})
	// Each attempt needs its own request, because the transport may still use the last one.
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
			err = context.Cause(ctx) // the attempt ended, not the call
		}
		cancel(nil)
		return nil, wrote.Load(), err
	}
	if !wait.Stop() && ctx.Err() != nil && r.Context().Err() == nil {
		_ = res.Body.Close() // it came just after the timeout
		return nil, true, context.Cause(ctx)
	}
	res.Body = &ending{res.Body, cancel}
	return res, true, nil
}

// ending releases an attempt's context when its body is closed.
type ending struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (e *ending) Close() error {
	defer e.cancel(nil)
	return e.ReadCloser.Close()
}
