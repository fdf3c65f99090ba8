package controller

import (
	"context"
	"fmt"

	"dbcontroller/deployment/api"
	pb "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/syncer"
	"dbcontroller/upgradestate"
	"dbcontroller/verify"
)

var _ api.Loss = (*App)(nil)

// EstimateLoss compares the current version with the one that the latest switch came from,
// as that was at its switch, and counts what a rollback would not have. It writes nothing. What is
// written meanwhile may or may not be counted.
func (a *App) EstimateLoss(ctx context.Context, progress func(compared int64)) (*pb.LossReport, error) {
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return nil, err
	}
	from, to := d.CurrentVersion, upgradestate.PreviousVersion(d)
	if to == "" {
		return nil, fmt.Errorf("version %s was not switched to: there is nothing to go back to", from)
	}
	source, target := a.namespaces[from], a.namespaces[to]
	if source == nil || target == nil {
		return nil, fmt.Errorf("versions %s and %s must both be configured", from, to)
	}
	dir, err := a.registry.Direction(from, to)
	if err != nil {
		return nil, err
	}
	src, err := view(ctx, source, syncer.Tokens(d, from))
	if err != nil {
		return nil, err
	}
	dst, err := view(ctx, target, syncer.Tokens(d, to))
	if err != nil {
		return nil, err
	}
	found, err := verify.EstimateLoss(ctx, source, target, dir, src, dst, progress)
	if err != nil {
		return nil, err
	}
	return &pb.LossReport{
		Compared: found.Compared, Created: found.Created, Changed: found.Changed, Deleted: found.Deleted, Examples: found.Examples,
	}, nil
}
