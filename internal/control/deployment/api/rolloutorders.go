package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/rollout"
	"dbcontroller.dev/upgradestate"
)

// mayRollOut refuses deployments that do not exist, do not know the target, or are in another
// rollout.
func (v *Service) mayRollOut(ctx context.Context, r rollout.Rollout) error {
	for _, name := range rollout.Names(r) {
		s, err := v.own.Other(name)
		if err != nil {
			return err
		}
		d, err := s.Get(ctx)
		if err != nil {
			return err
		}
		if _, known := d.Namespace(r.TargetVersion); !known {
			return refuse(fmt.Sprintf("rollout begin: %s has no version %s: start a controller that is configured with it", name, r.TargetVersion))
		}
	}
	return v.alone(ctx, "begin", r)
}

// alone refuses verb if a deployment of the rollout is in another one that has not ended. Each of the
// two would take the other's upgrades for those of an operator.
func (v *Service) alone(ctx context.Context, verb string, r rollout.Rollout) error {
	all, unreadable, err := v.rollouts().All(ctx)
	if err != nil {
		return err
	}
	if len(unreadable) > 0 {
		return besideUnreadable(verb, unreadable[0])
	}
	for _, other := range all {
		if other.Name == r.Name || !rollout.Open(other) {
			continue
		}
		for _, name := range rollout.Names(r) {
			if _, _, both := other.Item(name); both {
				return refuse(fmt.Sprintf("rollout %s: %s is in rollout %s, which is %s: let it end, or stop it", verb, name, other.Name, other.State))
			}
		}
	}
	return nil
}

// besideUnreadable refuses verb, because another rollout cannot be read, and says what to do.
func besideUnreadable(verb string, err error) error {
	var other *deployment.UnreadableRolloutError
	if !errors.As(err, &other) {
		return err
	}
	return fmt.Errorf("rollout %s: another rollout cannot be read and may have the same deployments: %w: a newer controller may read it; 'rollout forget %s --confirm %s' deletes it",
		verb, err, other.Name, other.Name)
}

// requester returns the name for the history of a rollout.
func requester(ctx context.Context, r request) (string, error) {
	ctx, err := asked(ctx, r)
	if err != nil {
		return "", err
	}
	who := deployment.Asker(ctx)
	// A name that the caller gives proves nothing.
	if caller, ok := access.CallerOf(ctx); ok && caller.Proven() && caller.Name != who {
		who = fmt.Sprintf("%s (%s)", caller.Name, who)
	}
	return historyName(who), nil
}

// historyName bounds a name that a history stores, and keeps it on one line. A name is never a reason
// to refuse an order: nothing could mend it.
func historyName(name string) string {
	name = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '?'
		}
		return c
	}, name)
	if len(name) <= longestName {
		return name
	}
	const more = "..."
	return strings.ToValidUTF8(name[:longestName-len(more)], "") + more
}

// BeginFor begins an upgrade as BeginUpgrade does, with the given id, if the conditions hold. The
// upgrade switches as soon as it is ready.
// deployment.ErrOwnership means that one does not.
func (v *Service) BeginFor(ctx context.Context, id, target, by string, conditions ...coord.Condition) error {
	req := &pb.BeginUpgradeRequest{TargetVersion: target}
	_, err := v.beginUpgrade(deployment.AskedBy(ctx, historyName(by)), req, beginning{id, v.automatic, conditions})
	return err
}

// AbortFor aborts an upgrade of this process's deployment, if the conditions hold.
func (v *Service) AbortFor(ctx context.Context, id, reason, by string, conditions ...coord.Condition) error {
	_, err := v.own.Apply(deployment.AskedBy(ctx, historyName(by)), upgradestate.Abort{ID: id, Reason: reason}, conditions...)
	return err
}
