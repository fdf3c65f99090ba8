package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/verify"
)

// intruders looks for what others change in the target while a switch runs. The engines look up
// to the switch (upgradestate.Upgrade.TargetSince); this looks from there up to the seal, behind
// which nobody finds the target under the name that he knows.
type intruders struct{ app *App }

var _ switchover.Target = intruders{}

// Since is the present place in the target's changes, which the engines soon have come to.
func (i intruders) Since(ctx context.Context, version string) (string, error) {
	at, err := i.app.position(ctx, version)
	if err != nil {
		return "", err
	}
	// Engines that hear nothing know for up to a second no more than that they have heard nothing.
	return at, i.app.namespaces[version].Nudge(ctx)
}

// Changed reads what was changed from the beginning of the switch up to the seal.
func (i intruders) Changed(ctx context.Context, d upgradestate.Deployment) (func(context.Context, upgradestate.Deployment) error, error) {
	var from record.Position
	if err := json.Unmarshal([]byte(d.Upgrade.TargetSince), &from); err != nil {
		return nil, fmt.Errorf("place in the target's changes: %w", err)
	}
	c, err := i.comparer(d)
	if err != nil {
		return nil, err
	}
	target, _ := d.Namespace(d.Upgrade.TargetVersion)
	sealed := map[string][]string{}
	for _, k := range target.Kinds {
		sealed[k.Kind] = []string{k.Physical, k.Fenced}
	}
	in, err := c.Intruded(ctx, i.app.namespaces[target.Version], from, syncer.Tokens(d, target.Version), sealed)
	if err != nil || len(in.Groups)+len(in.Orphans) == 0 {
		return nil, err
	}
	return func(ctx context.Context, d upgradestate.Deployment) error { return i.differ(ctx, d, c, in) }, nil
}

// differ names what differs from the source, which is fenced, as the target is.
func (i intruders) differ(ctx context.Context, d upgradestate.Deployment, c *verify.Comparer, in verify.Intruded) error {
	src, err := view(ctx, i.app.namespaces[d.CurrentVersion], syncer.Tokens(d, d.CurrentVersion))
	if err != nil {
		return err
	}
	dst, err := view(ctx, i.app.namespaces[d.Upgrade.TargetVersion], syncer.Tokens(d, d.Upgrade.TargetVersion))
	if err != nil {
		return err
	}
	differ, err := c.Groups(ctx, src, dst, in.Groups)
	if err != nil {
		return fmt.Errorf("compare what changed in the target: %w", err)
	}
	left := verify.Intruded{Orphans: in.Orphans}
	waived, err := i.app.waived(ctx, d, d.Upgrade.TargetVersion)
	if err != nil {
		return err
	}
	for _, g := range differ {
		if !waived.Groups[g.ID] {
			left.Groups = append(left.Groups, g.ID)
		}
	}
	if n := len(left.Groups) + len(left.Orphans); n > 0 {
		return fmt.Errorf("%w: others changed %d groups of %s while the switch began: %s: they are made anew",
			switchover.ErrIntruded, n, d.Upgrade.TargetVersion, strings.Join(left.Names(c), ", "))
	}
	return nil
}

func (i intruders) comparer(d upgradestate.Deployment) (*verify.Comparer, error) {
	source, target := i.app.namespaces[d.CurrentVersion], i.app.namespaces[d.Upgrade.TargetVersion]
	if source == nil || target == nil {
		return nil, errors.New("both versions must be configured")
	}
	dir, err := i.app.registry.Direction(d.CurrentVersion, d.Upgrade.TargetVersion)
	if err != nil {
		return nil, err
	}
	return verify.New(source, target, dir), nil
}
