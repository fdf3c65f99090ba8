package api

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/upgradestate"
)

// BeginUpgrade implements the API. It checks facts outside the record: transformations,
// servers, encryption keys, and the acceptance of losses.
func (v *Service) BeginUpgrade(ctx context.Context, req *connect.Request[pb.BeginUpgradeRequest]) (*connect.Response[pb.Deployment], error) {
	return v.beginUpgrade(ctx, req.Msg, beginning{id: randomID("u"), policy: v.policy})
}

// beginning is the part of a begin that no request has.
type beginning struct {
	id         string
	policy     func(upgradestate.Deployment, *pb.SwitchPolicy) upgradestate.Policy
	conditions []coord.Condition // deployment.ErrOwnership means that one does not hold
}

// beginUpgrade begins an upgrade if the conditions hold.
func (v *Service) beginUpgrade(ctx context.Context, m *pb.BeginUpgradeRequest, b beginning) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(m.Name)
	if err != nil {
		return nil, err
	}
	target := m.TargetVersion
	switch {
	case target == "":
		return nil, invalid("target_version", "", "the version to move to, such as v2")
	case m.TotalShardsCount < 0:
		return nil, invalid("total_shards_count", itoa(int64(m.TotalShardsCount)), "the ring size, or 0 to leave it out")
	case m.AcceptLoss && !m.ToSnapshot:
		return nil, invalid("accept_loss", "true", "to_snapshot together with it")
	case m.Confirm != "" && !m.AcceptLoss:
		return nil, invalid("confirm", m.Confirm, "accept_loss together with it")
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	if !m.ToSnapshot {
		d = v.awaitFollowing(ctx, s, d, target)
	}
	hash, err := v.transformHash(s, d, target, m.ToSnapshot)
	if err != nil {
		return nil, err
	}
	// The version may only be missing because this controller is still starting.
	if !offered(d, target) && d.Upgrade == nil && d.CurrentVersion != target {
		if why := v.starting(s, target); why != "" {
			return nil, refusal.New(refusal.NotReady, oneLine("begin-upgrade: "+why))
		}
	}
	if d.Upgrade == nil {
		if !m.ToSnapshot && !offered(d, target) {
			hash = "" // no controller copies for it: the record refuses with the reason
		}
		servers, err := s.Servers(ctx)
		if err != nil {
			return nil, err
		}
		// A switch would wait in vain for servers that cannot serve the target.
		if err := upgradestate.CheckServers(servers, target); err != nil {
			return nil, err
		}
		if err := v.keysLack(ctx, d, target); err != nil {
			return nil, err
		}
		if l := d.LastSwitch; v.cfg.KindsLack != nil && l != nil && l.From == target && !m.ToSnapshot && !upgradestate.Retired(d, target) {
			if lack := v.cfg.KindsLack(d, target); lack != "" {
				return nil, refuse("begin-upgrade: " + lack)
			}
		}
	}
	// A rollback needs the current database to drain from.
	if l := d.LastSwitch; d.Upgrade == nil && l != nil && l.From == target && v.cfg.ServedLost != nil && s == v.own {
		if err := v.cfg.ServedLost(ctx, d); err != nil {
			return nil, err
		}
	}
	if err := v.mayLose(ctx, s, d, m); err != nil {
		return nil, err
	}
	ev := upgradestate.Begin{
		ID: b.id, TargetVersion: target, TransformHash: hash, Shards: int(m.TotalShardsCount),
		Snapshot: m.ToSnapshot, Policy: b.policy(d, m.Policy),
	}
	// The effects name the parked groups that a rollback would lack.
	parked, err := s.ParkedBack(ctx, d)
	if err != nil {
		return nil, err
	}
	effects := func(before, after upgradestate.Deployment) []string { return beginEffects(before, after, parked) }
	return v.changeIf(ctx, s, m, ev, b.conditions, effects, func(d upgradestate.Deployment) string {
		return fmt.Sprintf("upgrade %s to %s runs already", d.Upgrade.ID, d.Upgrade.TargetVersion)
	})
}

// keysLack refuses an upgrade to records that some process could not decrypt. It leaves versions
// that the record refuses anyway to the record.
func (v *Service) keysLack(ctx context.Context, d upgradestate.Deployment, target string) error {
	if _, known := d.Namespace(target); !known || v.cfg.KeysLack == nil || upgradestate.Retired(d, target) {
		return nil
	}
	lack, err := v.cfg.KeysLack(ctx, target)
	if err != nil {
		return err
	}
	if lack != "" {
		return refuse("begin-upgrade: " + lack)
	}
	return nil
}

