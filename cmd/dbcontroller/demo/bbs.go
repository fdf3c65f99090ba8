package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v4"

	"dbcontroller/cmd/server/app"
	"dbcontroller/gen/bbs/v1/bbsv1connect"
	"dbcontroller/gen/bbs/v2/bbsv2connect"
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

// bbsClient talks to the servers as any client would: to each in turn, and again when one
// asks for it.
type bbsClient struct {
	v1   []bbsv1connect.DesiredLRPServiceClient
	v2   []bbsv2connect.LRPDeploymentServiceClient
	next atomic.Int64
	// flipped is set when a response came from the new version's stack: from then on the
	// v2 API can be written.
	flipped atomic.Bool
}

func newBBSClient(h *http.Client, servers []string) *bbsClient {
	c := &bbsClient{}
	for _, s := range servers {
		c.v1 = append(c.v1, bbsv1connect.NewDesiredLRPServiceClient(h, "http://"+s))
		c.v2 = append(c.v2, bbsv2connect.NewLRPDeploymentServiceClient(h, "http://"+s))
	}
	return c
}

func (c *bbsClient) server() int { return int(c.next.Add(1)) % len(c.v1) }

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
func (c *bbsClient) call(ctx context.Context, send func(ctx context.Context, server int) (http.Header, error)) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond), backoff.WithMaxElapsedTime(callPatience))
	for {
		header, err := send(ctx, c.server())
		if err == nil {
			version = header.Get(app.VersionHeader)
			if version == newVersion {
				c.flipped.Store(true)
			}
			return version, nil
		}
		if connect.CodeOf(err) == connect.CodeNotFound && connect.IsWireError(err) {
			return "", errNotThere
		}
		if connect.CodeOf(err) != connect.CodeUnavailable || !connect.IsWireError(err) {
			return "", fmt.Errorf("%w: %w", errUnknownOutcome, err)
		}
		wait := policy.NextBackOff()
		if wait == backoff.Stop {
			return "", err
		}
		again := time.NewTimer(max(wait, retryAfter(err)))
		select {
		case <-ctx.Done():
			again.Stop()
			return "", err
		case <-again.C:
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
