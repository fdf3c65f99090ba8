package api

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/lasthour"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/upgradestate"
)

// Upgrades provides the transformations of this binary.
type Upgrades interface {
	// TransformHash identifies the transformation between two versions. The error explains what is
	// unknown or not configured, for an operator.
	TransformHash(from, to string) (string, error)
}

// Verifier compares source and target of the deployment once.
type Verifier interface {
	Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error)
}

// Config configures a Service. Hooks that are nil are not available.
type Config struct {
	Upgrades Upgrades // nil: no upgrade can begin here
	Verifier Verifier // nil: nothing can be verified here

	Planner   Planner   // nil: nothing can be planned here
	Rehearser Rehearser // nil: nothing can be rehearsed here
	Updates   Updates   // nil: no data update can begin here
	Loss      Loss      // nil: no rollback to a snapshot can begin here
	Trier     Trier     // nil: no record can be tried here
	Inspector Inspector // nil: no database can be looked into here

	// Initial decides how this process's deployment begins. Nil: requests must name a version.
	Initial Initial
	// Waits returns the conditions that this process needs before it can work. Nil: none.
	Waits func() []upgradestate.Blocker
	// Starting explains, for an operator, why this process has not prepared a version of its
	// deployment yet. Without a version it is about the deployment. "" means prepared. Nil: nothing
	// needs preparation.
	Starting func(version string) string
	// RollbackLacks returns the indexes and options of the active version that the previous version
	// lacks, in sentences. Nil: not checked.
	RollbackLacks func(d upgradestate.Deployment) []string
	// BackAway explains why the database that a rollback needs cannot be used now. "" means that
	// nothing is known against it. Nil: not checked.
	BackAway func(d upgradestate.Deployment) string
	// ViewsLeft names the views that the running upgrade leaves behind, in a sentence. Nil: not
	// checked.
	ViewsLeft func(d upgradestate.Deployment) string
	// Encryption returns the encryption keys of the deployment's records, by version. Nil: no
	// encryption.
	Encryption func() map[string]*pb.Encryption
	// Following returns the data updates of the current version that begin by themselves, with what
	// they wait for. Nil: there are none.
	Following func() []*pb.Following
	// KeysLack names the processes that lack an encryption key of a version's records, for an
	// operator. Unless it returns "", no upgrade to the version begins. Nil: no encryption.
	KeysLack func(ctx context.Context, version string) (string, error)

	// KindsLack names the kinds that a rollback to a version moves and this process is not
	// configured for, for an operator. Unless it returns "", no rollback begins, because nobody
	// would sync those kinds. Nil: not checked.
	KindsLack func(d upgradestate.Deployment, version string) string

	// ServedLost refuses a rollback if the database of the current version is lost or does not
	// answer. Nil: not checked.
	ServedLost func(ctx context.Context, d upgradestate.Deployment) error

	// RetireLacks returns why the data of a version cannot be dropped now, for example because its
	// database does not answer. gone reports whether that database may be lost. It is false if the
	// database answers, for example by refusing the login. Nil: not checked.
	RetireLacks func(ctx context.Context, d upgradestate.Deployment, version string) (gone bool, why error)

	// Policy is the policy of upgrades whose request has none. The zero value switches as soon as
	// everything is ready.
	Policy upgradestate.Policy

	// RolloutChecks are the names of the checks that rollouts can name.
	RolloutChecks []string

	Build Build // the program that answers

	Log *zap.Logger // nil: none
}

// Build describes the program, for GetVersion.
type Build struct{ Version, Commit, Date, Go, Platform string }

// Service implements the API for all deployments of a coordination store. Upgrades begin, and are
// verified, only for the deployment that this process is configured for. Run must be running for
// clients to register. When Run ends, long calls end too. Methods may be called concurrently.
type Service struct {
	coord coord.Store
	own   *deployment.Store
	cfg   Config

	stopping   chan struct{}
	stop       sync.Once
	verifying  sync.Mutex
	estimating sync.Mutex
	rehearsing sync.Mutex
	clients    clients
	watches    atomic.Int64
	lastHour   *lasthour.Recorder
}

