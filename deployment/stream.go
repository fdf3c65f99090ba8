package deployment

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"dbcontroller/coord"
	pb "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/limits"
)

// streamEvery is the least time between two messages of WatchDeployment.
const streamEvery = 500 * time.Millisecond

// waitsEvery is how often a stream asks for what its own process waits for.
const waitsEvery = 2 * time.Second

// WatchDeployment implements the API.
func (v *Service) WatchDeployment(ctx context.Context, req *connect.Request[pb.WatchDeploymentRequest], stream *connect.ServerStream[pb.Deployment]) error {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return err
	}
	if _, err := s.Get(ctx); err != nil {
		return err
	}
	if v.watches.Add(1) > limits.Watches {
		v.watches.Add(-1)
		return &FullError{"watches at this controller", limits.Watches, "ask another one, or ask with GetDeployment and wait_revision"}
	}
	defer v.watches.Add(-1)
	ctx, cancel := v.untilStopped(ctx)
	defer cancel()
	g, watching := errgroup.WithContext(ctx)
	f := &feed{store: s, waits: func() []string { return v.waits(s) }, warnings: v.warnings(s), news: make(chan struct{}, 1)}
	for i, prefix := range f.prefixes() {
		g.Go(func() error {
			s.follow(watching, prefix, func(kvs map[string]coord.KV) { f.set(i, clone(kvs)) })
			return nil
		})
	}
	g.Go(func() error { return f.send(watching, stream.Send) })
	err = g.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// feed is the state of a deployment as watches of its parts bring it.
type feed struct {
	store    *Store
	waits    func() []string // of this process
	warnings []string        // of this process
	news     chan struct{}

	mu    sync.Mutex
	parts [feedParts]map[string]coord.KV // as in prefixes; nil until listed
}

const (
	partRecord = iota
	partProgress
	partServers
	partControllers
	partParked
	partOutlook
	partUpdating
	feedParts
)

func (f *feed) prefixes() [feedParts]string {
	return [feedParts]string{
		partRecord: f.store.recordKey(), partProgress: f.store.key("progress", ""),
		partServers: f.store.key("servers", ""), partControllers: f.store.key("controllers", ""),
		partParked: f.store.key("parked", ""), partOutlook: f.store.outlookKey(),
		partUpdating: f.store.updatingPrefix(),
	}
}

func (f *feed) set(part int, kvs map[string]coord.KV) {
	f.mu.Lock()
	f.parts[part] = kvs
	f.mu.Unlock()
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// status is nil until every part was listed, and while the record is gone.
func (f *feed) status() (*pb.Deployment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, kvs := range f.parts {
		if kvs == nil {
			return nil, nil
		}
	}
	kv, ok := f.parts[partRecord][f.store.recordKey()]
	if !ok {
		return nil, nil
	}
	state := State{Waits: f.waits(), Warnings: f.warnings}
	var err error
	if state.Record, err = decodeRecord(kv); err != nil {
		return nil, err
	}
	if state.Progress, err = decodeProgress(values(f.parts[partProgress])); err != nil {
		return nil, err
	}
	if state.Servers, err = decodeServers(values(f.parts[partServers])); err != nil {
		return nil, err
	}
	state.Controllers = controllerIDs(values(f.parts[partControllers]))
	if state.Updating, err = decodeUpdating(values(f.parts[partUpdating])); err != nil {
		return nil, err
	}
	if dir, ok := backDirection(state.Record); ok {
		parked, err := decodeParked(f.store.parkedPrefix(dir), values(f.parts[partParked]))
		if err != nil {
			return nil, err
		}
		state.Back = countParked(parked)
	}
	if kv, ok := f.parts[partOutlook][f.store.outlookKey()]; ok {
		o, err := decodeOutlook(kv)
		if err != nil {
			return nil, err
		}
		state.Outlook = outlookStatus(o, state.Record)
	}
	return Status(state), nil
}

// send sends what is new, not more often than streamEvery.
func (f *feed) send(ctx context.Context, send func(*pb.Deployment) error) error {
	var last *pb.Deployment
	pace := time.NewTimer(0)
	defer pace.Stop()
	waits := time.NewTicker(waitsEvery)
	defer waits.Stop()
	for {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for {
			select {
			case <-f.news:
			case <-waits.C: // what the process waits for is in no watch
			case <-ctx.Done():
				return ctx.Err()
			}
			d, err := f.status()
			if err != nil {
				return err
			}
			if d != nil && !proto.Equal(d, last) {
				if err := send(d); err != nil {
					return err
				}
				last = d
				break
			}
		}
		pace.Reset(streamEvery)
	}
}

// GetLocation implements the API.
func (v *Service) GetLocation(ctx context.Context, req *connect.Request[pb.GetLocationRequest]) (*connect.Response[pb.Location], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	d, err := v.await(ctx, s, req.Msg.WaitRevision, req.Msg.TimeoutMs)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(locationOf(d)), nil
}
