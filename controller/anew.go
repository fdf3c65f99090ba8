package controller

import (
	"context"
	"errors"

	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// endAnew ends that collections are shown as replaced, once every shard has copied and compared
// everything since. It waits for the stored checkpoints: what only an engine knows is lost with
// its process.
func (a *App) endAnew(ctx context.Context) error {
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return err
	}
	x := upgradestate.OpenAnew(d)
	if x == nil || d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		return nil
	}
	images, bound := upgradestate.ImagesOf(d, x.To)
	to, follows := upgradestate.Followed(d)
	if !bound || !follows {
		return nil
	}
	// One list says for most of the time that it is not the end, whatever number of shards there are.
	ps, err := a.deployment.Progress(ctx)
	if err != nil {
		return err
	}
	agreed := 0
	for _, p := range ps {
		if p.Epoch == d.Epoch && p.Generation == images.Generation && p.Agreed() {
			agreed++
		}
	}
	if agreed < d.RingSize {
		return nil
	}
	if all, err := syncer.Agreed(ctx, a.deployment, d.RingSize, syncer.KeyIn(d, to)); err != nil || !all {
		return err
	}
	_, err = a.deployment.Apply(ctx, upgradestate.CopiedAnew{To: x.To, Epoch: d.Epoch, Seen: images})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil // there is another replacement, or the switch has begun
	}
	return err
}
