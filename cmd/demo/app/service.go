package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v4"

	"dbcontroller.dev/cmd/server/app"
	"dbcontroller.dev/refusal"
)

// The versions that a demo moves between.
const (
	oldVersion = "v1"
	newVersion = "v2"
)

// Paths on which clients write.
const (
	pathV1       = "v1 API"
	pathV2       = "v2 API"
	pathPackages = "plain driver"
)

// service is the servers as any client uses them: each in turn, and again when one asks
// for it.
type service struct {
	servers int
	next    atomic.Int64
	newAPI  newAPI
}

// newAPI is whether clients may write through the v2 API, which is read-only while v1 is
// active. Before a switch back clients have to leave it, as any service's would.
type newAPI struct {
	wanted, seen atomic.Bool
	writing      sync.RWMutex
}

// open lets writes in as soon as the new version is seen to answer.
func (n *newAPI) open() {
	n.seen.Store(false)
	n.wanted.Store(true)
}

// close keeps further writes out and returns when those under way are finished.
func (n *newAPI) close() {
	n.wanted.Store(false)
	n.writing.Lock()
	n.seen.Store(false)
	n.writing.Unlock()
}

// current reports whether what the v2 API shows must be what was acknowledged last.
func (n *newAPI) current() bool { return n.wanted.Load() && n.seen.Load() }

// enter reports whether a write may go through the v2 API. If so, it needs a leave.
func (n *newAPI) enter() bool {
	n.writing.RLock()
	if n.current() {
		return true
	}
	n.writing.RUnlock()
	return false
}

func (n *newAPI) leave() { n.writing.RUnlock() }

func (s *service) server() int { return int(s.next.Add(1)) % s.servers }

// Outcomes of a call that did not succeed.
var (
	// errUnknownOutcome: the write may or may not have been made.
	errUnknownOutcome = errors.New("outcome is unknown")
	errNotThere       = errors.New("not there")
)

// callPatience is how long a call is tried again; the servers hold writes up to 15 s.
const callPatience = 30 * time.Second

// call makes a call at one server after another until it is answered, and returns the
// version that answered. A server that asks to come again has done nothing; any other
// failure leaves the outcome open.
func (s *service) call(ctx context.Context, send func(ctx context.Context, server int) (http.Header, error)) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond), backoff.WithMaxElapsedTime(callPatience))
	for {
		header, err := send(ctx, s.server())
		if err == nil {
			version = header.Get(app.VersionHeader)
			if version == newVersion && s.newAPI.wanted.Load() {
				s.newAPI.seen.Store(true)
			}
			return version, nil
		}
		if connect.CodeOf(err) == connect.CodeNotFound && connect.IsWireError(err) {
			return "", errNotThere
		}
		if reason, _ := refusal.Of(err); !reason.Again() {
			return "", fmt.Errorf("%w: %w", errUnknownOutcome, err)
		}
		wait := policy.NextBackOff()
		if wait == backoff.Stop {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(max(wait, retryAfter(err))):
		}
	}
}

// retryAfter is what a server asked for, at most a second: the demo's clients are impatient.
func retryAfter(err error) time.Duration {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return 0
	}
	seconds, convErr := strconv.Atoi(ce.Meta().Get("Retry-After"))
	if convErr != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, time.Second)
}

// sent is the headers of the answer to a request.
func sent[Req, Res any](ctx context.Context, call procedure[Req, Res], req *Req) (http.Header, error) {
	_, h, err := asked(ctx, call, req, func(*Res) string { return "" })
	return h, err
}

// procedure is a method of a client.
type procedure[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// asked is what the answer to a request prints as, and its headers.
func asked[Req, Res any](ctx context.Context, call procedure[Req, Res], req *Req, print func(*Res) string) (string, http.Header, error) {
	res, err := call(ctx, connect.NewRequest(req))
	if err != nil {
		return "", nil, err
	}
	return print(res.Msg), res.Header(), nil
}

// write makes one write that was due at a time, by send, and notes what became of it. A record
// whose state is unknown is not touched again.
func (s *service) write(ctx context.Context, l *ledger, t *tally, due time.Time, key string, v2 bool, next state, send func(ctx context.Context, server int) (http.Header, error)) bool {
	path := pathV1
	if v2 {
		path = pathV2
	}
	l.Begin(key, next)
	version, err := s.call(ctx, send)
	if err != nil {
		l.Unknown(key)
		if ctx.Err() == nil {
			t.writeFailed(fmt.Sprintf("%s %s: %v", path, key, err))
		}
		return false
	}
	l.Ack(key)
	t.wrote(write{due: due, acked: time.Now(), path: path, on: version})
	return true
}

// taken removes a random element.
func taken[T any](rng *rand.Rand, from *[]T) T {
	i, last := rng.IntN(len(*from)), len(*from)-1
	out := (*from)[i]
	(*from)[i] = (*from)[last]
	*from = (*from)[:last]
	return out
}

// clientsOf makes a client of each server.
func clientsOf[C any](h *http.Client, servers []string, make func(connect.HTTPClient, string, ...connect.ClientOption) C) []C {
	var out []C
	for _, addr := range servers {
		out = append(out, make(h, "http://"+addr))
	}
	return out
}

// readOne reads one record through one of the APIs, by get, which also returns what the answer
// prints as, and judges it: before the flip, the v2 API shows the new namespace as far as it
// is copied; everything else must be current.
func (s *service) readOne(ctx context.Context, l *ledger, t *tally, key string, v2 bool, get func(ctx context.Context, server int) (print string, h http.Header, err error)) {
	reading := l.Read(key)
	current := !v2 || s.newAPI.current()
	version, print := oldVersion, ""
	if v2 {
		version = newVersion
	}
	_, err := s.call(ctx, func(ctx context.Context, server int) (h http.Header, err error) {
		print, h, err = get(ctx, server)
		return h, err
	})
	var stale error
	if current {
		stale = reading.Check(print, formOf(version))
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && !errors.Is(err, errNotThere):
		t.readFailed(fmt.Sprintf("%s of %s: %v", version, key, err))
	case stale != nil:
		t.readFailed(version + " of " + stale.Error())
	default:
		t.read()
	}
}
