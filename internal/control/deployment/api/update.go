package api

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// BeginUpdate implements the API.
func (v *Service) BeginUpdate(ctx context.Context, req *connect.Request[pb.BeginUpdateRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	if req.Msg.Task == "" {
		return nil, invalid("task", "", "the name of a data update from ListUpdates")
	}
	if err := v.cannot("update", s, v.cfg.Updates != nil); err != nil {
		return nil, err
	}
	u, err := v.cfg.Updates.Task(req.Msg.Task)
	if err != nil {
		return nil, verbError("update", err)
	}
	// The id is new for each call; the record ignores a repeated begin.
	u.ID = randomID("d")
	return v.change(ctx, s, req.Msg, upgradestate.BeginUpdate{Update: u}, func(before, after upgradestate.Deployment) []string {
		if before.Update != nil {
			return nil
		}
		return []string{fmt.Sprintf("run data update %s once over all %s of %s; no upgrade switches meanwhile", u.Name, u.Kind, u.Version)}
	}, func(upgradestate.Deployment) string {
		return fmt.Sprintf("data update %s runs already", u.Name)
	})
}

// CancelUpdate implements the API.
func (v *Service) CancelUpdate(ctx context.Context, req *connect.Request[pb.CancelUpdateRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	reason, err := checkReason(req.Msg.Reason)
	if err != nil {
		return nil, err
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	id := req.Msg.UpdateId
	// Without an id the caller means the running update; read which one that is.
	if id == "" && d.Update != nil {
		id = d.Update.ID // the update that the caller saw
	}
	if id == "" {
		return nil, refuse("cancel update: no data update runs")
	}
	// A finished update cannot be cancelled, and its end is not an error.
	return v.change(ctx, s, req.Msg, upgradestate.CancelUpdate{ID: id, Reason: reason}, func(before, after upgradestate.Deployment) []string {
		u := before.Update
		if u == nil || after.Update != nil {
			return nil
		}
		return []string{fmt.Sprintf("end data update %s after %d of %d shards; its changes stay", u.Name, len(u.Done), before.RingSize)}
	}, func(upgradestate.Deployment) string {
		return fmt.Sprintf("data update %s does not run", id)
	})
}
