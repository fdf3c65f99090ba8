package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/refusal"
)

// place is a set of controllers that answer about the same deployments.
type place struct {
	region string // empty: of this coordination store
	at     string // addresses, for messages

	bare      *peers // for callers without a proof: this process shows nothing either
	certified *peers // for callers with a client certificate: this process shows its own
	safe      *peers // for callers with a token, which goes along; nil: no address may get one

	failing atomic.Bool // the latest call could not be forwarded
}

// peers are controllers, of which any may answer.
type peers struct {
	dbcontrollerv1connect.DeploymentServiceClient
	at    string              // their addresses, for messages
	calls *semaphore.Weighted // bounds the answers in memory
}

// newPlace returns a place of at least one address. The error is about a file or an address.
func newPlace(region string, addresses []string, as client.Config) (*place, error) {
	p := &place{region: region, at: strings.Join(addresses, ", ")}
	var err error
	if p.certified, err = newPeers(addresses, as); err != nil {
		return nil, err
	}
	as.Cert, as.Key = "", ""
	if p.bare, err = newPeers(addresses, as); err != nil {
		return nil, err
	}
	safe := slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return !private(a) })
	switch {
	case len(safe) == len(addresses):
		p.safe = p.bare
	case len(safe) > 0:
		p.safe, err = newPeers(safe, as)
	}
	return p, err
}

func newPeers(addresses []string, as client.Config) (*peers, error) {
	as.Server = strings.Join(addresses, ",")
	c, err := client.Open(as, connect.WithReadMaxBytes(limits.ForwardedBytes))
	if err != nil {
		return nil, err
	}
	return &peers{c, strings.Join(addresses, ", "), semaphore.NewWeighted(limits.Forwards)}, nil
}

// private reports whether nobody on the way to an address can read a token.
func private(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// who names the place in messages.
func (p *place) who() string {
	if p.region != "" {
		return "region " + p.region
	}
	return "the controller that runs it"
}

// peersFor returns the controllers for a caller. It returns an error if none may get the caller's token.
func (p *place) peersFor(c caller) (*peers, error) {
	switch {
	case c.token == "" && c.certificate:
		return p.certified, nil
	case c.token == "":
		return p.bare, nil
	case p.safe == nil:
		return nil, refusal.New(refusal.NotInThisState, fmt.Errorf("%s at %s is reached without TLS, and your token would be readable on the way: give it an address with https://", p.who(), p.at))
	}
	return p.safe, nil
}

// outcome says what a failed call tells about its effect.
type outcome int

const (
	answered outcome = iota // the other controller has refused it
	unsent                  // it had no effect
	unknown                 // it may have had one
)

// outcomeOf tells the outcomes of a failed call apart.
func outcomeOf(err error) outcome {
	var not *client.NotSentError
	switch {
	case connect.IsWireError(err):
		return answered
	case errors.As(err, &not):
		return unsent
	}
	return unknown
}

// relayed returns an error for the caller of this process. repeatable means that the call changes nothing.
func (p *place) relayed(ctx context.Context, at *peers, err error, repeatable bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch was := outcomeOf(err); {
	case was == answered:
		return p.refused(at, err)
	case was == unknown && !repeatable:
		return refusal.New(refusal.OutcomeUnknown, fmt.Errorf("%s at %s may or may not have made the change: check the deployment, then repeat the call: %s", p.who(), at.at, line(err)))
	case p.region != "":
		return refusal.New(refusal.RegionUnavailable, fmt.Errorf("region %s at %s does not answer: %s", p.region, at.at, line(err)))
	default:
		return refusal.New(refusal.CoordinationUnavailable, fmt.Errorf("%s at %s does not answer: %s", p.who(), at.at, line(err)))
	}
}

// refused returns the error that another controller has answered with.
func (p *place) refused(at *peers, err error) error {
	var was *connect.Error
	if !errors.As(err, &was) {
		return err
	}
	code, text := was.Code(), line(errors.New(was.Message()))
	// The caller has logged in here. Another login does not help there.
	if code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied {
		code, text = connect.CodePermissionDenied, fmt.Sprintf("%s at %s refuses: %s", p.who(), at.at, text)
	}
	out := connect.NewError(code, errors.New(text))
	for _, d := range was.Details() {
		out.AddDetail(d)
	}
	return out
}

// line returns the text of an error on one line of bounded length.
func line(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.ToValidUTF8(text[:min(len(text), 2000)], "")
}
