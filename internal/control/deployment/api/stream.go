package api

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/upgradestate"
)

// streamEvery is the least time between two messages of WatchDeployment.
const streamEvery = 500 * time.Millisecond

// waitsEvery is how often a stream checks the conditions that its own process needs.
const waitsEvery = 2 * time.Second

// WatchDeployment implements the API.
func (v *Service) WatchDeployment(ctx context.Context, req *connect.Request[pb.WatchDeploymentRequest], stream *connect.ServerStream[pb.Deployment]) error {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return err
	}
	// Report a missing deployment at once, instead of waiting for it.
	if _, err := s.Get(ctx); err != nil {
		return err
	}
	most := int64(limits.Watches)
	// Keep a share for operators, so that dashboards cannot lock them out.
	if c, ok := access.CallerOf(ctx); ok && !c.May(access.Operator) {
		most -= limits.Watches / limits.OperatorShare
	}
	// Add first and check then, so that concurrent calls cannot both take the last place.
	if v.watches.Add(1) > most {
		v.watches.Add(-1)
		return &FullError{"watches at this controller", int(most), "ask another controller, or use GetDeployment with wait_revision"}
	}
	defer v.watches.Add(-1)
	ctx, cancel := v.untilStopped(ctx)
	defer cancel()
	g, watching := errgroup.WithContext(ctx)
	feed := s.Feed()
	g.Go(func() error { return feed.Run(watching) })
	g.Go(func() error { return v.send(watching, s, feed, stream.Send) })
	err = g.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// send sends each new status, at most one per streamEvery.
func (v *Service) send(ctx context.Context, s *deployment.Store, feed *deployment.Feed, send func(*pb.Deployment) error) error {
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
			case <-feed.Changed():
			case <-waits.C: // no watch covers this process's own waits
			case <-ctx.Done():
				return ctx.Err()
			}
			// Build the state from the watches, without reading the store again.
			now, ok, err := feed.State()
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			// Many changes do not show in a status; do not send equal ones.
			if d := v.status(s, now); !proto.Equal(d, last) {
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

// GetLocation implements the API. A call with a client id also shows that the client is alive.
func (v *Service) GetLocation(ctx context.Context, req *connect.Request[pb.GetLocationRequest]) (*connect.Response[pb.Location], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	var d upgradestate.Deployment
	await := func() (err error) {
		d, err = v.await(ctx, s, req.Msg.WaitRevision, req.Msg.TimeoutMs)
		return err
	}
	// A call without an id reads the location only.
	switch id := req.Msg.ClientId; {
	case id == "":
		err = await()
	case !clientID.MatchString(id):
		err = invalid("client_id", id, "the id that RegisterClient returned, or none")
	default:
		err = v.whileCalled(ctx, s, id, await)
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(status.Location(d)), nil
}
