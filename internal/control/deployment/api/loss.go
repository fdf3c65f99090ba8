package api

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/upgradestate"
)

// mayLose refuses a rollback to a snapshot if nothing requires the loss, or nobody has accepted it.
// It leaves requests that the record refuses anyway to the record.
func (v *Service) mayLose(ctx context.Context, s *deployment.Store, d upgradestate.Deployment, req *pb.BeginUpgradeRequest) error {
	last := d.LastSwitch
	switch {
	case !req.ToSnapshot || d.Upgrade != nil || last == nil || last.From != req.TargetVersion || upgradestate.Retired(d, last.From):
		return nil
	case upgradestate.ReverseSynced(d):
		return refuse(fmt.Sprintf("begin-upgrade: %s follows %s: use 'rollback' without --to-snapshot, so that nothing is lost; if the database of %s is lost, see docs/break-glass.md", last.From, d.CurrentVersion, d.CurrentVersion))
	case req.AcceptLoss && confirmsLoss(d, req):
		return nil
	case req.AcceptLoss:
		would := fmt.Sprintf("lose the writes to %s since the switch", d.CurrentVersion)
		return refuse("begin-upgrade: " + unconfirmed(d, d.CurrentVersion, req.Confirm, would))
	}
	if err := v.cannot("begin-upgrade", s, v.cfg.Loss != nil); err != nil {
		return err
	}
	// Show the loss in numbers before anybody accepts it.
	report, err := v.estimate(ctx, func(int64) {})
	if err != nil {
		return err
	}
	want, lacks := Confirmation(d, d.CurrentVersion)
	if lacks != "" {
		lacks = "; " + lacks
	}
	return refuse(fmt.Sprintf("begin-upgrade: the rollback to %s as the switch left it loses all later writes: %s%s; to accept that, give --accept-loss --confirm %s",
		last.From, lossText(report), lacks, want))
}

// confirmsLoss reports whether a request is confirmed for this database. A dry run may omit the
// confirmation.
func confirmsLoss(d upgradestate.Deployment, req *pb.BeginUpgradeRequest) bool {
	want, _ := Confirmation(d, d.CurrentVersion)
	return req.Confirm == want || req.Confirm == "" && req.DryRun
}

// lossText returns a report as one line.
func lossText(r *pb.LossReport) string {
	text := fmt.Sprintf("%d created, %d changed, %d deleted of %d groups compared", r.Created, r.Changed, r.Deleted, r.Compared)
	if len(r.Examples) > 0 {
		text += ", such as " + strings.Join(r.Examples[:min(3, len(r.Examples))], ", ")
	}
	return text
}

// estimate counts the loss, for one caller at a time.
func (v *Service) estimate(ctx context.Context, progress func(compared int64)) (*pb.LossReport, error) {
	// An estimate reads whole collections, so run one at a time.
	if !v.estimating.TryLock() {
		return nil, refuse("estimate loss: an estimate runs already: wait until it ends")
	}
	defer v.estimating.Unlock()
	ctx, cancel := v.untilStopped(ctx)
	defer cancel()
	report, err := v.cfg.Loss.EstimateLoss(ctx, progress)
	// The controller stops or the caller left; the hook's error would only be a symptom.
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, verbError("estimate loss", err)
	}
	return report, nil
}

func (v *Service) EstimateLoss(ctx context.Context, req *connect.Request[pb.EstimateLossRequest], stream *connect.ServerStream[pb.EstimateLossResponse]) error {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return err
	}
	d, err := s.Get(ctx)
	if err != nil {
		return err
	}
	_, restored := upgradestate.WasRestored(d)
	_, followed := upgradestate.Followed(d)
	// Only the version before the latest switch can be the snapshot. After a restore the data of the
	// version that follows may be kept in the same way.
	switch last := d.LastSwitch; {
	case restored && followed:
	case last == nil:
		return refuse("estimate loss: no switch was made yet, so there is no snapshot to return to")
	case last.Back:
		return refuse(fmt.Sprintf("estimate loss: %s went back to %s already", last.ID, last.To))
	case upgradestate.Retired(d, last.From):
		return refuse(fmt.Sprintf("estimate loss: %s was retired, so no upgrade can return to it", last.From))
	}
	if err := v.cannot("estimate loss", s, v.cfg.Loss != nil); err != nil {
		return err
	}
	var report *pb.LossReport
	// Report the number of compared groups, so that a caller sees it move.
	err = v.reported(ctx, func(w *pb.WorkProgress) error {
		return stream.Send(&pb.EstimateLossResponse{Compared: w.Done, Work: w})
	}, func(ctx context.Context, say func(Work)) (err error) {
		report, err = v.estimate(ctx, func(compared int64) { say(Work{Doing: "counts the changes that would be lost", Done: compared}) })
		return err
	})
	if err != nil {
		return err
	}
	// The report contains the text that confirms the loss.
	report.Confirm, report.ConfirmLacks = Confirmation(d, d.CurrentVersion)
	return stream.Send(&pb.EstimateLossResponse{Compared: report.Compared, Report: report})
}

// Confirmation returns the text that confirms an operation on a version's database. The text names
// the deployment, the cluster and the database. A text for staging therefore does not fit
// production, where deployments and databases often have equal names. lacks explains what is
// unknown, and how that weakens the confirmation. It is usually empty.
func Confirmation(d upgradestate.Deployment, version string) (confirm, lacks string) {
	ns, ok := d.Namespace(version)
	// A retired version's database may still be kept, and needs a confirmation too.
	if kept, is := upgradestate.KeptNamespace(d, version); !ok && is {
		ns = kept.Namespace
	}
	switch id := ns.Identity; {
	case id.Cluster != "":
		return d.Name + "/" + id.Cluster + "/" + ns.Location, ""
	case id.Database != "":
		return d.Name + "/database/" + id.Database + "/" + ns.Location,
			fmt.Sprintf("the cluster of %s is unknown, so only the mark in the database identifies it; a copy of the database elsewhere has the same mark", version)
	}
	return d.Name + "/" + ns.Location,
		fmt.Sprintf("an older binary did not record the cluster of %s, so only deployment and database identify it; another cluster may have the same names", version)
}

// unconfirmed returns the refusal of an operation with a missing or wrong confirmation. It names
// the right one; would describes the operation.
func unconfirmed(d upgradestate.Deployment, version, given, would string) string {
	want, lacks := Confirmation(d, version)
	what := "this is final"
	if given != "" {
		what = fmt.Sprintf("%q does not confirm it for %s of this deployment", given, version)
	}
	if lacks != "" {
		lacks = "; " + lacks
	}
	return fmt.Sprintf("%s: it would %s%s; to do that, give --confirm %s", what, would, lacks, want)
}

// asking adds to the answer of a dry run what confirms the call, unless it would change nothing.
func asking(res *connect.Response[pb.Deployment], err error, r request, d upgradestate.Deployment, version string) (*connect.Response[pb.Deployment], error) {
	if err == nil && r.GetDryRun() && !strings.HasPrefix(res.Msg.Effects[0], nothing("")) {
		res.Msg.Confirm, res.Msg.ConfirmLacks = Confirmation(d, version)
	}
	return res, err
}
