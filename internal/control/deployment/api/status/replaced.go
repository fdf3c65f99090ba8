package status

import (
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/upgradestate"
)

// replacedStatus describes collections that applications have replaced, until the comparison of
// their copies is complete. It ignores the progress of an earlier copy.
func replacedStatus(s deployment.State) *pb.Replaced {
	x := upgradestate.OpenAnew(s.Record)
	if x == nil {
		return nil
	}
	out := &pb.Replaced{Version: x.Version, To: x.To}
	ns, _ := s.Record.Namespace(x.Version)
	for _, k := range x.Kinds {
		now, _ := ns.Kind(k.Kind)
		out.Kinds = append(out.Kinds, &pb.ReplacedKind{Kind: k.Kind, Was: k.Was, Id: now.ID, At: k.At})
	}
	images, _ := upgradestate.ImagesOf(s.Record, x.To)
	for _, p := range s.Progress {
		// Only progress of the current copy counts.
		if p.Epoch != s.Record.Epoch || p.Generation != images.Generation {
			continue
		}
		out.ReportingShards++
		out.Copied += p.Copied
		out.Total += p.Total
		if p.Agreed() {
			out.ComparedShards++
		}
	}
	return out
}
