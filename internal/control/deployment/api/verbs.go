package api

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// Every changing method here can be repeated, and has a dry run. In both cases the effects of the
// answer describe the change, or say that there is nothing to do.

// request is the common part of all changing requests.
type request interface {
	GetDryRun() bool
	GetRequestedBy() string
}

// longestName bounds the requester's name in bytes, because the history stores it.
const longestName = 200

// nameless is the requester's name in requests without one.
const nameless = "an API client"

// asked returns a context whose transitions the history attributes to the requester.
func asked(ctx context.Context, r request) (context.Context, error) {
	// The name is stored in the history, so bound it and allow no control characters.
	who := r.GetRequestedBy()
	switch {
	case len(who) > longestName:
		return nil, invalid("requested_by", who[:20]+"...", fmt.Sprintf("at most %d bytes", longestName))
	case strings.ContainsFunc(who, unicode.IsControl):
		return nil, invalid("requested_by", who, "one line of text")
	// A caller within this process has given the name.
	case who == "" && deployment.Asker(ctx) != "":
		return ctx, nil
	case who == "":
		who = nameless
		// A proven identity is better than no name.
		if caller, ok := access.CallerOf(ctx); ok && caller.Proven() {
			who = caller.Name
		}
	}
	return deployment.AskedBy(ctx, who), nil
}

// effects describes a transition in sentences that begin with a verb. An empty result means that it
// changes nothing.
type effects func(before, after upgradestate.Deployment) []string

// change makes a transition, or in a dry run describes it. idle returns the sentence for a
// transition that changes nothing.
func (v *Service) change(ctx context.Context, s *deployment.Store, r request, ev upgradestate.Event, does effects, idle func(upgradestate.Deployment) string) (*connect.Response[pb.Deployment], error) {
	return v.changeIf(ctx, s, r, ev, nil, does, idle)
}