// beginEffects describes an upgrade that begins now. parked counts the parked groups on the way
// back.
func beginEffects(before, after upgradestate.Deployment, parked deployment.ParkedCount) []string {
	u := after.Upgrade
	if u == nil || before.Upgrade != nil {
		return nil
	}
	does := make([]string, 0, 5)
	// The new upgrade ends a running data update.
	if run := before.Update; run != nil && after.Update == nil {
		does = append(does, fmt.Sprintf("end data update %s, which restarts after the upgrade; until then both keys stay in use", run.Name))
	}
	// Going back needs other words than an upgrade.
	back := before.LastSwitch != nil && before.LastSwitch.From == u.TargetVersion
	switch {
	case u.Snapshot:
		does = append(does, fmt.Sprintf("return to %s as the switch left it, without the later writes to %s; these stay in %s and are not served",
			u.TargetVersion, before.CurrentVersion, before.CurrentVersion))
	case back && upgradestate.ReverseSynced(before):
		does = append(does, backEffects(u.TargetVersion, before.CurrentVersion, parked)...)
	default:
		does = append(does, fmt.Sprintf("copy %s to %s, compare it, and keep it in sync; clients continue with %s", before.CurrentVersion, u.TargetVersion, before.CurrentVersion))
	}
	does = append(does, policyEffects(u.Policy)...)
	// A paused deployment does not switch, whatever the policy is.
	if why := upgradestate.SwitchBlocker(after); before.Pace.Paused && why != "" {
		does = append(does, "wait for "+why)
	}
	return does
}

func backEffects(to, from string, parked deployment.ParkedCount) []string {
	if parked == (deployment.ParkedCount{}) {
		return []string{fmt.Sprintf("return to %s, which follows %s: nothing is lost, and it only waits for changes that are not applied yet", to, from)}
	}
	does := []string{fmt.Sprintf("return to %s, which follows %s: it waits for changes that are not applied yet", to, from)}
	if parked.Waived > 0 {
		does = append(does, fmt.Sprintf("leave out waived records (%s): %s lacks them or has an earlier state; %s keeps them", status.Records(parked.Waived), to, from))
	}
	if parked.Blocking > 0 {
		does = append(does, fmt.Sprintf("wait until nothing blocks: %s cannot be migrated back to %s: see 'parked', fix or waive them", status.Records(parked.Blocking), to))
	}
	return does
}

// offered reports whether a controller has announced the upgrade as possible.
func offered(d upgradestate.Deployment, target string) bool {
	return slices.ContainsFunc(d.Available, func(a upgradestate.Available) bool { return a.TargetVersion == target })
}

// unfollowed reports whether the target is the version before the latest switch, and no controller
// has announced yet that it follows.
func unfollowed(d upgradestate.Deployment, target string) bool {
	l := d.LastSwitch
	return l != nil && l.From == target && d.Upgrade == nil && !offered(d, target)
}

// followWithin is how long a rollback waits for that announcement.
const followWithin = 10 * time.Second

// awaitFollowing waits for controllers to announce, after a switch, that the previous version
// follows. Without it, a rollback right after a switch would be refused for nothing.
func (v *Service) awaitFollowing(ctx context.Context, s *deployment.Store, d upgradestate.Deployment, target string) upgradestate.Deployment {
	if s != v.own || v.cfg.Upgrades == nil || !unfollowed(d, target) || !d.LastSwitch.Synced() || upgradestate.Retired(d, target) {
		return d
	}
	if _, err := v.cfg.Upgrades.TransformHash(d.CurrentVersion, target); err != nil {
		return d // no controller with this configuration will announce it
	}
	ctx, stop := context.WithTimeout(ctx, followWithin)
	defer stop()
	for now := range s.Watch(ctx) {
		if d = now; !unfollowed(d, target) {
			break
		}
	}
	return d
}

// transformHash returns the hash of this controller's transformation for the upgrade. For versions
// that the record refuses anyway it returns none, and the record gives the reason.
func (v *Service) transformHash(s *deployment.Store, d upgradestate.Deployment, target string, snapshot bool) (string, error) {
	if _, known := d.Namespace(target); !known || target == d.CurrentVersion {
		return "", nil
	}
	if upgradestate.Retired(d, target) {
		return "", nil
	}
	if unfollowed(d, target) && !snapshot {
		return "", refuse(fmt.Sprintf("begin-upgrade: there is no rollback from %s to %s: %s; 'rollback --to-snapshot' returns without the later writes", d.CurrentVersion, target, status.NoReverseSync(d)))
	}
	if err := v.cannot("begin-upgrade", s, v.cfg.Upgrades != nil); err != nil {
		return "", err
	}
	hash, err := v.cfg.Upgrades.TransformHash(d.CurrentVersion, target)
	if err != nil {
		return "", refuse("begin-upgrade: " + err.Error())
	}
	return hash, nil
}

