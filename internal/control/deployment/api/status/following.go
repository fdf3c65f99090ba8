package status

import (
	"slices"

	"google.golang.org/protobuf/proto"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// followingStatus returns the data updates that begin by themselves: those that the answering process
// knows, and those of which a pass has begun.
func followingStatus(r upgradestate.Deployment, known []*pb.Following) []*pb.Following {
	var out []*pb.Following
	for _, f := range known {
		out = append(out, proto.CloneOf(f)) // copy, because the next answer has another record
	}
	for _, f := range r.Following {
		i := slices.IndexFunc(out, func(o *pb.Following) bool { return o.GetTask() == f.Task })
		if i < 0 {
			i = len(out)
			out = append(out, &pb.Following{Task: f.Task, Deployment: f.Deployment, Version: f.Version})
		}
		o := out[i]
		// A task may be configured for another deployment since.
		if o.GetDeployment() != f.Deployment {
			continue
		}
		o.SwitchId, o.Passes, o.Changed, o.Failed = f.Switch, clamp(int64(f.Passes)), f.Changed, f.Failed
		o.Outcome, o.Again = f.Outcome, f.Again
		o.Running = r.Update != nil && r.Update.ID == f.Run
	}
	return out
}
