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

	"dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/refusal"
)

// The versions of a demo.
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

// service is the set of servers as clients use it: in turn, with a retry where a server asks for
// one.
type service struct {
	servers int
	next    atomic.Int64
	newAPI  newAPI
}

// newAPI controls whether clients may write through the v2 API, which is read-only while v1 is
// active. Before a switch back, clients must leave it, as clients of any service would.
type newAPI struct {
	wanted, seen atomic.Bool
	writing      sync.RWMutex
}

// open admits writes as soon as a response shows that v2 is active.
func (n *newAPI) open() {
	n.seen.Store(false)
	n.wanted.Store(true)
}

// close stops admitting writes and returns when those under way have finished.
func (n *newAPI) close() {
	n.wanted.Store(false)
	n.writing.Lock()
	n.seen.Store(false)
	n.writing.Unlock()
}

// current reports whether reads through the v2 API must show the last acknowledged state.
func (n *newAPI) current() bool { return n.wanted.Load() && n.seen.Load() }

// enter reports whether a write may use the v2 API. If so, the caller must call leave.
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

// Errors of a call without success.
var (
	// errUnknownOutcome means that the write may or may not have taken effect.
	errUnknownOutcome = errors.New("outcome is unknown")
	errNotThere       = errors.New("not there")
)

// callPatience limits the retries of a call. Servers hold writes for up to 15 s.
const callPatience = 30 * time.Second

// call sends a request to one server after another until one answers, and returns the answering
// version. A server that asks for a retry has done nothing. Any other failure leaves the outcome
// unknown.
func (s *service) call(ctx context.Context, send func(ctx context.Context, server int) (http.Header, error)) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond), backoff.WithMaxElapsedTime(callPatience))
	for {
		header, err := send(ctx, s.server())
		if err == nil {
			version = header.Get(app.VersionHeader)
			// The first answer of the new version opens the v2 API for writes.
			if version == newVersion && s.newAPI.wanted.Load() {
				s.newAPI.seen.Store(true)
			}
			return version, nil
		}
		if connect.CodeOf(err) == connect.CodeNotFound && connect.IsWireError(err) {
			return "", errNotThere
		}
		// Only a refusal that asks for a retry proves that the server did nothing.
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

// retryAfter returns the delay that a server asked for, at most a second, so that the pause is
// measured and not the delay.
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

// sent makes a request and returns the headers of the response.
func sent[Req, Res any](ctx context.Context, call procedure[Req, Res], req *Req) (http.Header, error) {
	_, h, err := asked(ctx, call, req, func(*Res) string { return "" })
	return h, err
}

// procedure is a method of a client.
type procedure[Req, Res any] func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error)

// asked makes a request and returns the printed response and its headers.
func asked[Req, Res any](ctx context.Context, call procedure[Req, Res], req *Req, print func(*Res) string) (string, http.Header, error) {
	res, err := call(ctx, connect.NewRequest(req))
	if err != nil {
		return "", nil, err
	}
	return print(res.Msg), res.Header(), nil
}

// write makes one write, which was due at the given time, and records its outcome. A false result
// means that the record's state is unknown; the caller must not write it again.
func (s *service) write(ctx context.Context, l *ledger, t *tally, due time.Time, key string, v2 bool, next state, send func(ctx context.Context, server int) (http.Header, error)) bool {
	path := pathV1
	if v2 {
		path = pathV2
	}
	// Begin before sending: a reader may see the new state before the acknowledgement arrives.
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

// taken removes a random element and returns it.
func taken[T any](rng *rand.Rand, from *[]T) T {
	i, last := rng.IntN(len(*from)), len(*from)-1
	out := (*from)[i]
	(*from)[i] = (*from)[last]
	*from = (*from)[:last]
	return out
}

// clientsOf returns one client for each server.
func clientsOf[C any](h *http.Client, servers []string, make func(connect.HTTPClient, string, ...connect.ClientOption) C) []C {
	var out []C
	for _, addr := range servers {
		out = append(out, make(h, "http://"+addr))
	}
	return out
}

// readOne reads one record with get and checks its printed form. Before the flip, the v2 API shows
// the part of the new namespace that is copied, and is not checked. All other reads must be
// current.
func (s *service) readOne(ctx context.Context, l *ledger, t *tally, key string, v2 bool, get func(ctx context.Context, server int) (print string, h http.Header, err error)) {
	// The reading starts before the call: states acknowledged later may or may not show.
	reading := l.Read(key)
	current := !v2 || s.newAPI.current()
	version, print := oldVersion, ""
	if v2 {
		version = newVersion
	}
	// A record that is not there is an answer as well; the ledger knows if it may be absent.
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
