package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// The history records a waiver before it is made, because the request is a fact in any case. A
// repeated waiver changes nothing and is recorded as a repetition.

// WaiveParked implements the API.
func (v *Service) WaiveParked(ctx context.Context, req *connect.Request[pb.WaiveParkedRequest]) (*connect.Response[pb.ParkedRecord], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	kind, key := req.Msg.Kind, req.Msg.Key
	switch {
	case kind == "":
		return nil, invalid("kind", "", "the kind of a parked record from ListParked")
	case key == "":
		return nil, invalid("key", "", "the key of a parked record from ListParked")
	}
	if ctx, err = asked(ctx, req.Msg); err != nil {
		return nil, err
	}
	list, err := s.ParkedNow(ctx)
	if err != nil {
		return nil, fmt.Errorf("waive: %w", err)
	}
	// One name can stand for several groups; the waiver covers all of them.
	named := func(p syncer.Parked) bool { return p.Kind == kind && p.Key == key && !deployment.IsOverflow(p) }
	blocks := slices.IndexFunc(list, func(p syncer.Parked) bool { return named(p) && !p.Waived })
	// The record is waived already, or a dry run would change nothing.
	if at := slices.IndexFunc(list, named); at >= 0 && (blocks < 0 || req.Msg.DryRun) {
		if err := noteRepeat(ctx, s, req.Msg, "waive: "+kind+"/"+key+" is waived already"); err != nil {
			return nil, err
		}
		return connect.NewResponse(status.Parked(list[at])), nil
	}
	if blocks >= 0 {
		// First the history, then the waiver: see above.
		if _, err := s.Apply(ctx, upgradestate.Remark{What: "waive", Detail: shorten(kind + "/" + key)}); err != nil {
			return nil, err
		}
	}
	if req.Msg.DryRun {
		// The record may be parked by now, but a dry run must change nothing.
		return nil, deployment.NotParked(list, kind, key)
	}
	p, err := s.Waive(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(status.Parked(p)), nil
}

// shorten cuts a text for the history, because a key may be long.
func shorten(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// WaiveKind implements the API.
func (v *Service) WaiveKind(ctx context.Context, req *connect.Request[pb.WaiveKindRequest]) (*connect.Response[pb.WaiveKindResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	if ctx, err = asked(ctx, req.Msg); err != nil {
		return nil, err
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	kind := req.Msg.Kind
	if err := checkKind(d, kind); err != nil {
		return nil, err
	}
	// Without a direction, a waiver would apply to nothing.
	if len(deployment.Directions(d)) == 0 {
		return nil, refuse("waive: nothing is being copied, so there is nothing to waive")
	}
	// Waiving twice changes nothing, so only note it.
	done, err := s.KindWaived(ctx, d, kind)
	if err != nil {
		return nil, err
	}
	if done {
		if err := noteRepeat(ctx, s, req.Msg, "waive: every "+kind+" is waived already"); err != nil {
			return nil, err
		}
		return connect.NewResponse(&pb.WaiveKindResponse{Effects: []string{nothing("every " + kind + " is waived in this direction already")}}), nil
	}
	list, err := s.ParkedOf(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("waive: %w", err)
	}
	// Count only this kind, as the caller's confirmation does.
	of := slices.DeleteFunc(list, func(p syncer.Parked) bool { return p.Kind != kind })
	res := &pb.WaiveKindResponse{Waived: deployment.CountParked(of).Blocking}
	res.Effects = []string{fmt.Sprintf("let the switch continue without the %d of %s that are parked now, and any that is parked later in this direction: the other version will lack them or have an earlier state", res.Waived, kind)}
	if err := confirmsCount(req.Msg, res); err != nil {
		return nil, err
	}
	// A dry run ends here, before the history and the waiver.
	if req.Msg.DryRun {
		return connect.NewResponse(res), nil
	}
	if _, err := s.Apply(ctx, upgradestate.Remark{What: "waive", Detail: "every " + kind}); err != nil {
		return nil, err
	}
	if res.Waived, err = s.WaiveKind(ctx, kind); err != nil {
		return nil, err
	}
	return connect.NewResponse(res), nil
}

// confirmsCount refuses a waiver unless its count equals the current one, so that a caller never
// waives records it has not seen. A dry run may omit the count.
func confirmsCount(req *pb.WaiveKindRequest, would *pb.WaiveKindResponse) error {
	switch {
	case req.Count == nil && req.DryRun, req.Count != nil && *req.Count == would.Waived:
		return nil
	case req.Count == nil:
		return refuse(fmt.Sprintf("waive: it would %s; to do that, give --count %d", strings.Join(would.Effects, "; "), would.Waived))
	}
	return refuse(fmt.Sprintf("waive: --count %d was given, but %d of %s are parked now: check them again, and give --count %d", *req.Count, would.Waived, req.Kind, would.Waived))
}

// checkKind refuses a kind that no version has. A misspelt waiver would wait unnoticed.
func checkKind(d upgradestate.Deployment, kind string) error {
	var known []string
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			// Lineage kinds are internal, and no operator knows their names.
			if !transform.IsLineage(k.Kind) {
				known = append(known, k.Kind)
			}
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	if slices.Contains(known, kind) {
		return nil
	}
	if len(known) == 0 {
		return refuse("waive: no kinds are known yet")
	}
	return invalid("kind", kind, "one of "+strings.Join(known, ", "))
}
