package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/upgradestate"
)

// Initial decides how a new deployment begins.
type Initial interface {
	// InitialVersion returns the first version, for a request that names none.
	InitialVersion(ctx context.Context) (string, error)
	// Configured returns the versions that may be the first, and the ring size.
	Configured() (versions []string, ringSize int)
}

const defaultRingSize = 16

// CreateDeployment implements the API. It returns the existing deployment if there is one.
func (v *Service) CreateDeployment(ctx context.Context, req *connect.Request[pb.CreateDeploymentRequest]) (*connect.Response[pb.CreateDeploymentResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	// Check the bounds before anything is stored.
	if ring := int64(req.Msg.RingSize); ring < 0 || ring > limits.RingSize {
		return nil, invalid("ring_size", itoa(ring), fmt.Sprintf("a number from 1 to %d, or 0 for the default", limits.RingSize))
	}
	if v := req.Msg.Version; len(v) > limits.VersionBytes {
		return nil, invalid("version", v[:20]+"...", fmt.Sprintf("at most %d bytes", limits.VersionBytes))
	}
	d, err := s.Get(ctx)
	created := errors.Is(err, deployment.ErrNotFound)
	if created {
		d, err = v.begin(ctx, s, req.Msg)
	}
	if err != nil {
		return nil, err
	}
	// The ring cannot change later, because shards own parts of the key space.
	if req.Msg.RingSize != 0 && d.RingSize != int(req.Msg.RingSize) {
		return nil, refuse("create: " + s.Name() + " has a ring of " + itoa(int64(d.RingSize)) + " already, and it cannot change to " + itoa(int64(req.Msg.RingSize)))
	}
	shown := status.OfRecord(d)
	if created {
		shown.Effects = []string{fmt.Sprintf("create %s at %s, with a ring of %d", s.Name(), d.CurrentVersion, d.RingSize)}
	} else {
		shown.Effects = []string{nothing(fmt.Sprintf("%s exists already, at %s", s.Name(), d.CurrentVersion))}
	}
	return connect.NewResponse(&pb.CreateDeploymentResponse{Deployment: shown, Created: created}), nil
}

// begin creates the requested deployment. In a dry run it returns the record without storing it.
func (v *Service) begin(ctx context.Context, s *deployment.Store, req *pb.CreateDeploymentRequest) (upgradestate.Deployment, error) {
	version, ring := req.Version, int(req.RingSize)
	// The configuration knows this process's own deployment better than the caller.
	if v.cfg.Initial != nil && s.Name() == v.own.Name() {
		versions, size := v.cfg.Initial.Configured()
		switch {
		case version != "" && !slices.Contains(versions, version):
			return upgradestate.Deployment{}, invalid("version", version, "a version that is configured here: "+strings.Join(versions, ", "))
		case ring != 0 && ring != size:
			return upgradestate.Deployment{}, invalid("ring_size", itoa(int64(ring)), "the name in the configuration, "+itoa(int64(size)))
		}
		ring = size
		if version == "" {
			var err error
			if version, err = v.cfg.Initial.InitialVersion(ctx); err != nil {
				return upgradestate.Deployment{}, err
			}
		}
	}
	if version == "" {
		return upgradestate.Deployment{}, invalid("version", "", "the current version, such as v1")
	}
	if ring == 0 {
		ring = defaultRingSize
	}
	if req.DryRun {
		d := upgradestate.New(s.Name(), version, ring)
		if err := upgradestate.Validate(d); err != nil {
			return d, &upgradestate.RefusedError{Reason: "create: " + err.Error()}
		}
		return d, nil
	}
	// After the dry run, which stores nothing.
	if err := v.roomForDeployment(ctx); err != nil {
		return upgradestate.Deployment{}, err
	}
	return s.Create(ctx, version, ring)
}

// roomForDeployment limits the number of deployments, because a list reads all of them. Concurrent
// calls may exceed the limit by their number.
func (v *Service) roomForDeployment(ctx context.Context) error {
	n, err := v.own.Count(ctx)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if n >= limits.Deployments {
		return &FullError{"deployments", limits.Deployments, "use another etcd, or another prefix in it"}
	}
	return nil
}