var _ dbcontrollerv1connect.DeploymentServiceHandler = (*Service)(nil)

// New returns the API over a coordination store. own is the deployment that this process is
// configured for. Requests without a name mean it.
func New(c coord.Store, own *deployment.Store, cfg Config) *Service {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	v := &Service{coord: c, own: own, cfg: cfg, stopping: make(chan struct{}), clients: clients{byKey: map[string]*client{}, places: shares{most: limits.Clients}}}
	v.lastHour = lasthour.New(v.sample)
	return v
}

// NewHandler returns the path of a service and its handler. Interceptors in opts see errors in the
// form that the caller gets.
func NewHandler(v *Service, opts ...connect.HandlerOption) (string, http.Handler) {
	return newHandler(v, errorCodes{func(string) (*Service, error) { return v, nil }}, opts...)
}

func newHandler(v dbcontrollerv1connect.DeploymentServiceHandler, errs errorCodes, opts ...connect.HandlerOption) (string, http.Handler) {
	opts = append(append([]connect.HandlerOption{
		connect.WithCompression("gzip", nil, nil), // requests must not be compressed: they could unpack to a huge size
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
		connect.WithReadMaxBytes(limits.RequestBytes),
	}, opts...), connect.WithInterceptors(errs)) // the last one is the innermost
	return dbcontrollerv1connect.NewDeploymentServiceHandler(v, opts...)
}

// store returns the deployment that a request names.
func (v *Service) store(name string) (*deployment.Store, error) {
	if name == "" || name == v.own.Name() {
		return v.own, nil
	}
	return v.own.Other(name)
}

