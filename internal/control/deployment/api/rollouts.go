package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/upgradestate"
)

// rollouts returns the rollouts of the coordination store.
func (v *Service) rollouts() *deployment.Rollouts { return v.own.Rollouts() }

// BeginRollout implements the API. It only stores the record: controllers carry it out.
func (v *Service) BeginRollout(ctx context.Context, req *connect.Request[pb.BeginRolloutRequest]) (*connect.Response[pb.Rollout], error) {
	m := req.Msg
	by, err := requester(ctx, m)
	if err != nil {
		return nil, err
	}
	next := rollout.New(m.Name, randomID("r"), m.TargetVersion, waveNames(m.Waves), rolloutPolicy(m.Policy), by, time.Now().UTC())
	if err := rollout.Validate(next); err != nil {
		return nil, line(connect.CodeInvalidArgument, "rollout begin: "+err.Error())
	}
	for _, check := range next.Policy.Checks {
		if !slices.Contains(v.cfg.RolloutChecks, check) {
			return nil, refuse(fmt.Sprintf("rollout begin: check %s: the configuration of this controller has no rollouts.checks with this name", check))
		}
	}
	var effects []string
	stored, err := v.rollouts().Begin(ctx, next.Name, func(now rollout.Rollout, exists bool) (rollout.Rollout, bool, error) {
		switch {
		case exists && sameRollout(now, next):
			effects = []string{nothing(fmt.Sprintf("rollout %s has begun already", now.Name))}
			return now, false, nil
		case exists:
			return now, false, refuse(fmt.Sprintf("rollout begin: there is a rollout %s with other arguments: choose another name, or 'rollout forget' it", now.Name))
		}
		effects = beginRolloutEffects(next)
		return next, !m.DryRun, v.mayRollOut(ctx, next)
	})
	if err != nil {
		return nil, lostRollout(err)
	}
	return answerRollout(stored, effects), nil
}

// lostRollout explains a failed commit of a rollout to its caller.
func lostRollout(err error) error {
	if errors.Is(err, coord.ErrConflict) {
		return fmt.Errorf("rollout: somebody else has changed it meanwhile: repeat the call: %w", upgradestate.ErrOutdated)
	}
	return err
}

// sameRollout reports whether a request repeats the one that began a rollout.
func sameRollout(now, next rollout.Rollout) bool {
	return now.TargetVersion == next.TargetVersion && slices.EqualFunc(now.Waves, next.Waves, func(a, b rollout.Wave) bool {
		return slices.EqualFunc(a.Items, b.Items, func(a, b rollout.Item) bool { return a.Name == b.Name })
	}) && slices.Equal(now.Policy.Checks, next.Policy.Checks) && samePolicy(now.Policy, next.Policy)
}

func samePolicy(a, b rollout.Policy) bool {
	a.Checks, b.Checks = nil, nil
	return fmt.Sprint(a) == fmt.Sprint(b)
}

func waveNames(waves []*pb.RolloutWave) [][]string {
	all := make([][]string, len(waves))
	for i, w := range waves {
		for _, d := range w.GetDeployments() {
			all[i] = append(all[i], d.GetName())
		}
	}
	return all
}

func rolloutPolicy(p *pb.RolloutPolicy) rollout.Policy {
	out := rollout.Policy{
		PauseMillis: p.GetPauseMs(), HoldMillis: rollout.DefaultHold.Milliseconds(),
		GateLimitMillis: cmp.Or(p.GetGateLimitMs(), rollout.DefaultGateLimit.Milliseconds()), WaveLimitMillis: p.GetWaveLimitMs(),
		MaxLagMillis: p.GetMaxLagMs(), Checks: p.GetChecks(), OnFailure: rollout.RollBackToo,
	}
	if p != nil && p.HoldMs != nil {
		out.HoldMillis = p.GetHoldMs()
	}
	if p.GetStopOnly() {
		out.OnFailure = rollout.StopOnly
	}
	return out
}

