package controller

import (
	"context"
	"time"

	"go.uber.org/zap"

	"dbcontroller/record"
	"dbcontroller/upgradestate"
)

// purge removes the tombstones that a sync has left in the namespace that is active now.
// Its direction has ended: the seal keeps everyone who might still apply for it away, so
// that nothing can be resurrected. Until then clients write over tombstones.
func (a *App) purge(ctx context.Context) error {
	var purged uint64 // the epoch whose namespace is clean
	retry := time.NewTimer(0)
	defer retry.Stop()
	watch := a.deployment.Watch(ctx)
	var d upgradestate.Deployment
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case seen, open := <-watch:
			if !open {
				return ctx.Err()
			}
			d = seen
		case <-retry.C:
		}
		version, places := upgradestate.WritePlaces(d)
		if d.LastSwitch == nil || d.Upgrade != nil || d.Epoch == purged || len(places) == 0 {
			continue
		}
		if err := a.purgeKinds(ctx, version, places); err != nil {
			a.log.Warn("tombstones stay for now", zap.String("version", version), zap.Error(err))
			retry.Reset(retryEngine)
			continue
		}
		// The direction before this one is still watched for late deletes.
		if err := a.deployment.ForgetBefore(ctx, d.Epoch-1); err != nil {
			a.log.Warn("what is kept of earlier directions stays for now", zap.Error(err))
			retry.Reset(retryEngine)
			continue
		}
		purged = d.Epoch
	}
}

func (a *App) purgeKinds(ctx context.Context, version string, places []upgradestate.Place) error {
	for _, p := range places {
		tok := record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
		if err := a.namespaces[version].Purge(ctx, tok); err != nil {
			return err
		}
	}
	return nil
}
