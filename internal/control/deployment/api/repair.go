package api

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// Repair asks the controllers to compare again and to correct the differences that Verify found.
func (v *Service) Repair(ctx context.Context, req *connect.Request[pb.RepairRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	// Repair needs a difference, or it would compare everything for nothing.
	x := upgradestate.OpenDifferent(d)
	if x == nil {
		return nil, refuse("repair: no unresolved difference is known: run 'verify'")
	}
	return v.change(ctx, s, req.Msg, upgradestate.Repair{Version: x.Version, ID: randomID("r")}, func(before, after upgradestate.Deployment) []string {
		was, is := upgradestate.OpenDifferent(before), upgradestate.OpenDifferent(after)
		if was == nil || is == nil || was.Repair == is.Repair {
			return nil
		}
		return []string{fmt.Sprintf("compare all of %s with %s, and correct the differences", is.Version, after.CurrentVersion)}
	}, func(upgradestate.Deployment) string { return "a repair runs already" })
}
