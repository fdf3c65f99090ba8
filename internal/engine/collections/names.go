package collections

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// CheckNames returns an error if another collection has a name that a version takes at the flip.
func (m *Maintainer) CheckNames(ctx context.Context, d upgradestate.Deployment, version string) error {
	target, _ := d.Namespace(version)
	return together(ctx, target, describedAtOnce, func(ctx context.Context, k upgradestate.Kind) error {
		at := upgradestate.BlockPlace{Version: version, Kind: k.Kind}
		return upgradestate.Blocked(upgradestate.BlockNames, at, m.checkName(ctx, version, k))
	})
}

func (m *Maintainer) checkName(ctx context.Context, version string, k upgradestate.Kind) error {
	if !k.Fixed || !k.Hidden {
		return nil
	}
	own, err := m.Database(version).Describe(ctx, record.KindSpec{Name: k.Kind, Fixed: true}, k.Kind)
	var refused *record.UnsupportedError
	if errors.As(err, &refused) {
		if refused.Fence && k.Fence == string(record.FenceView) && k.Fenced != "" {
			return nil // left by the fence of an earlier switch; the flip removes it
		}
		if refused.Retired && k.Fence == string(record.FenceView) {
			return nil // the flip replaces it in one step, so the name is never free
		}
		return fmt.Errorf("the name %s in the database of %s is taken, but the switch needs it: %w: rename or drop that collection", k.Kind, version, err)
	}
	if err != nil {
		return fmt.Errorf("the name %s in the database of %s: %w: %w", k.Kind, version, ErrUnanswered, err)
	}
	if own.Exists {
		return fmt.Errorf("a collection %s exists in the database of %s already, but the switch needs its name: rename or remove it (an application of the new version may have created it too early)", k.Kind, version)
	}
	return nil
}

// ErrUnanswered means that a database did not answer, for instance while it elects a primary. Its
// content is unknown.
var ErrUnanswered = errors.New("the database did not answer")

// kindsAtOnce limits how many kinds are changed at the same time. Some changes run while writes are
// held, where hundreds of kinds in sequence would take too long.
const kindsAtOnce = 16

// describedAtOnce limits how many kinds are described at the same time. The store combines their
// commands, so a small limit would only make more of them.
const describedAtOnce = 256

// together calls do for the kinds of a version, up to a number at the same time, and returns the
// first error.
func together(ctx context.Context, ns upgradestate.Namespace, atOnce int, do func(context.Context, upgradestate.Kind) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, k := range ns.Kinds {
		g.Go(func() error { return do(ctx, k) })
	}
	return g.Wait()
}
