package api

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/upgradestate"
)

// policy returns the requested policy, with the configured values in place of zero fields. A
// running upgrade is compared only with the requested fields, because its policy may have changed
// since.
func (v *Service) policy(d upgradestate.Deployment, p *pb.SwitchPolicy) upgradestate.Policy {
	asked := upgradestate.Policy{
		Hold: p.GetHold(), DeadlineMillis: p.GetDeadlineMs(), MaxPauseMillis: p.GetMaxPauseMs(),
		MaxHoldMillis: p.GetMaxHoldMs(), Retries: int(p.GetRetries()),
	}
	if d.Upgrade != nil && asked == (upgradestate.Policy{}) {
		return asked
	}
	return asked.Or(v.cfg.Policy)
}

// automatic is policy for the orders of a rollout: they switch as soon as they are ready, also where
// the configuration holds upgrades for an operator. Otherwise a wave that goes back would wait for
// 'switch' on each of its deployments.
func (v *Service) automatic(d upgradestate.Deployment, p *pb.SwitchPolicy) upgradestate.Policy {
	out := v.policy(d, p)
	out.Hold = false
	return out
}

// policyEffects describes what a policy makes of an upgrade.
func policyEffects(p upgradestate.Policy) []string {
	does := make([]string, 0, 5)
	if p.Hold {
		does = append(does, "hold at ready until 'switch'")
	} else {
		does = append(does, "switch automatically as soon as everything is ready; writes are held for that moment")
	}
	if p.DeadlineMillis > 0 {
		does = append(does, fmt.Sprintf("abort a switch that takes longer than %d ms", p.DeadlineMillis))
	}
	if p.MaxHoldMillis > 0 {
		does = append(does, fmt.Sprintf("release held writes after %d ms", p.MaxHoldMillis))
	}
	switch {
	case p.Retries > 0:
		does = append(does, fmt.Sprintf("retry at most %d times after an attempt that aborted itself", p.Retries))
	case p.Retries < 0:
		does = append(does, "do not retry if the first attempt at the switch fails")
	}
	if p.MaxPauseMillis > 0 {
		does = append(does, fmt.Sprintf("delay the switch while its predicted pause is longer than %d ms", p.MaxPauseMillis))
	}
	return does
}

// SetPolicy implements the API.
func (v *Service) SetPolicy(ctx context.Context, req *connect.Request[pb.SetPolicyRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	// An empty request is a mistake of the caller.
	if req.Msg.Hold == nil && req.Msg.DeadlineMs == nil && req.Msg.MaxPauseMs == nil && req.Msg.MaxHoldMs == nil && req.Msg.Retries == nil {
		return nil, refuse("set-policy: nothing to set: give hold, deadline, max pause, max hold or retries")
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	// Only given fields change the policy.
	ev := upgradestate.SetPolicy{
		ID: running(d, req.Msg.UpgradeId), Hold: req.Msg.Hold,
		DeadlineMillis: req.Msg.DeadlineMs, MaxPauseMillis: req.Msg.MaxPauseMs,
		MaxHoldMillis: req.Msg.MaxHoldMs,
	}
	if n := req.Msg.Retries; n != nil {
		retries := int(*n)
		ev.Retries = &retries
	}
	return v.change(ctx, s, req.Msg, ev, func(before, after upgradestate.Deployment) []string {
		// The record may refuse or ignore the change.
		if before.Upgrade == nil || after.Upgrade == nil || before.Upgrade.Policy == after.Upgrade.Policy {
			return nil
		}
		return []string{fmt.Sprintf("change when upgrade %s to %s switches, from %q to %q",
			after.Upgrade.ID, after.Upgrade.TargetVersion, before.Upgrade.Policy, after.Upgrade.Policy)}
	}, func(d upgradestate.Deployment) string {
		return fmt.Sprintf("the policy of upgrade %s is %q already", d.Upgrade.ID, d.Upgrade.Policy)
	})
}