func beginRolloutEffects(r rollout.Rollout) []string {
	p := r.Policy
	does := []string{fmt.Sprintf("upgrade %s to %s in %s; each upgrade switches as soon as everything is ready",
		status.Counted(int64(len(rollout.Names(r))), "deployment"), r.TargetVersion, status.Counted(int64(len(r.Waves)), "wave"))}
	gate := fmt.Sprintf("begin the next wave when all deployments of a wave have switched and nothing is known against them for %s", ms(p.HoldMillis))
	if len(p.Checks) > 0 {
		gate += ", and these checks pass: " + strings.Join(p.Checks, ", ")
	}
	if p.PauseMillis > 0 {
		gate += fmt.Sprintf(", and after a pause of %s", ms(p.PauseMillis))
	}
	fails := "stop when a wave fails, and roll back its deployments"
	if p.OnFailure == rollout.StopOnly {
		fails = "stop when a wave fails, and leave its deployments as they are"
	}
	limits := fmt.Sprintf("; its gate must pass within %s", ms(p.GateLimitMillis))
	if p.WaveLimitMillis > 0 {
		limits += fmt.Sprintf(", and its upgrades must end within %s", ms(p.WaveLimitMillis))
	}
	return append(does, gate, fails+limits)
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// GetRollout implements the API.
func (v *Service) GetRollout(ctx context.Context, req *connect.Request[pb.GetRolloutRequest]) (*connect.Response[pb.Rollout], error) {
	r, err := v.rollouts().Get(ctx, req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return answerRollout(r, nil), nil
}

// ListRollouts implements the API.
func (v *Service) ListRollouts(ctx context.Context, _ *connect.Request[pb.ListRolloutsRequest]) (*connect.Response[pb.ListRolloutsResponse], error) {
	all, unreadable, err := v.rollouts().All(ctx)
	if err != nil {
		return nil, err
	}
	res := &pb.ListRolloutsResponse{}
	for _, r := range all {
		out := rolloutStatus(r)
		out.History = nil
		res.Rollouts = append(res.Rollouts, out)
	}
	for _, err := range unreadable {
		res.Unreadable = append(res.Unreadable, err.Error())
	}
	return connect.NewResponse(res), nil
}

// ChangeRollout implements the API.
func (v *Service) ChangeRollout(ctx context.Context, req *connect.Request[pb.ChangeRolloutRequest]) (*connect.Response[pb.Rollout], error) {
	m := req.Msg
	by, err := requester(ctx, m)
	if err != nil {
		return nil, err
	}
	reason, err := checkReason(m.Reason)
	if err != nil {
		return nil, err
	}
	if m.FromWave != 0 && m.Verb != pb.ChangeRolloutRequest_ROLLBACK {
		return nil, invalid("from_wave", itoa(int64(m.FromWave)), "the verb ROLLBACK together with it")
	}
	var do rollout.Change
	change := v.rollouts().Change
	switch m.Verb {
	case pb.ChangeRolloutRequest_PAUSE:
		do = rollout.Pause(reason)
	case pb.ChangeRolloutRequest_RESUME:
		do, change = rollout.Resume(), v.rollouts().ChangeAlone
	case pb.ChangeRolloutRequest_STOP:
		do = rollout.Stop(reason)
	case pb.ChangeRolloutRequest_ROLLBACK:
		do, change = rollout.RollBack(int(m.FromWave), reason), v.rollouts().ChangeAlone
	default:
		return nil, invalid("verb", m.Verb.String(), "PAUSE, RESUME, STOP or ROLLBACK")
	}
	var effects []string
	var shown rollout.Rollout
	at := time.Now().UTC()
	stored, err := change(ctx, m.Name, func(r rollout.Rollout) (rollout.Rollout, bool, error) {
		shown = r // also in a dry run: show the stored record
		// An earlier try whose answer was lost has made the change.
		if len(effects) > 0 && slices.ContainsFunc(r.History, func(e rollout.Entry) bool { return e.By == by && e.At.Equal(at) }) {
			return r, false, nil
		}
		next, does, err := do(r, by, at)
		effects = does
		// While it was closed, another rollout may have begun.
		if err == nil && !rollout.Open(r) && rollout.Open(next) {
			err = v.alone(ctx, strings.ToLower(m.Verb.String()), r)
		}
		return next, err == nil && len(does) > 0 && !m.DryRun, err
	})
	if err != nil {
		return nil, err
	}
	if len(effects) == 0 {
		effects = []string{nothing(fmt.Sprintf("rollout %s is %s already, or has nothing to do for this", shown.Name, shown.State))}
	}
	return answerRollout(stored, effects), nil
}

// ForgetRollout implements the API.
func (v *Service) ForgetRollout(ctx context.Context, req *connect.Request[pb.ForgetRolloutRequest]) (*connect.Response[pb.Rollout], error) {
	if _, err := requester(ctx, req.Msg); err != nil {
		return nil, err
	}
	r, err := v.rollouts().Get(ctx, req.Msg.Name)
	var unreadable *deployment.UnreadableRolloutError
	if errors.As(err, &unreadable) {
		return v.forgetUnreadable(ctx, req.Msg, unreadable)
	}
	if err == nil {
		err = rollout.Forgettable(r)
	}
	if err == nil && !req.Msg.DryRun {
		err = lostRollout(v.rollouts().Delete(ctx, r))
	}
	if err != nil {
		return nil, err
	}
	return answerRollout(r, []string{fmt.Sprintf("delete the record of rollout %s; its deployments stay as they are", r.Name)}), nil
}

// forgetUnreadable deletes a rollout that this process cannot read. It may be active, so the caller
// has to confirm that.
func (v *Service) forgetUnreadable(ctx context.Context, m *pb.ForgetRolloutRequest, r *deployment.UnreadableRolloutError) (*connect.Response[pb.Rollout], error) {
	does := fmt.Sprintf("delete the record of rollout %s, which cannot be read (%v); its deployments stay as they are, and running upgrades go on", r.Name, r)
	if !m.DryRun {
		if m.Confirm != r.Name {
			return nil, refuse(fmt.Sprintf("rollout forget: %s may still be active: this would %s; to do that, give its name again as confirm, not %q", r.Name, does, shorten(m.Confirm)))
		}
		if err := v.rollouts().DeleteUnreadable(ctx, r); err != nil {
			return nil, lostRollout(err)
		}
	}
	return connect.NewResponse(&pb.Rollout{Name: r.Name, Effects: []string{does}}), nil
}

func answerRollout(r rollout.Rollout, effects []string) *connect.Response[pb.Rollout] {
	out := rolloutStatus(r)
	out.Effects = effects
	return connect.NewResponse(out)
}

func rolloutStatus(r rollout.Rollout) *pb.Rollout {
	out := &pb.Rollout{
		Name: r.Name, TargetVersion: r.TargetVersion, State: pb.Rollout_State(pb.Rollout_State_value[string(r.State)]),
		Reason: r.Reason, Wave: int32(r.Wave + 1), Step: string(r.Step), WaitsFor: r.Waits,
		Began: r.Began.Format(time.RFC3339), BeganBy: r.By, Revision: r.Revision,
		Policy: &pb.RolloutPolicy{
			PauseMs: r.Policy.PauseMillis, HoldMs: &r.Policy.HoldMillis, GateLimitMs: r.Policy.GateLimitMillis, WaveLimitMs: r.Policy.WaveLimitMillis,
			MaxLagMs: r.Policy.MaxLagMillis, Checks: r.Policy.Checks, StopOnly: r.Policy.OnFailure == rollout.StopOnly,
		},
	}
	for _, w := range r.Waves {
		wave := &pb.RolloutWave{}
		for _, i := range w.Items {
			wave.Deployments = append(wave.Deployments, &pb.RolloutDeployment{Name: i.Name, Order: string(i.Order), UpgradeId: i.ID, Result: string(i.Result), Detail: i.Detail})
		}
		out.Waves = append(out.Waves, wave)
	}
	for _, e := range r.History {
		out.History = append(out.History, &pb.RolloutEvent{At: e.At.Format(time.RFC3339), By: e.By, What: e.What})
	}
	return out
}
