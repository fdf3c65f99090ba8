package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/deployment"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// A waiver is noted in the history before it is made: asked for it was, whatever becomes
// of it. Asked for again, it changes nothing, and is noted as a repetition.

func (v *Service) WaiveParked(ctx context.Context, req *connect.Request[pb.WaiveParkedRequest]) (*connect.Response[pb.ParkedRecord], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	kind, key := req.Msg.Kind, req.Msg.Key
	switch {
	case kind == "":
		return nil, invalid("kind", "", "the kind of a parked record, as ListParked shows it")
	case key == "":
		return nil, invalid("key", "", "the key of a parked record, as ListParked shows it")
	}
	if ctx, err = asked(ctx, req.Msg); err != nil {
		return nil, err
	}
	list, err := s.ParkedNow(ctx)
	if err != nil {
		return nil, fmt.Errorf("waive: %w", err)
	}
	named := func(p syncer.Parked) bool { return p.Kind == kind && p.Key == key && !deployment.IsOverflow(p) }
	blocks := slices.IndexFunc(list, func(p syncer.Parked) bool { return named(p) && !p.Waived })
	if at := slices.IndexFunc(list, named); at >= 0 && (blocks < 0 || req.Msg.DryRun) {
		if err := noteRepeat(ctx, s, req.Msg, "waive: "+kind+"/"+key+" is waived already"); err != nil {
			return nil, err
		}
		return connect.NewResponse(parkedStatus(list[at])), nil
	}
	if blocks >= 0 {
		if _, err := s.Apply(ctx, upgradestate.Remark{What: "waive", Detail: shorten(kind + "/" + key)}); err != nil {
			return nil, err
		}
	}
	if req.Msg.DryRun {
		// It may be parked by now: a trial changes nothing all the same.
		return nil, deployment.NotParked(list, kind, key)
	}
	p, err := s.Waive(ctx, kind, key)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(parkedStatus(p)), nil
}

// shorten keeps the history small: a key may be long.
func shorten(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

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
	if len(deployment.Directions(d)) == 0 {
		return nil, refuse("waive: nothing is being moved, so there is nothing to waive")
	}
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
	of := slices.DeleteFunc(list, func(p syncer.Parked) bool { return p.Kind != kind })
	res := &pb.WaiveKindResponse{Waived: deployment.CountParked(of).Blocking}
	res.Effects = []string{fmt.Sprintf("let the switch go on without the %d of %s that are parked now, and any that is parked later in this direction: the other version will not have them, or only as they were before", res.Waived, kind)}
	if err := confirmsCount(req.Msg, res); err != nil {
		return nil, err
	}
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

// confirmsCount refuses a waiver of more or fewer records than its caller has seen; one that
// changes nothing may leave the number open.
func confirmsCount(req *pb.WaiveKindRequest, would *pb.WaiveKindResponse) error {
	switch {
	case req.Count == nil && req.DryRun, req.Count != nil && *req.Count == would.Waived:
		return nil
	case req.Count == nil:
		return refuse(fmt.Sprintf("waive: it would %s; to do that, give --count %d", strings.Join(would.Effects, "; "), would.Waived))
	}
	return refuse(fmt.Sprintf("waive: --count %d was given, and %d of %s are parked now: look at them again, and give --count %d", *req.Count, would.Waived, req.Kind, would.Waived))
}

// checkKind refuses a kind that no version has: a misspelt waiver would wait unseen.
func checkKind(d upgradestate.Deployment, kind string) error {
	var known []string
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
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
