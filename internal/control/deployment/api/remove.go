package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/engine/rollout"
)

// RemoveDeployment implements the API. A controller answers it, so it can be only about another
// deployment than its own. It has no access to that one's databases.
func (v *Service) RemoveDeployment(ctx context.Context, req *connect.Request[pb.RemoveDeploymentRequest]) (*connect.Response[pb.Deployment], error) {
	m := req.Msg
	if m.Name == "" {
		return nil, invalid("name", "", "the deployment to remove")
	}
	s, err := v.store(m.Name)
	if err != nil {
		return nil, err
	}
	if s == v.own {
		return nil, refuse("remove: this controller works on " + s.Name() + ": stop its processes, and run 'dbcontroller remove --config FILE' with its configuration")
	}
	by, err := requester(ctx, m)
	if err != nil {
		return nil, err
	}
	r, begun, err := s.Removal(ctx)
	if err != nil {
		return nil, err
	}
	if err := v.mayRemove(ctx, s, r); err != nil {
		return nil, err
	}
	shown := status.OfRecord(r.Record)
	shown.Effects = []string{fmt.Sprintf("delete all keys of %s in etcd, with its history; it has no databases", s.Name())}
	switch {
	case m.Confirm != s.Name() && (m.Confirm != "" || !m.DryRun):
		return nil, refuse(fmt.Sprintf("remove: this is final: it would %s; to do that, give the name again as confirm, not %q", shown.Effects[0], shorten(m.Confirm)))
	case m.DryRun:
		shown.Confirm = s.Name()
		return connect.NewResponse(shown), nil
	case !begun:
		r.At, r.By = time.Now().UTC().Format(time.RFC3339), by
		r, err = s.BeginRemoval(ctx, r)
	}
	if err == nil && !r.Acting {
		// From here on, nobody puts the record back.
		r.Acting = true
		r, err = s.PutRemoval(ctx, r)
	}
	if err == nil {
		err = s.Erase(ctx, r)
	}
	if err != nil {
		return nil, aliveRefused(err)
	}
	return connect.NewResponse(shown), nil
}

// mayRemove refuses a deployment that is in use, or has data in databases.
func (v *Service) mayRemove(ctx context.Context, s *deployment.Store, r deployment.Removal) error {
	if n := len(r.Record.Namespaces) + len(r.Record.Kept) + len(r.Record.Retired); n > 0 || len(r.Kinds) > 0 {
		return refuse("remove: controllers have worked on " + s.Name() + ", so its databases hold data of theirs: stop its processes, and run 'dbcontroller remove --config FILE' with its configuration")
	}
	all, _, err := s.Rollouts().All(ctx)
	if err != nil {
		return err
	}
	for _, ro := range all {
		if _, _, has := ro.Item(s.Name()); has && ro.State != rollout.Done && ro.State != rollout.RolledBack {
			return refuse(fmt.Sprintf("remove: rollout %s upgrades it: wait until the rollout ends, or forget it", ro.Name))
		}
	}
	return aliveRefused(s.Idle(ctx))
}

// aliveRefused makes a refusal of an AliveError.
func aliveRefused(err error) error {
	var alive *deployment.AliveError
	if errors.As(err, &alive) {
		return refuse("remove: " + alive.Error())
	}
	return err
}
