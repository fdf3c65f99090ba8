package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// The leader checks fences for as long as they stand. A client with write access may drop a view or
// change a validator, and then write to a version that does not serve. The leader restores the
// fence at once and records a breach. The breach counts until a person accepts it.

// checkFencesEvery is the interval between checks.
const checkFencesEvery = time.Second

// uphold checks the fences while this controller leads.
func (a *App) uphold(ctx context.Context) error {
	look := time.NewTicker(checkFencesEvery)
	defer look.Stop()
	var failing reconcile.Complaint // a database may be away for long: log each problem once
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		err := a.upholdAll(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failing.Over()
		case failing.News(err):
			a.log.Warn("cannot check fences", zap.Error(err))
		}
	}
}

func (a *App) upholdAll(ctx context.Context) error {
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return err
	}
	var errs error
	for _, ns := range d.Namespaces {
		if slices.ContainsFunc(ns.Kinds, func(k upgradestate.Kind) bool { return a.upheld(d, ns, k) }) {
			errs = errors.Join(errs, a.upholdVersion(ctx, ns.Version))
		}
	}
	return errs
}

// upheld reports whether a kind has a fence to check.
func (a *App) upheld(d upgradestate.Deployment, ns upgradestate.Namespace, k upgradestate.Kind) bool {
	// A fence of these classes can come after its end, and Uphold then lifts it.
	late := k.Fence == string(record.FenceRole) || k.Fence == string(record.FenceValidator)
	// The process that moves a kind with a pending operation also confirms it.
	return k.Fixed && (k.Fenced != "" || late) && k.Pending == nil && a.namespaces[ns.Version] != nil &&
		!upgradestate.Retired(d, ns.Version) && !upgradestate.Namesake(d, ns, k)
}

func (a *App) upholdVersion(ctx context.Context, version string) error {
	// A restore to a time before the fence is no breach: the version is then made anew under other
	// names. So check for it first, and read the record after that. A restore between this check
	// and the next command is safe. identity.Reform ends the fence before it makes the version
	// anew, so the command does nothing.
	if behind, err := a.isBehind(ctx, version); behind || err != nil {
		return err
	}
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return err
	}
	known := knownIDs(d)
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		if !a.upheld(d, ns, k) {
			continue
		}
		found, err := a.namespaces[version].Uphold(ctx, record.Fence{Class: record.FenceClass(k.Fence), Token: syncer.TokenOf(k), To: k.Fenced, Restore: k.Restore}, known)
		if err != nil {
			return fmt.Errorf("fence of %s of %s: %w", k.Kind, version, err)
		}
		if err := a.noteBreaches(ctx, d, version, k.Kind, found); err != nil {
			return err
		}
	}
	return nil
}

// isBehind reports whether a database has fewer beats than recorded: it was restored.
func (a *App) isBehind(ctx context.Context, version string) (bool, error) {
	if a.opts.reads || a.opts.alone {
		return false, nil
	}
	err := a.pulses.get(a, version, a.namespaces[version]).Look(ctx)
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

// knownIDs returns the identities of all collections in the record.
func knownIDs(d upgradestate.Deployment) []string {
	var known []string
	for _, ns := range d.Namespaces {
		for _, k := range ns.Kinds {
			known = append(known, k.ID)
		}
	}
	return known
}

// noteBreaches records breaches, and logs each of them once.
func (a *App) noteBreaches(ctx context.Context, d upgradestate.Deployment, version, kind string, found []record.Breach) error {
	for _, b := range found {
		at := time.Now().UTC().Format(time.RFC3339)
		ev := upgradestate.Breached{Breach: upgradestate.Breach{At: at, Version: version, Kind: kind, What: b.What, Aside: b.Aside, Count: b.Count}}
		// Apply on the copy: if the list does not grow, the breach is recorded already.
		next, err := upgradestate.Apply(d, ev)
		if err == nil && len(next.Breaches) == len(d.Breaches) {
			continue // known
		}
		if _, err := a.deployment.Apply(ctx, ev); err != nil {
			return fmt.Errorf("note a breach of %s of %s: %w", kind, version, err)
		}
		a.log.Error("a fence was missing and is restored", zap.String("version", version), zap.String("kind", kind),
			zap.String("found", b.What), zap.String("aside", b.Aside), zap.Int64("documents", b.Count))
	}
	return nil
}

// countBreaches counts the writes that passed a broken fence as mismatches of a comparison.
func countBreaches(rep verify.Report, d upgradestate.Deployment) verify.Report {
	for _, b := range upgradestate.OpenBreaches(d) {
		rep.Mismatched += max(1, b.Count)
		rep.Examples = append(rep.Examples, fmt.Sprintf("%s of %s: %s", b.Kind, b.Version, b.What))
	}
	return rep
}
