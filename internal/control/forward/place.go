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
	region    string // empty: of this coordination store
	addresses []string
	at        string // the addresses, for messages

	bare      *peers // for callers without a proof: this process shows nothing either
	certified *peers // for callers with a client certificate: this process shows its own; nil: no address may see it
	safe      *peers // for callers with a token, which goes along; nil: no address may get one

	failing atomic.Bool // the latest call could not be forwarded
}

// peers are controllers, of which any may answer.
type peers struct {
	dbcontrollerv1connect.DeploymentServiceClient
	at    string              // their addresses, for messages
	calls *semaphore.Weighted // bounds the answers in memory
}

// newPlace returns a place of at least one address. Only addresses that are trusted get a proof of a caller
// or of this process. The error is about a file or an address.
func newPlace(region string, addresses []string, as client.Config, trusted func(address string) bool) (*place, error) {
	p := &place{region: region, addresses: addresses, at: strings.Join(addresses, ", ")}
	proven := slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return !trusted(a) })
	bare := as
	bare.Cert, bare.Key = "", ""
	var err error
	if p.bare, err = newPeers(addresses, bare); err != nil {
		return nil, err
	}
	switch {
	case len(proven) == len(addresses):
		p.safe = p.bare
	case len(proven) > 0:
		p.safe, err = newPeers(proven, bare)
	}
	switch {
	case err != nil:
	case as.Cert == "":
		p.certified = p.bare // there is none to show
	case len(proven) > 0:
		p.certified, err = newPeers(proven, as)
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

// peersFor returns the controllers for a caller. It returns an error if none may get its proof.
func (p *place) peersFor(c caller) (*peers, error) {
	at, proof := p.bare, ""
	switch {
	case c.token != "":
		at, proof = p.safe, "your token"
	case c.certificate:
		at, proof = p.certified, "this controller's certificate"
	}
	switch {
	case at != nil:
		return at, nil
	case !slices.ContainsFunc(p.addresses, private):
		return nil, refusal.New(refusal.NotInThisState, fmt.Errorf("%s at %s is reached without TLS, and %s would be readable on the way: give it an address with https://", p.who(), p.at, proof))
	}
	return nil, refusal.New(refusal.NotInThisState, fmt.Errorf("%s at %s does not get %s, because only etcd names this address: set api.peers.caFile here, or add the address to api.controllers", p.who(), p.at, proof))
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
	case errors.As(err, &not), foreign(err):
		return unsent
	}
	return unknown
}

// foreign reports whether something has refused a call that is no controller, such as a web server at a
// mistyped address. Its error is an HTTP status of its own.
func foreign(err error) bool {
	var e *connect.Error
	if !errors.As(err, &e) || connect.IsWireError(err) {
		return false
	}
	code, _, _ := strings.Cut(strings.TrimPrefix(e.Message(), "HTTP status "), " ")
	switch code {
	case "408", "429", "499": // a proxy in front of a controller has lost patience, maybe after it sent the call on
		return false
	}
	return len(code) == 3 && (code[0] == '3' || code[0] == '4') && strings.Trim(code, "0123456789") == ""
}

// lacks reports whether a controller does not know a call.
func lacks(err error) bool {
	return outcomeOf(err) == answered && connect.CodeOf(err) == connect.CodeUnimplemented
}

// relayed returns an error for the caller of this process. repeatable means that the call changes nothing.
func (p *place) relayed(ctx context.Context, at *peers, err error, repeatable bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text := fmt.Sprintf("%s at %s does not answer: %s", p.who(), at.at, line(err))
	switch was := outcomeOf(err); {
	case lacks(err):
		return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%s at %s does not know this call: its build is older, or it is no controller", p.who(), at.at))
	case was == answered:
		return p.refused(at, err)
	case foreign(err):
		text = fmt.Sprintf("%s at %s: something else answers there: check the address: %s", p.who(), at.at, line(err))
	case was == unknown && !repeatable:
		return refusal.New(refusal.OutcomeUnknown, fmt.Errorf("%s at %s may or may not have made the change: check the deployment, then repeat the call: %s", p.who(), at.at, line(err)))
	}
	if p.region != "" {
		return refusal.New(refusal.RegionUnavailable, errors.New(text))
	}
	return refusal.New(refusal.CoordinationUnavailable, errors.New(text))
}

// elsewhere reports whether this process may answer instead of controllers of its coordination store after a
// failed call: it had no effect there.
func elsewhere(err error, repeatable bool) bool {
	switch outcomeOf(err) {
	case unsent:
		return true
	case unknown:
		return repeatable
	}
	// Controllers with another coordination store do not find the deployment.
	return lacks(err) || connect.CodeOf(err) == connect.CodeNotFound
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