// GetDeployment implements the API. With wait_revision it waits for a newer record.
func (v *Service) GetDeployment(ctx context.Context, req *connect.Request[pb.GetDeploymentRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	d, err := v.await(ctx, s, req.Msg.WaitRevision, req.Msg.TimeoutMs)
	if err != nil {
		return nil, err
	}
	return v.answer(ctx, s, d)
}

// starting explains why this process has not prepared a version of a deployment, or without a
// version the deployment. It returns "" if it has, or if the deployment is another process's.
func (v *Service) starting(s *deployment.Store, version string) string {
	if v.cfg.Starting == nil || s.Name() != v.own.Name() {
		return ""
	}
	if why := v.cfg.Starting(version); why != "" {
		return "this controller is starting: " + why + ": ask again"
	}
	return ""
}

// waits returns the conditions that this process still needs, if s is its own deployment.
func (v *Service) waits(s *deployment.Store) []upgradestate.Blocker {
	if v.cfg.Waits == nil || s.Name() != v.own.Name() {
		return nil
	}
	return v.cfg.Waits()
}

// answer reads the rest of the state and returns the status.
func (v *Service) answer(ctx context.Context, s *deployment.Store, d upgradestate.Deployment) (*connect.Response[pb.Deployment], error) {
	now, err := s.State(ctx, d)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(v.status(s, now)), nil
}

// status returns the status of a deployment, with this process's own information.
func (v *Service) status(s *deployment.Store, now deployment.State) *pb.Deployment {
	p := status.Process{Waits: v.waits(s)}
	if v.cfg.RollbackLacks != nil && s.Name() == v.own.Name() {
		p.Lacks = v.cfg.RollbackLacks(now.Record)
	}
	if v.cfg.BackAway != nil && s.Name() == v.own.Name() {
		p.Away = v.cfg.BackAway(now.Record)
	}
	if v.cfg.ViewsLeft != nil && s.Name() == v.own.Name() {
		p.Views = v.cfg.ViewsLeft(now.Record)
	}
	if v.cfg.Encryption != nil && s.Name() == v.own.Name() {
		p.Encryption = v.cfg.Encryption()
	}
	if v.cfg.Following != nil && s.Name() == v.own.Name() {
		p.Following = v.cfg.Following()
	}
	return status.Of(now, p)
}

const (
	defaultWait = 30 * time.Second
	longestWait = 5 * time.Minute
)

// await returns the record. If revision is not 0, it waits up to the timeout for a newer one.
func (v *Service) await(ctx context.Context, s *deployment.Store, revision int64, timeoutMs int32) (upgradestate.Deployment, error) {
	timeout, err := between("timeout_ms", timeoutMs, defaultWait, 0, longestWait)
	if err != nil {
		return upgradestate.Deployment{}, err
	}
	d, err := s.Get(ctx)
	// A record newer than the given revision is a change already.
	if err != nil || revision == 0 || d.Revision > revision {
		return d, err
	}
	ctx, cancel := v.untilStopped(ctx)
	defer cancel()
	bounded, end := context.WithTimeout(ctx, timeout)
	defer end()
	for d = range s.Watch(bounded) {
		if d.Revision > revision {
			return d, nil
		}
	}
	if ctx.Err() != nil {
		return upgradestate.Deployment{}, context.Cause(ctx)
	}
	// Timed out: an unchanged record is a normal answer.
	return d, nil
}

// untilStopped returns a context that ends with errStopping when the controller stops, or when Several
// replaces this Service.
func (v *Service) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-v.stopping:
			cancel(errStopping)
		case <-replaced(ctx):
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

func (v *Service) ListDeployments(ctx context.Context, _ *connect.Request[pb.ListDeploymentsRequest]) (*connect.Response[pb.ListDeploymentsResponse], error) {
	ds, unreadable, err := v.own.All(ctx)
	if err != nil {
		return nil, err
	}
	res := &pb.ListDeploymentsResponse{}
	for _, d := range ds {
		// Lists show the record alone: the rest would take several reads for each deployment.
		res.Deployments = append(res.Deployments, status.OfRecord(d))
	}
	for _, name := range slices.Sorted(maps.Keys(unreadable)) {
		res.Unreadable = append(res.Unreadable, &pb.ListDeploymentsResponse_Unreadable{Name: name, Reason: unreadable[name].Error()})
	}
	return connect.NewResponse(res), nil
}

func (v *Service) GetVersion(context.Context, *connect.Request[pb.GetVersionRequest]) (*connect.Response[pb.Version], error) {
	b := v.cfg.Build
	return connect.NewResponse(&pb.Version{
		Version: b.Version, Commit: b.Commit, Date: b.Date, Go: b.Go, Platform: b.Platform,
		Protocol: upgradestate.MinProtocol, Format: upgradestate.Format, Features: Features(),
	}), nil
}

const (
	// parkedPage is the size in bytes from which a page of parked records ends.
	parkedPage = 1 << 20
	// parkedCopies is how often a page is in memory: as read, decoded, and as an answer.
	parkedCopies = 3
)

// ListParked counts its pages as memory of the request.
func (v *Service) ListParked(ctx context.Context, req *connect.Request[pb.ListParkedRequest]) (*connect.Response[pb.ListParkedResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(req.Msg.PageToken)
	if err != nil {
		return nil, invalid("page_token", req.Msg.PageToken, "the next_page_token of a former answer")
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("list parked: %w", err)
	}
	// The size is known only afterwards.
	held := memory.Of(ctx).Hold()
	if !held.Set(parkedCopies * parkedPage) {
		return nil, memory.Full(held.Possible(parkedCopies * parkedPage))
	}
	list, bytes, next, err := s.ParkedPage(ctx, d, string(after), parkedPage)
	if errors.Is(err, deployment.ErrOtherDirection) {
		return nil, invalid("page_token", req.Msg.PageToken, "a token of the direction that is synced now: list again from the beginning")
	}
	if err != nil {
		return nil, err
	}
	if !held.Set(int64(parkedCopies * bytes)) {
		return nil, memory.Full(held.Possible(int64(parkedCopies * bytes)))
	}
	res := &pb.ListParkedResponse{NextPageToken: base64.RawURLEncoding.EncodeToString([]byte(next))}
	for _, p := range list {
		res.Parked = append(res.Parked, status.Parked(p))
	}
	return connect.NewResponse(res), nil
}
