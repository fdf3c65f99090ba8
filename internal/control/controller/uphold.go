package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// The leader checks fences for as long as they stand. A client with write access may drop a view or
// change a validator, and then write to a version that does not serve. The leader records a breach
// and restores the fence, in this order: after the repair, no later leader would find the breach. Only
// while etcd is away the fence comes first, after noteAtMost. A leader that dies then, before etcd is
// back, takes the breach along. The breach counts until a person accepts it.

const (
	// checkFencesEvery is the interval between checks.
	checkFencesEvery = time.Second
	// lateFences is the number of checks of which one also looks for validators that came after the
	// end of their fence: a command for each open kind, of which there may be a thousand.
	lateFences = 30
	// noteAtMost is how long an open fence waits for the record of its breach. etcd may be away for an
	// election. A longer wait lets more writes pass, and a shorter one loses more breaches if this
	// process dies meanwhile.
	noteAtMost = time.Second
)

// fences keeps the fences of the record in force.
type fences struct {
	*connections
	opts       *Options
	deployment *deployment.Store
	beats      *beats
	log        *zap.Logger
}

// uphold checks the fences while this controller leads.
func (f *fences) uphold(ctx context.Context) error {
	look := time.NewTicker(checkFencesEvery)
	defer look.Stop()
	var failing reconcile.Complaint // a database may be away for long: log each problem once
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		err := f.upholdAll(ctx, n%lateFences == 0)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failing.Over()
		case failing.News(err):
			f.log.Warn("cannot check fences", zap.Error(err))
		}
	}
}

func (f *fences) upholdAll(ctx context.Context, late bool) error {
	d, err := f.deployment.Known(ctx) // upholdVersion reads again
	if err != nil {
		return err
	}
	var errs error
	for _, ns := range d.Namespaces {
		if slices.ContainsFunc(ns.Kinds, func(k upgradestate.Kind) bool { return f.upheld(d, ns, k, late) }) {
			errs = errors.Join(errs, f.upholdVersion(ctx, ns.Version, late))
		}
	}
	return errs
}

// upheld reports whether a kind has a fence to check. late includes kinds without one.
func (f *fences) upheld(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind, late bool) bool {
	role := k.Fence == string(record.FenceRole)
	// In a switch the driver itself looks at the fences of the current version before the flip. It must
	// find them as they are: a fence that was put back would hide that writes passed it. What etcd
	// permits to roles only this check sees as a whole.
	if !role && switching(d) && ns.Version == d.CurrentVersion {
		return false
	}
	// A fence of these classes can come after its end, and Uphold then lifts it.
	late = role || late && k.Fence == string(record.FenceValidator)
	// The process that moves a kind with a pending operation also confirms it.
	return k.Fixed && (k.Fenced != "" || late) && k.Pending == nil && f.namespaces[ns.Version] != nil &&
		!upgradestate.Retired(d, ns.Version) && !upgradestate.Namesake(d, ns, k)
}

