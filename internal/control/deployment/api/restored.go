package api

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/upgradestate"
)

// DecideRestored implements the API. After a database was restored from a backup, an operator
// decides which data counts: follow uses the restored data, keep the other version's.
func (v *Service) DecideRestored(ctx context.Context, req *connect.Request[pb.DecideRestoredRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	if req.Msg.Follow == req.Msg.Keep {
		return nil, invalid("follow", fmt.Sprint(req.Msg.Follow), "either it or keep")
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	_, found := upgradestate.WasRestored(d)
	other, followed := upgradestate.Followed(d)
	if u := d.Upgrade; found && u != nil && u.Snapshot { // decided, and already running
		found = false
	}
	if found && req.Msg.Keep && !followed {
		return nil, refuse("restored: no other version follows " + d.CurrentVersion + ", so there are no other data to keep")
	}
	var ev upgradestate.Event = upgradestate.FollowRestored{Version: d.CurrentVersion, Epoch: d.Epoch}
	// Both decisions are transitions of the record; keep is a switch to a snapshot.
	if found && req.Msg.Keep {
		if ev, err = v.keepOther(ctx, s, d, other.TargetVersion); err != nil {
			return nil, err
		}
	}
	// Without a decision to make there is nothing to confirm.
	if found {
		if err := v.confirmsDecision(ctx, s, d, req.Msg, other.TargetVersion); err != nil {
			return nil, err
		}
	}
	res, err := v.change(ctx, s, req.Msg, ev, func(before, after upgradestate.Deployment) []string {
		return decisionEffects(before, after, other.TargetVersion)
	}, func(d upgradestate.Deployment) string {
		return fmt.Sprintf("no decision about the database of %s is pending", d.CurrentVersion)
	})
	return asking(res, err, req.Msg, d, d.CurrentVersion)
}

// keepOther returns the switch to the other version as it is. It ends a running upgrade.
func (v *Service) keepOther(ctx context.Context, s *deployment.Store, d upgradestate.Deployment, to string) (upgradestate.Event, error) {
	hash, err := v.transformHash(s, d, to, true)
	if err != nil {
		return nil, err
	}
	servers, err := s.Servers(ctx)
	if err != nil {
		return nil, err
	}
	// A version that servers cannot serve must not become current.
	if err := upgradestate.CheckServers(servers, to); err != nil {
		return nil, err
	}
	if err := v.keysLack(ctx, d, to); err != nil {
		return nil, err
	}
	begin := upgradestate.Begin{ID: randomID("u"), TargetVersion: to, TransformHash: hash, Snapshot: true}
	if d.Upgrade == nil {
		return begin, nil
	}
	if d.Upgrade.State == upgradestate.Switching {
		return nil, refuse(fmt.Sprintf("restored: upgrade %s to %s is switching: abort it, or wait until it ends", d.Upgrade.ID, d.Upgrade.TargetVersion))
	}
	// In one transition, so that nothing else can begin between the abort and the switch.
	return upgradestate.Together{Events: []upgradestate.Event{upgradestate.Abort{ID: d.Upgrade.ID, Reason: "the data of " + to + " are kept as they are"}, begin}}, nil
}

// confirmsDecision refuses a decision that is not confirmed for this database, and describes what
// it gives up. A dry run needs no confirmation.
func (v *Service) confirmsDecision(ctx context.Context, s *deployment.Store, d upgradestate.Deployment, req *pb.DecideRestoredRequest, other string) error {
	want, lacks := Confirmation(d, d.CurrentVersion)
	switch {
	case req.Confirm == want || req.Confirm == "" && req.DryRun:
		return nil
	case req.Confirm != "":
		return refuse("restored: " + unconfirmed(d, d.CurrentVersion, req.Confirm, "decide which data count"))
	}
	gives := ""
	if other != "" {
		if err := v.cannot("restored", s, v.cfg.Loss != nil); err != nil {
			return err
		}
		// Show the effect in numbers before anybody confirms it.
		r, err := v.estimate(ctx, func(int64) {})
		if err != nil {
			return err
		}
		gives = fmt.Sprintf("of %d compared groups, %d are only in %s, %d differ, and %d are only in %s: ", r.Compared, r.Created, d.CurrentVersion, r.Changed, r.Deleted, other)
		if req.Follow {
			gives += fmt.Sprintf("--follow drops the last two, as they are in %s", other)
		} else {
			gives += fmt.Sprintf("--keep drops the first two, as they are in %s", d.CurrentVersion)
		}
	}
	if lacks != "" {
		lacks = "; " + lacks
	}
	return refuse(fmt.Sprintf("restored: nothing is changed yet: %s%s; to do it, give --confirm %s", gives, lacks, want))
}

func decisionEffects(before, after upgradestate.Deployment, other string) []string {
	_, was := upgradestate.WasRestored(before)
	_, is := upgradestate.WasRestored(after)
	u := after.Upgrade
	switch {
	case was && !is && other == "":
		return []string{fmt.Sprintf("continue with the restored state of %s", before.CurrentVersion)}
	case was && !is && before.Upgrade == nil && before.LastSwitch != nil && before.LastSwitch.From == other:
		return []string{fmt.Sprintf("continue with the restored state of %s; %s stays as it is until an upgrade to it begins and rebuilds it", before.CurrentVersion, other)}
	case was && !is:
		return []string{fmt.Sprintf("continue with the restored state of %s, and rebuild all of %s from it", before.CurrentVersion, other)}
	case was && u != nil && u.Snapshot && (before.Upgrade == nil || before.Upgrade.ID != u.ID):
		return []string{fmt.Sprintf("switch to %s as it is; other data of %s stay there and are not served", other, before.CurrentVersion)}
	}
	return nil
}
