package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// A sharded cluster recreates collections when it moves or reshards them. The database then refuses
// every process that knows the old collection of a managed kind, servers included. The leader looks
// for that. It accepts the new collection, in a new epoch, if the changes since the latest sighting
// prove that only the cluster moved it (identity.Proven). Otherwise it may be an older or a foreign
// collection, and a person decides ('recover').

const (
	// lookMovedEvery is the interval at which the leader looks for moved collections.
	lookMovedEvery = time.Second
	// sightEvery is the interval of sightings of unchanged collections. A proof reads the changes
	// since then, and the server must still have them.
	sightEvery = time.Minute
	// proofLimit bounds a proof, which waits for every shard.
	proofLimit = time.Minute
)

// adoption accepts the collections that the cluster has moved.
type adoption struct {
	*connections
	cfg        Settings
	opts       *Options
	backend    Backend
	deployment *deployment.Store
	beats      *beats
	moves      replacements // the moved collections that are not accepted
	log        *zap.Logger
}

// followMoved looks for moved collections while this controller leads.
func (a *adoption) followMoved(ctx context.Context) error {
	look := time.NewTicker(lookMovedEvery)
	defer look.Stop()
	w := &moveWatch{sighted: map[string]time.Time{}}
	defer a.moves.set(nil) // the next leader looks by itself
	var failing, waiting reconcile.Complaint
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		waits, err := a.lookMoved(ctx, w)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failing.Over()
		case failing.News(err):
			a.log.Warn("moved collections cannot be looked for", zap.Error(err))
		}
		if err == nil || len(waits) > 0 {
			a.moves.set(waits)
		}
		if len(waits) == 0 {
			waiting.Over()
		} else if waiting.News(errors.New(replacedText(waits))) {
			a.log.Error("a collection is not accepted", zap.String("waits for", replacedText(waits)))
		}
	}
}

// moveWatch is what a leader remembers between looks.
type moveWatch struct {
	sighted map[string]time.Time // by version
	// again is the time of the next attempt to accept collections. An attempt opens connections and
	// reads changes, and its reason to refuse seldom goes away by itself.
	again time.Time
	waits []upgradestate.Blocker // from the latest attempt
}

// lookMoved accepts moved collections. It returns the blockers for those that it must not accept.
func (a *adoption) lookMoved(ctx context.Context, w *moveWatch) (waits []upgradestate.Blocker, err error) {
	d, err := a.deployment.Known(ctx)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, ns := range d.Namespaces {
		db := a.databases[ns.Version]
		mover, can := db.(identity.Mover)
		if !can || upgradestate.Retired(d, ns.Version) || ns.Identity.Database == "" {
			continue
		}
		if !db.Opened() {
			// It is not opened if it does not fit the record, as after a move.
			var mismatch *identity.MismatchError
			if errors.As(db.Problem(), &mismatch) {
				lost = append(lost, ns.Version)
			}
			continue
		}
		if moves, err := mover.Moves(ctx); err != nil || !moves {
			if err != nil {
				return nil, fmt.Errorf("database of %s: %w", ns.Version, err)
			}
			continue
		}
		kinds, err := identity.Lost(ctx, d, ns.Version, db)
		if err != nil {
			return nil, err
		}
		switch {
		case len(kinds) > 0 && switching(d):
			return nil, a.refuseMoved(ctx, d.Upgrade, ns.Version, kinds)
		case len(kinds) > 0:
			lost = append(lost, ns.Version)
		case !switching(d):
			due := time.Since(w.sighted[ns.Version]) >= sightEvery
			if err := identity.Look(ctx, d, ns.Version, db, a.deployment, due); err != nil {
				return nil, err
			}
			if due {
				w.sighted[ns.Version] = time.Now()
			}
		}
	}
	if len(lost) == 0 || switching(d) {
		return nil, nil
	}
	if time.Now().Before(w.again) {
		return w.waits, nil
	}
	accepted, err := a.acceptMoved(ctx)
	w.again = time.Time{}
	if !accepted {
		w.again = time.Now().Add(retryEngine)
	}
	w.waits, err = notAccepted(lost, err)
	return w.waits, err
}

// notAccepted returns the blocker for a reason not to accept a collection. It also returns an error that
// may go away by itself, such as a proof that takes too long or a database that does not answer.
func notAccepted(lost []string, err error) ([]upgradestate.Blocker, error) {
	b := upgradestate.Blocker{Code: upgradestate.BlockIdentity, Place: upgradestate.BlockPlace{Version: lost[0]}}
	var unproven *identity.UnprovenError
	var refused *upgradestate.RefusedError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &unproven):
		b.Place = upgradestate.BlockPlace{Version: unproven.Version, Kind: unproven.Kind}
		b.Text = err.Error() + ": look at the collection, and run 'dbcontroller recover', which accepts it"
	case errors.As(err, &refused):
		b.Text = "moved collections of " + strings.Join(lost, " and ") + " are not accepted yet: " + err.Error()
	default:
		b.Text = "moved collections of " + strings.Join(lost, " and ") + " are not accepted yet, and this is tried again: " + err.Error()
		return []upgradestate.Blocker{b}, err
	}
	return []upgradestate.Blocker{b}, nil
}

func switching(d upgradestate.Deployment) bool {
	return d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching
}

// refuseMoved ends the switch: the database refuses every act on the collection that the record
// has. Once the abort is complete, the new collection can be accepted.
func (a *adoption) refuseMoved(ctx context.Context, u *upgradestate.Upgrade, version string, kinds []string) error {
	if u.Step == upgradestate.StepAbort {
		return nil
	}
	_, err := a.deployment.Apply(ctx, upgradestate.Abort{ID: u.ID, Attempt: u.Attempt, Reason: movedReason(version, kinds)})
	return err
}

