package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/deployment"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/limits"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/verify"
)

// Upgrades knows the transformers that this binary has.
type Upgrades interface {
	// TransformHash identifies the transformation between two versions. The error says,
	// for an operator, what is unknown or not configured.
	TransformHash(from, to string) (string, error)
}

// Verifier compares source and target of the deployment once.
type Verifier interface {
	Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error)
}

// Config configures a Service.
type Config struct {
	Upgrades Upgrades // nil: no upgrade can begin here
	Verifier Verifier // nil: nothing can be verified here

	Planner   Planner   // nil: nothing can be planned here
	Rehearser Rehearser // nil: nothing can be rehearsed here
	Updates   Updates   // nil: no data update can begin here
	Loss      Loss      // nil: no rollback to a snapshot can begin here

	// Initial decides where this process's deployment begins; nil: a version must be named.
	Initial Initial
	// Waits returns what this process waits for before it can work; nil: nothing.
	Waits func() []upgradestate.Blocker
	// Starting returns why this process has not prepared a version of its deployment yet, for an
	// operator, or, without a version, its deployment; "": it has. nil: nothing is prepared.
	Starting func(version string) string
	// RollbackLacks returns what the version that was left lacks of the indexes and options of the
	// active one, for people; nil: nobody looks.
	RollbackLacks func(d upgradestate.Deployment) []string
	// ViewsLeft says, for people, which views the upgrade that runs leaves behind; nil: nobody looks.
	ViewsLeft func(d upgradestate.Deployment) string
	// Encryption returns which keys the records of this process's deployment are under, by version;
	// nil: there are none.
	Encryption func() map[string]*pb.Encryption
	// KeysLack returns, for an operator, who lacks which key of the records that a version has; ""
	// if nobody does. No upgrade to it begins then. nil: there are no keys.
	KeysLack func(ctx context.Context, version string) (string, error)

	// KindsLack returns, for an operator, which kinds a rollback to a version moves that this process
	// is not configured for; "" if there are none. No rollback begins then: nobody would sync them.
	// nil: nothing is asked.
	KindsLack func(d upgradestate.Deployment, version string) string

	// ServedLost refuses a rollback that the database of the current version cannot take part in: it
	// is lost, or does not answer. nil: nothing is asked.
	ServedLost func(ctx context.Context, d upgradestate.Deployment) error

	// Policy is that of upgrades whose request has none. The zero value switches as soon as
	// everything is ready.
	Policy upgradestate.Policy

	Build Build // what answers

	Log *zap.Logger // nil: none
}

// Build is what a program knows of itself.
type Build struct{ Version, Commit, Date, Go, Platform string }

// Service is the API of all deployments of a coordination store. Upgrades begin, and are
// verified, only for the one that this process is configured with. Run must run for
// clients to be registered, and ends the long calls when it ends.
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
}

var _ dbcontrollerv1connect.DeploymentServiceHandler = (*Service)(nil)

// New returns the API over a coordination store. own is the deployment that this
// process is configured with, and that a request without a name means.
func New(c coord.Store, own *deployment.Store, cfg Config) *Service {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Service{coord: c, own: own, cfg: cfg, stopping: make(chan struct{}), clients: clients{byKey: map[string]*client{}, places: shares{most: limits.Clients}}}
}

// NewHandler returns the path that a service is mounted at, and its handler. Interceptors of opts
// see of an error what the caller gets.
func NewHandler(v *Service, opts ...connect.HandlerOption) (string, http.Handler) {
	opts = append(append([]connect.HandlerOption{
		connect.WithCompression("gzip", nil, nil), // what is small when it comes stays small
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
		connect.WithReadMaxBytes(limits.RequestBytes),
	}, opts...), connect.WithInterceptors(errorCodes{v})) // the last one is the innermost
	return dbcontrollerv1connect.NewDeploymentServiceHandler(v, opts...)
}

// store returns the deployment that a request names.
func (v *Service) store(name string) (*deployment.Store, error) {
	if name == "" || name == v.own.Name() {
		return v.own, nil
	}
	return v.own.Other(name)
}

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

// starting says why this process has not prepared a version of a deployment, or without one the
// deployment; "": it has, or it is another process's.
func (v *Service) starting(s *deployment.Store, version string) string {
	if v.cfg.Starting == nil || s.Name() != v.own.Name() {
		return ""
	}
	if why := v.cfg.Starting(version); why != "" {
		return "this controller is starting: " + why + ": ask again"
	}
	return ""
}

// waits are what this process waits for, where a status is of its own deployment.
func (v *Service) waits(s *deployment.Store) []upgradestate.Blocker {
	if v.cfg.Waits == nil || s.Name() != v.own.Name() {
		return nil
	}
	return v.cfg.Waits()
}

// answer completes a record to a status.
func (v *Service) answer(ctx context.Context, s *deployment.Store, d upgradestate.Deployment) (*connect.Response[pb.Deployment], error) {
	now, err := s.State(ctx, d)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(v.status(s, now)), nil
}

// status is what this process says of a deployment's state.
func (v *Service) status(s *deployment.Store, now deployment.State) *pb.Deployment {
	p := Process{Waits: v.waits(s)}
	if v.cfg.RollbackLacks != nil && s.Name() == v.own.Name() {
		p.Lacks = v.cfg.RollbackLacks(now.Record)
	}
	if v.cfg.ViewsLeft != nil && s.Name() == v.own.Name() {
		p.Views = v.cfg.ViewsLeft(now.Record)
	}
	if v.cfg.Encryption != nil && s.Name() == v.own.Name() {
		p.Encryption = v.cfg.Encryption()
	}
	return Status(now, p)
}

const (
	defaultWait = 30 * time.Second
	longestWait = 5 * time.Minute
)

// await returns the record, newer than a revision if it becomes so in time.
func (v *Service) await(ctx context.Context, s *deployment.Store, revision int64, timeoutMs int32) (upgradestate.Deployment, error) {
	timeout, err := between("timeout_ms", timeoutMs, defaultWait, 0, longestWait)
	if err != nil {
		return upgradestate.Deployment{}, err
	}
	d, err := s.Get(ctx)
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
	return d, nil
}

// untilStopped ends ctx with errStopping when the controller stops.
func (v *Service) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-v.stopping:
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
		res.Deployments = append(res.Deployments, recordStatus(d))
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

func (v *Service) ListParked(ctx context.Context, req *connect.Request[pb.ListParkedRequest]) (*connect.Response[pb.ListParkedResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	list, err := s.ParkedNow(ctx)
	if err != nil {
		return nil, err
	}
	res := &pb.ListParkedResponse{}
	for _, p := range list {
		res.Parked = append(res.Parked, parkedStatus(p))
	}
	return connect.NewResponse(res), nil
}