func (f *fences) upholdVersion(ctx context.Context, version string, late bool) error {
	// A restore to a time before the fence is no breach: the version is then made anew under other
	// names. So check for it first, and read the record after that. A restore between this check
	// and the next command is safe. identity.Reform ends the fence before it makes the version
	// anew, so the command does nothing.
	if behind, err := f.isBehind(ctx, version); behind || err != nil {
		return err
	}
	d, err := f.deployment.Get(ctx)
	if err != nil {
		return err
	}
	known := identity.KnownIDs(d)
	ns, _ := d.Namespace(version)
	var errs error // one kind must not keep the others from their check
	for _, k := range ns.Kinds {
		if !f.upheld(d, ns, k, late) {
			continue
		}
		fence := record.Fence{Class: record.FenceClass(k.Fence), Token: syncer.TokenOf(k), To: k.Fenced, Restore: k.Restore}
		if err := f.upholdKind(ctx, d, version, fence, known); err != nil {
			errs = errors.Join(errs, fmt.Errorf("fence of %s of %s: %w", k.Kind, version, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errs
}

// upholdKind checks one fence. It records the breaches that it found, then restores the fence.
func (f *fences) upholdKind(ctx context.Context, d upgradestate.Deployment, version string, fence record.Fence, known []string) error {
	fence.Look = true
	found, err := f.namespaces[version].Uphold(ctx, fence, known)
	if err != nil {
		return err
	}
	noted := make(chan error, 1)
	go func() { noted <- f.noteBreaches(ctx, d, version, fence.Token.Kind, found) }()
	// Collections that were set aside are found for as long as they exist. They need no repair.
	if !slices.ContainsFunc(found, func(b record.Breach) bool { return b.Aside == "" }) {
		return <-noted
	}
	open := time.NewTimer(noteAtMost)
	defer open.Stop()
	select {
	case err = <-noted:
		noted <- err
	case <-open.C:
	}
	// Also after an error: the fence is open. The next leader restores it if this process has to end.
	if ctx.Err() != nil {
		return <-noted
	}
	err = f.repair(ctx, version, fence, known, found)
	return errors.Join(<-noted, err)
}

// repair restores a fence and records the breaches that only the repair finds.
func (f *fences) repair(ctx context.Context, version string, fence record.Fence, known []string, found []record.Breach) error {
	fence.Look = false
	repaired, err := f.namespaces[version].Uphold(ctx, fence, known)
	if err != nil {
		return err
	}
	repaired = slices.DeleteFunc(repaired, func(b record.Breach) bool { return slices.Contains(found, b) })
	if len(repaired) == 0 {
		return nil
	}
	d, err := f.deployment.Get(ctx)
	if err != nil {
		return err
	}
	return f.noteBreaches(ctx, d, version, fence.Token.Kind, repaired)
}

// isBehind reports whether a database has fewer beats than recorded: it was restored.
func (f *fences) isBehind(ctx context.Context, version string) (bool, error) {
	if f.opts.reads || f.opts.alone {
		return false, nil
	}
	err := f.beats.pulses.get(f.beats, version, f.namespaces[version]).Look(ctx)
	var restored *identity.RestoredError
	var forged *identity.ForgedBeatError
	switch {
	case errors.As(err, &restored):
		return true, nil
	case errors.As(err, &forged):
		return false, nil // a forged beat must not stop the check of a fence
	}
	return false, err
}

// noteBreaches records breaches, and logs each of them once.
func (f *fences) noteBreaches(ctx context.Context, d upgradestate.Deployment, version, kind string, found []record.Breach) error {
	for _, b := range found {
		at := time.Now().UTC().Format(time.RFC3339)
		ev := upgradestate.Breached{Breach: upgradestate.Breach{At: at, Version: version, Kind: kind, What: b.What, Aside: b.Aside, Count: b.Count}}
		// Apply on the copy: if the list stays the same, the breach is recorded already. In a switch it
		// may still have to end the attempt.
		next, err := upgradestate.Apply(d, ev)
		if err == nil && slices.Equal(next.Breaches, d.Breaches) && attemptOf(next) == attemptOf(d) {
			continue // known
		}
		// Repeat it here, since some repairs come with the look: etcd may be away for an election.
		policy := backoff.NewExponentialBackOff(backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
		err = backoff.Retry(func() error {
			_, err := f.deployment.Apply(ctx, ev)
			var refused *upgradestate.RefusedError
			if errors.As(err, &refused) { // such as for a version that is gone by now
				return backoff.Permanent(err)
			}
			return err
		}, backoff.WithContext(policy, ctx))
		if err != nil {
			return fmt.Errorf("note a breach of %s of %s: %w", kind, version, err)
		}
		f.log.Error("a fence was missing and is being restored", zap.String("version", version), zap.String("kind", kind),
			zap.String("found", b.What), zap.String("aside", b.Aside), zap.Int64("documents", b.Count))
	}
	return nil
}

// attemptOf returns the number of the attempt at the switch, which a breach may end.
func attemptOf(d upgradestate.Deployment) uint64 {
	if d.Upgrade == nil {
		return 0
	}
	return d.Upgrade.Attempt
}
