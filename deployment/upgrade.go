package deployment

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/upgradestate"
	"dbcontroller/verify"
)

// BeginUpgrade implements the API.
func (v *Service) BeginUpgrade(ctx context.Context, req *connect.Request[pb.BeginUpgradeRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	target := req.Msg.TargetVersion
	switch {
	case target == "":
		return nil, &InvalidError{"target_version", "", "the version to move to, such as v2"}
	case req.Msg.TotalShardsCount < 0:
		return nil, &InvalidError{"total_shards_count", itoa(int64(req.Msg.TotalShardsCount)), "the ring size, or 0 to leave it out"}
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	hash, err := v.transformHash(s, d, target)
	if err != nil {
		return nil, err
	}
	if d.Upgrade == nil {
		if !slices.ContainsFunc(d.Available, func(a upgradestate.Available) bool { return a.TargetVersion == target }) {
			hash = "" // nobody copies for it: the record says so
		}
		servers, err := s.Servers(ctx)
		if err != nil {
			return nil, err
		}
		if err := upgradestate.CheckServers(servers, target); err != nil {
			return nil, err
		}
	}
	d, err = s.Apply(ctx, upgradestate.Begin{
		ID: randomID("u"), TargetVersion: target, TransformHash: hash, Shards: int(req.Msg.TotalShardsCount),
	})
	if err != nil {
		return nil, err
	}
	return answer(ctx, s, d)
}

// transformHash finds the transformation that this controller has for the upgrade. Of
// versions that the record refuses anyway it returns none, and the record says why.
func (v *Service) transformHash(s *Store, d upgradestate.Deployment, target string) (string, error) {
	if _, known := d.Namespace(target); !known || target == d.CurrentVersion {
		return "", nil
	}
	if l := d.LastSwitch; l != nil && l.From == target && d.Upgrade == nil && !wayBack(d) {
		return "", refuse(fmt.Sprintf("begin-upgrade: there is no way back from %s to %s: %s", d.CurrentVersion, target, noWayBack(d)))
	}
	if v.cfg.Upgrades == nil || s != v.own {
		return "", refuse(fmt.Sprintf("begin-upgrade: this controller is not configured for %s: ask one that is", s.name))
	}
	hash, err := v.cfg.Upgrades.TransformHash(d.CurrentVersion, target)
	if err != nil {
		return "", refuse("begin-upgrade: " + err.Error())
	}
	return hash, nil
}

// longestReason keeps the record small.
const longestReason = 500

// AbortUpgrade implements the API.
func (v *Service) AbortUpgrade(ctx context.Context, req *connect.Request[pb.AbortUpgradeRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	reason := strings.TrimSpace(req.Msg.Reason)
	switch {
	case len(reason) > longestReason:
		return nil, &InvalidError{"reason", reason[:20] + "...", fmt.Sprintf("at most %d bytes", longestReason)}
	case reason == "":
		reason = "asked for by an operator"
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	id := req.Msg.UpgradeId
	switch l := d.LastSwitch; {
	case d.Upgrade == nil && l != nil && (id == l.ID || id == ""):
		return nil, refuse(fmt.Sprintf("abort: no upgrade is running; %s switched to %s already, which abort does not undo", l.ID, l.To))
	case d.Upgrade == nil && id == "":
		return nil, refuse("abort: no upgrade is running")
	case d.Upgrade != nil && id != "" && id != d.Upgrade.ID:
		return nil, refuse(fmt.Sprintf("abort: %s is not running, %s is", id, d.Upgrade.ID))
	case d.Upgrade != nil:
		// The one that was seen: another that begins meanwhile is not meant.
		id = d.Upgrade.ID
	}
	d, err = s.Apply(ctx, upgradestate.Abort{ID: id, Reason: reason})
	if err != nil {
		return nil, err
	}
	return answer(ctx, s, d)
}

// verifyEvery is the least time between two messages of progress.
const verifyEvery = 500 * time.Millisecond

// Verify implements the API.
func (v *Service) Verify(ctx context.Context, req *connect.Request[pb.VerifyRequest], stream *connect.ServerStream[pb.VerifyResponse]) error {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return err
	}
	if _, err := s.Get(ctx); err != nil {
		return err
	}
	if v.cfg.Verifier == nil || s != v.own {
		return refuse(fmt.Sprintf("verify: this controller is not configured for %s: ask one that is", s.name))
	}
	if !v.verifying.TryLock() {
		return refuse("verify: a comparison runs already: wait for its end")
	}
	defer v.verifying.Unlock()
	ctx, cancel := v.untilStopped(ctx)
	defer cancel()

	start := time.Now()
	var sent time.Time
	report, err := v.cfg.Verifier.Verify(ctx, func(r verify.Report) {
		if time.Since(sent) < verifyEvery {
			return
		}
		sent = time.Now()
		err := stream.Send(&pb.VerifyResponse{Progress: &pb.VerifyProgress{Compared: r.Compared, Mismatched: r.Mismatched}})
		if err != nil {
			cancel() // nobody listens any more
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return stream.Send(&pb.VerifyResponse{
		Progress: &pb.VerifyProgress{Compared: report.Compared, Mismatched: report.Mismatched},
		Report: &pb.VerifyReport{
			Equal: report.Mismatched == 0, Compared: report.Compared, Mismatched: report.Mismatched,
			Examples: report.Examples, Millis: time.Since(start).Milliseconds(),
		},
	})
}

func randomID(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:16]) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// between reads a number of milliseconds: 0 is the default.
func between(field string, ms int32, def, least, most time.Duration) (time.Duration, error) {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case ms == 0:
		return def, nil
	case d < least || d > most || d < 0:
		return 0, &InvalidError{field, itoa(int64(ms)), fmt.Sprintf("%d to %d, or 0 for %d", least.Milliseconds(), most.Milliseconds(), def.Milliseconds())}
	}
	return d, nil
}