// changeIf is change under further conditions. deployment.ErrOwnership means that one does not hold.
func (v *Service) changeIf(ctx context.Context, s *deployment.Store, r request, ev upgradestate.Event, conditions []coord.Condition, does effects, idle func(upgradestate.Deployment) string) (*connect.Response[pb.Deployment], error) {
	ctx, err := asked(ctx, r)
	if err != nil {
		return nil, err
	}
	var before, after, shown upgradestate.Deployment
	// A dry run uses the same state machine, but stores nothing.
	if r.GetDryRun() {
		if before, err = s.Get(ctx); err == nil {
			shown = before
			after, err = upgradestate.Apply(before, ev)
		}
	} else {
		before, after, err = s.Transition(ctx, ev, conditions...)
		shown = after
	}
	if err != nil {
		return nil, err
	}
	// Show the stored record, also in a dry run.
	res, err := v.answer(ctx, s, shown)
	if err != nil {
		return nil, err
	}
	// Empty effects mean that the record did not change.
	res.Msg.Effects = does(before, after)
	if len(res.Msg.Effects) == 0 {
		res.Msg.Effects = []string{nothing(idle(after))}
		if err := noteRepeat(ctx, s, r, deployment.EventName(ev)+": "+idle(after)); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// noteRepeat records in the history a call that changed nothing. An operator may later need to know
// that somebody made it.
func noteRepeat(ctx context.Context, s *deployment.Store, r request, text string) error {
	if r.GetDryRun() {
		return nil
	}
	_, err := s.Apply(ctx, upgradestate.Remark{What: "repeat", Detail: shorten(text)})
	return err
}

// nothing returns the effect of a call that changes nothing.
func nothing(why string) string { return "nothing: " + why }

// checkReason trims a reason and refuses a long one, to keep the record small.
func checkReason(reason string) (string, error) {
	reason = strings.TrimSpace(reason)
	if len(reason) > longestReason {
		return "", invalid("reason", reason[:20]+"...", fmt.Sprintf("at most %d bytes", longestReason))
	}
	return reason, nil
}

// running returns the id of the upgrade that a request means: the running one that the caller saw.
// It does not mean another upgrade that begins meanwhile.
func running(d upgradestate.Deployment, id string) string {
	if id == "" && d.Upgrade != nil {
		return d.Upgrade.ID
	}
	return id
}

// Switch implements the API. It lets an upgrade that holds at ready switch.
func (v *Service) Switch(ctx context.Context, req *connect.Request[pb.SwitchRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	id := running(d, req.Msg.UpgradeId)
	// A repeated call after the switch is a success.
	if last := d.LastSwitch; id == "" && last != nil && last.ID == d.LastUpgradeID {
		id = last.ID // the latest upgrade, which has switched
	}
	return v.change(ctx, s, req.Msg, upgradestate.AskSwitch{ID: id}, func(before, after upgradestate.Deployment) []string {
		// The record ignores a second request.
		was, is := before.Upgrade, after.Upgrade
		if was == nil || is == nil || was.SwitchAsked == is.SwitchAsked {
			return nil
		}
		does := []string{fmt.Sprintf("switch from %s to %s as soon as everything is ready; writes are held for that moment", after.CurrentVersion, is.TargetVersion)}
		if why := upgradestate.SwitchBlocker(after); why != "" {
			does = append(does, "wait for "+why)
		}
		return does
	}, func(d upgradestate.Deployment) string {
		if d.Upgrade == nil {
			return fmt.Sprintf("%s switched to %s already", d.LastSwitch.ID, d.LastSwitch.To)
		}
		return fmt.Sprintf("upgrade %s to %s may switch already", d.Upgrade.ID, d.Upgrade.TargetVersion)
	})
}

// AcceptBreaches implements the API.
func (v *Service) AcceptBreaches(ctx context.Context, req *connect.Request[pb.AcceptBreachesRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	return v.change(ctx, s, req.Msg, upgradestate.AcceptBreaches{}, func(before, _ upgradestate.Deployment) []string {
		var does []string
		for _, b := range upgradestate.OpenBreaches(before) {
			does = append(does, fmt.Sprintf("acknowledge the breach of %s of %s: %s", b.Kind, b.Version, b.What))
		}
		return does
	}, func(upgradestate.Deployment) string { return "no breach of a fence is unacknowledged" })
}

// SetPace implements the API.
func (v *Service) SetPace(ctx context.Context, req *connect.Request[pb.SetPaceRequest]) (*connect.Response[pb.Deployment], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	m := req.Msg
	// An empty request is a mistake of the caller.
	if m.Paused == nil && m.Reason == nil && m.MaxRate == nil && m.MaxSourceLoad == nil && m.Window == nil {
		return nil, refuse("pace: nothing to set: give paused, a rate, a source load or a window")
	}
	ev := upgradestate.SetPace{Paused: m.Paused, MaxRate: asInt(m.MaxRate), MaxSourceLoad: asInt(m.MaxSourceLoad), Window: m.Window}
	// An unset reason keeps the old one; an empty reason removes it.
	if m.Reason != nil {
		reason, err := checkReason(m.GetReason())
		if err != nil {
			return nil, err
		}
		ev.Reason = &reason
	}
	return v.change(ctx, s, m, ev, paceEffects, func(d upgradestate.Deployment) string {
		return "bulk work has this pace already: " + paceText(d.Pace)
	})
}

func asInt(n *int32) *int {
	if n == nil {
		return nil
	}
	i := int(*n)
	return &i
}

func paceEffects(before, after upgradestate.Deployment) []string {
	was, is := before.Pace, after.Pace
	var does []string
	// Describe each change that an operator would notice.
	switch {
	case is.Paused && !was.Paused:
		does = append(does, "pause bulk work (copies, whole comparisons, data updates) on all controllers, and begin no switch, until 'resume'; controllers still apply changes")
	case is.Paused && is.Reason != was.Reason:
		does = append(does, fmt.Sprintf("give the pause the reason %q", is.Reason))
	case was.Paused && !is.Paused:
		does = append(does, "resume bulk work where it stopped"+reasonOf(was.Reason))
	}
	if is.MaxRate != was.MaxRate {
		does = append(does, fmt.Sprintf("copy %s, not %s", rateText(is.MaxRate), rateText(was.MaxRate)))
	}
	if is.MaxSourceLoad != was.MaxSourceLoad {
		does = append(does, fmt.Sprintf("slow down above %s, not %s", loadText(is.MaxSourceLoad), loadText(was.MaxSourceLoad)))
	}
	if is.Window != was.Window {
		does = append(does, fmt.Sprintf("do bulk work and begin a switch %s, not %s", windowText(is.Window), windowText(was.Window)))
	}
	return does
}

func reasonOf(reason string) string {
	if reason == "" {
		return ""
	}
	return fmt.Sprintf(" (it was paused: %s)", reason)
}

// paceText returns a pace as one line.
func paceText(p upgradestate.Pace) string {
	parts := []string{rateText(p.MaxRate), loadText(p.MaxSourceLoad), windowText(p.Window)}
	if p.Paused {
		parts = append([]string{"paused"}, parts...)
		if p.Reason != "" {
			parts[0] += " (" + p.Reason + ")"
		}
	}
	return strings.Join(parts, ", ")
}

func rateText(n int) string {
	if n == 0 {
		return "as fast as configured"
	}
	return fmt.Sprintf("at most %d records a second in all", n)
}

func loadText(percent int) string {
	if percent == 0 {
		return "the configured source load"
	}
	return fmt.Sprintf("%d %% source load", percent)
}

func windowText(w string) string {
	if w == "" {
		return "at any time"
	}
	return "within " + w + " UTC"
}