// longestReason bounds a reason in bytes, to keep the record small.
const longestReason = 500

// AbortUpgrade implements the API.
func (v *Service) AbortUpgrade(ctx context.Context, req *connect.Request[pb.AbortUpgradeRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	reason, err := checkReason(req.Msg.Reason)
	if err != nil {
		return nil, err
	}
	if reason == "" {
		reason = "requested by an operator"
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	id := req.Msg.UpgradeId
	// A switched upgrade cannot be aborted; say so instead of doing nothing.
	switch l := d.LastSwitch; {
	case d.Upgrade == nil && l != nil && (id == l.ID || id == ""):
		return nil, refuse(fmt.Sprintf("abort: no upgrade is running; %s switched to %s already, and abort cannot undo that", l.ID, l.To))
	case d.Upgrade == nil && id == "":
		return nil, refuse("abort: no upgrade is running")
	case d.Upgrade != nil && id != "" && id != d.Upgrade.ID:
		return nil, refuse(fmt.Sprintf("abort: %s is not running, %s is", id, d.Upgrade.ID))
	case d.Upgrade != nil:
		// Abort the upgrade that the caller saw, not another one that begins meanwhile.
		id = d.Upgrade.ID
	}
	return v.change(ctx, s, req.Msg, upgradestate.Abort{ID: id, Reason: reason}, abortEffects, func(d upgradestate.Deployment) string {
		if u := d.Upgrade; u != nil && u.ID == id {
			return fmt.Sprintf("upgrade %s is being aborted already (%s)", id, u.AbortReason)
		}
		return fmt.Sprintf("upgrade %s does not run", id)
	})
}

func abortEffects(before, after upgradestate.Deployment) []string {
	u := before.Upgrade
	switch {
	case u == nil || after.Upgrade != nil && after.Upgrade.Step == u.Step:
		return nil
	case after.Upgrade == nil:
		return []string{fmt.Sprintf("end upgrade %s to %s at once; %s stays the current version, and the copy is kept in sync", u.ID, u.TargetVersion, before.CurrentVersion)}
	default:
		return []string{fmt.Sprintf("end upgrade %s to %s: complete or remove the announced fences, then release the held writes to %s, which stays the current version", u.ID, u.TargetVersion, before.CurrentVersion)}
	}
}

// Verify implements the API. It compares once, for one caller at a time.
func (v *Service) Verify(ctx context.Context, req *connect.Request[pb.VerifyRequest], stream *connect.ServerStream[pb.VerifyResponse]) error {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return err
	}
	if _, err := s.Get(ctx); err != nil {
		return err
	}
	// Only a controller with the transformations can compare.
	if err := v.cannot("verify", s, v.cfg.Verifier != nil); err != nil {
		return err
	}
	if !v.verifying.TryLock() {
		return refuse("verify: a comparison runs already: wait until it ends")
	}
	defer v.verifying.Unlock()
	start := time.Now()
	var report verify.Report
	var now atomic.Pointer[verify.Report]
	now.Store(&verify.Report{})
	err = v.reported(ctx, func(w *pb.WorkProgress) error {
		r := now.Load()
		return stream.Send(&pb.VerifyResponse{Work: w, Progress: &pb.VerifyProgress{Compared: r.Compared, Mismatched: r.Mismatched}})
	}, func(ctx context.Context, say func(Work)) (err error) {
		report, err = v.cfg.Verifier.Verify(ctx, func(r verify.Report) {
			// Another goroutine sends the progress, so hand the report over.
			now.Store(&r)
			say(Work{Doing: r.Doing, Done: r.Scanned, Total: r.Total})
		})
		return err
	})
	if err != nil {
		return verbError("verify", err)
	}
	return stream.Send(&pb.VerifyResponse{
		Progress: &pb.VerifyProgress{Compared: report.Compared, Mismatched: report.Mismatched},
		Report: &pb.VerifyReport{
			// Differences in indexes and options count too.
			Equal: report.Mismatched == 0 && len(report.Shapes) == 0, Shapes: report.Shapes, RollbackLacks: report.Lacks, Compared: report.Compared, Mismatched: report.Mismatched,
			Examples: report.Examples, Millis: time.Since(start).Milliseconds(),
			Waived: report.Waived, WaivedExamples: report.WaivedExamples,
		},
	})
}

func randomID(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:16]) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// between converts milliseconds to a duration and checks the bounds. 0 means the default.
func between(field string, ms int32, def, least, most time.Duration) (time.Duration, error) {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case ms == 0:
		return def, nil
	case d < least || d > most || d < 0:
		return 0, invalid(field, itoa(int64(ms)), fmt.Sprintf("%d to %d, or 0 for %d", least.Milliseconds(), most.Milliseconds(), def.Milliseconds()))
	}
	return d, nil
}
