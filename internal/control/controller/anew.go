package controller

import (
	"context"
	"errors"

	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// endAnew clears the notice that collections were replaced, once every shard has copied and
// compared everything since. It relies on stored checkpoints only, because an engine's own
// knowledge is lost with its process.
func (s *successors) endAnew(ctx context.Context) error {
	d, err := s.deployment.Known(ctx)
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
	// The progress list is one read, however many shards there are. It rules out most calls before
	// the checkpoint of each shard is read.
	ps, err := s.deployment.Progress(ctx)
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
	// Progress is only a report. The stored checkpoints decide.
	if all, err := syncer.Agreed(ctx, s.deployment, d.RingSize, syncer.KeyIn(d, to)); err != nil || !all {
		return err
	}
	_, err = s.deployment.Apply(ctx, upgradestate.CopiedAnew{To: x.To, Epoch: d.Epoch, Seen: images})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil // another replacement came, or the switch has begun; the next look decides
	}
	return err
}