func movedReason(version string, kinds []string) string {
	slices.Sort(kinds)
	return fmt.Sprintf("the collection of kind %s of %s was recreated, as movePrimary and reshardCollection do: begin the upgrade again once everything is copied anew",
		strings.Join(kinds, ", "), version)
}

// acceptMoved accepts all collections that the cluster has moved, in one transition that begins a
// new epoch. A running upgrade that has not switched ends before. It returns an
// *identity.UnprovenError if the changes do not show that the cluster made a collection, and no
// error if nothing was recreated.
//
// It uses the databases without the check of their identity, which they fail until then. Other
// controllers may do the same at the same time: each step may be repeated, and only the first
// transition counts. It does not write the final marks, as 'recover' does, because a late write
// could overwrite those of a later switch. The leader does.
func (a *adoption) acceptMoved(ctx context.Context) (accepted bool, err error) {
	if a.opts.reads || a.opts.alone {
		return false, nil
	}
	d, err := a.deployment.Get(ctx)
	if err != nil || switching(d) {
		return false, err
	}
	conns, disconnect := a.backend.Connect(a.cfg.Databases, Opening{Log: a.log})
	defer disconnect(context.WithoutCancel(ctx))
	markers := map[string]record.Marker{}
	for _, ns := range d.Namespaces {
		if conn := conns[ns.Version]; conn != nil && ns.Identity.Database != "" && !upgradestate.Retired(d, ns.Version) {
			markers[ns.Version] = conn
		}
	}
	// Every database must answer, because each gets the mark of the new epoch.
	e, err := identity.Gather(ctx, d.Name, markers)
	if err != nil {
		return false, err
	}
	anew, err := e.MadeAnew(d)
	if len(anew) == 0 {
		return false, nil // another difference, which others report
	}
	if err != nil {
		return false, err
	}
	if err := a.proveMoved(ctx, d, conns, anew); err != nil {
		return false, err
	}
	if u := d.Upgrade; u != nil {
		var kinds []string
		for _, c := range anew {
			kinds = append(kinds, c.Kind)
		}
		if d, err = a.deployment.Apply(ctx, upgradestate.Abort{ID: u.ID, Attempt: u.Attempt, Reason: movedReason(anew[0].Version, kinds)}); err != nil {
			return false, err
		}
	}
	ev := upgradestate.Adopt{Epoch: d.Epoch, Collections: anew}
	next, err := upgradestate.Apply(d, ev)
	if err != nil {
		return false, err
	}
	// Mark the databases first. Until the leader has written the final marks, they fit both records.
	if err := identity.Announce(ctx, next, identity.RecoveryID+a.opts.ID, markers); err != nil {
		return false, err
	}
	if err := identity.Reclaim(ctx, identity.Anew(next, anew), markers); err != nil {
		return false, err
	}
	if d, err = a.deployment.Apply(ctx, ev); err != nil {
		return false, err
	}
	for _, c := range anew {
		if err := identity.Follow(ctx, d, c.Version, a.deployment); err != nil {
			a.log.Warn("another move is not followed until the next look", zap.String("version", c.Version), zap.Error(err))
		}
		a.log.Warn("the cluster moved a collection: the new one is accepted, and everything is copied and compared anew",
			zap.String("version", c.Version), zap.String("kind", c.Kind), zap.String("was", c.Was), zap.String("is", c.Is))
	}
	return true, nil
}

// proveMoved checks that the cluster made all these collections, and that no database of them was
// restored. A person decides about a restored one, and a new epoch would end that choice.
func (a *adoption) proveMoved(ctx context.Context, d upgradestate.Deployment, conns map[string]Connection, anew []upgradestate.Adopted) error {
	if r, restored := upgradestate.WasRestored(d); restored {
		return &identity.UnprovenError{Version: r.Version, Kind: anew[0].Kind, Why: "the database of " + r.Version + " was restored from a backup"}
	}
	ctx, cancel := context.WithTimeout(ctx, proofLimit)
	defer cancel()
	byVersion := map[string][]upgradestate.Adopted{}
	for _, c := range anew {
		byVersion[c.Version] = append(byVersion[c.Version], c)
	}
	for version, collections := range byVersion {
		conn := conns[version]
		mover, can := conn.(identity.Mover)
		if !can {
			return &identity.UnprovenError{Version: version, Kind: collections[0].Kind, Why: "its backend moves no collections"}
		}
		if err := a.beats.pulse(version, conn).Look(ctx); err != nil {
			return err
		}
		if err := identity.Proven(ctx, d, version, mover, a.deployment, collections); err != nil {
			return err
		}
		if err := supported(ctx, d, version, conn, collections); err != nil {
			return err
		}
	}
	return nil
}

// supported refuses collections that cannot hold a kind any more: resharded by another key, a collection
// can have two records of one name.
func supported(ctx context.Context, d upgradestate.Deployment, version string, db record.Namespace, anew []upgradestate.Adopted) error {
	ns, _ := d.Namespace(version)
	for _, c := range anew {
		k, _ := ns.Kind(c.Kind)
		names := []string{k.Physical}
		if k.Pending != nil {
			names = append(names, k.Pending.To)
		}
		for _, name := range names {
			_, err := db.Describe(ctx, record.KindSpec{Name: c.Kind}, name)
			var unsupported *record.UnsupportedError
			if errors.As(err, &unsupported) {
				return &identity.UnprovenError{Version: version, Kind: c.Kind, Why: err.Error()}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
