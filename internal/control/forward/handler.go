package forward

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment"
)

// Local answers in this process.
type Local interface {
	dbcontrollerv1connect.DeploymentServiceHandler
	// Runs reports whether this process runs a deployment. "" is its own.
	Runs(name string) bool
	// Stored reports whether the coordination store has a deployment.
	Stored(ctx context.Context, name string) (bool, error)
}

// Region is another region, with a coordination store of its own.
type Region struct {
	Name string
	// Controllers are its controllers, and how this process proves itself to them. Its TokenFile is
	// empty: only the caller's token goes along.
	Controllers client.Config
}

// Config configures a Handler.
type Config struct {
	ID, Address string // of this process, as it announces them; its own announcement is ignored
	// Known are addresses of the configuration. They get the proofs of callers, as those do whose certificate
	// is of Peers.CA.
	Known []string
	// Peers says how this process proves itself to announced controllers. Server and TokenFile are empty.
	Peers   client.Config
	Regions []Region
	// Patience is the longest time of a call without a deadline. Zero: longestCall. Only tests set it.
	Patience time.Duration
	Log      *zap.Logger // nil: none
}

// longestCall is the longest time that a call without a deadline may need elsewhere.
const longestCall = 10 * time.Minute

// Others are the controllers that calls can be forwarded to. Run must be running for announcements to
// count. Methods may be called concurrently.
type Others struct {
	cfg      Config
	regions  []*place
	stopping chan struct{}

	mu      sync.Mutex
	owners  map[string]*place // by deployment
	placed  map[string]*place // by addresses, so that deployments of one process share connections
	live    map[string]bool   // announced addresses
	changed chan struct{}     // closed at the next change of owners or live
	homes   map[string]*place // regions that have answered about a deployment
	warned  map[string]bool   // addresses with a line in the log
}

// Open returns the other controllers of a configuration. It reads the files of cfg, and connects to
// nobody.
func Open(cfg Config) (*Others, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	cfg.Patience = cmp.Or(cfg.Patience, longestCall)
	o := &Others{
		cfg: cfg, stopping: make(chan struct{}), owners: map[string]*place{}, placed: map[string]*place{},
		changed: make(chan struct{}), homes: map[string]*place{}, warned: map[string]bool{},
	}
	// A wrong file must fail at the start, and not when the first announcement comes.
	peers := cfg.Peers
	peers.Server = "https://127.0.0.1" // passes every check of an address
	if _, err := client.Open(peers); err != nil {
		return nil, fmt.Errorf("api.peers: %w", err)
	}
	for _, r := range cfg.Regions {
		p, err := newPlace(r.Name, strings.Split(r.Controllers.Server, ","), r.Controllers, private)
		if err != nil {
			return nil, fmt.Errorf("api.regions %s: %w", r.Name, err)
		}
		o.regions = append(o.regions, p)
	}
	return o, nil
}

// Run follows the announcements of other controllers until ctx ends. Then it ends running streams. store
// is any deployment's of the coordination store. Run is called once.
func (o *Others) Run(ctx context.Context, store *deployment.Store) {
	defer close(o.stopping)
	store.FollowAddresses(ctx, o.announced)
}

// Handler answers calls, and forwards those about deployments that other controllers run.
type Handler struct {
	// Calls without a method in calls.go are answered here.
	dbcontrollerv1connect.DeploymentServiceHandler
	*Others
	local   Local
	watches atomic.Int64
}

var _ dbcontrollerv1connect.DeploymentServiceHandler = (*Handler)(nil)

// NewHandler returns a Handler in front of local.
func NewHandler(local Local, others *Others) *Handler {
	return &Handler{DeploymentServiceHandler: local, Others: others, local: local}
}

// hop is the header of a forwarded call. A controller that gets it answers by itself. Its value names the
// forwarding controller and its caller, for the audit.
const hop = access.ForwardedHeader

// caller is what a forwarded call takes along.
type caller struct {
	token       string // the whole Authorization header; empty: none
	certificate bool   // the caller has proven itself by a certificate
	forwarded   bool   // the call was forwarded already
	via         string
}

func (o *Others) callerOf(ctx context.Context, header http.Header) caller {
	c := caller{forwarded: len(header.Values(hop)) > 0, via: o.cfg.ID}
	if known, ok := access.CallerOf(ctx); ok {
		c.via += " for " + known.Name
		// A caller that has proven nothing here must not have the rights of this process elsewhere.
		c.certificate = known.Proof == access.ProofCertificate
	}
	// Two headers, or another scheme, prove nothing here, and must not prove anything there.
	if values := header.Values("Authorization"); len(values) == 1 {
		if scheme, _, ok := strings.Cut(values[0], " "); ok && strings.EqualFold(scheme, "Bearer") {
			c.token = values[0]
		}
	}
	return c
}

// request returns a request with what the caller takes along, and nothing else of the caller's headers.
func request[Q any](c caller, msg *Q) *connect.Request[Q] {
	req := connect.NewRequest(msg)
	req.Header().Set(hop, printable(c.via))
	if c.token != "" {
		req.Header().Set("Authorization", c.token)
	}
	return req
}

// printable returns text that a header can hold.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), 300)]
}
