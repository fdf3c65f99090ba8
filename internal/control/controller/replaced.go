package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// The application's collection is the one with the configured name. An application may put another
// collection there: by a swap with renames, by $out, or by a drop and a restore. A sharded cluster
// also recreates a collection when it moves its data.
//
// Every controller looks for such replacements, and engines find them in their streams. The first
// to find one records the new identity of the kind in one transition (upgradestate.Replace). Then
// everything is copied and compared anew. While no collection has the name, nothing is compared,
// because that would empty the other version. The switch waits, and the API shows the reason.

// lookReplacedEvery is the interval at which names are checked. Streams reveal most replacements
// earlier.
const lookReplacedEvery = time.Second

// successors follows the collections that applications put in the place of those in the record.
type successors struct {
	*connections
	deployment   *deployment.Store
	replacements replacements // the replaced collections that no engine follows yet
	log          *zap.Logger
}

// replacements holds the replaced collections that are not followed yet.
type replacements struct {
	mu    sync.Mutex
	waits []upgradestate.Blocker
}

func (r *replacements) set(waits []upgradestate.Blocker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = waits
}

// why returns the blockers of a switch.
func (r *replacements) why() []upgradestate.Blocker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.waits)
}

// text returns why in one line, for display.
func (r *replacements) text() string { return replacedText(r.why()) }

func replacedText(waits []upgradestate.Blocker) string {
	var texts []string
	for _, b := range waits {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "; ")
}

// unfollowed returns the blocker for a kind whose collection was replaced and is not followed.
func unfollowed(version, kind, why string) upgradestate.Blocker {
	return upgradestate.Blocker{Code: upgradestate.BlockReplaced, Place: upgradestate.BlockPlace{Version: version, Kind: kind}, Text: why}
}

// followReplaced checks the names of the current version's collections until ctx ends.
func (s *successors) followReplaced(ctx context.Context) error {
	look := time.NewTicker(lookReplacedEvery)
	defer look.Stop()
	var failing, waiting reconcile.Complaint
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		waits, err := s.lookReplaced(ctx)
		if ended := s.endAnew(ctx); err == nil && ended != nil {
			err = fmt.Errorf("collections that are copied again: %w", ended)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failing.Over()
			s.replacements.set(waits)
		case failing.News(err):
			s.log.Warn("cannot check the names of collections", zap.Error(err))
		}
		// waits stands apart from err: both may be set, and each is logged once.
		if len(waits) == 0 {
			waiting.Over()
		} else if waiting.News(errors.New(replacedText(waits))) {
			s.log.Error("cannot follow an application's collection", zap.String("waits for", replacedText(waits)))
		}
	}
}

// lookReplaced follows the replacements that it can, and returns the blockers for the others.
func (s *successors) lookReplaced(ctx context.Context) (waits []upgradestate.Blocker, err error) {
	d, err := s.deployment.Known(ctx)
	if err != nil {
		return nil, err
	}
	ns, _ := d.Namespace(d.CurrentVersion)
	db := s.namespaces[d.CurrentVersion]
	if db == nil || !slices.ContainsFunc(ns.Kinds, func(k upgradestate.Kind) bool { return k.Fixed }) {
		return nil, nil
	}
	found, err := identity.Replacements(ctx, d, db)
	if err != nil {
		return nil, err
	}
	return s.takeReplaced(ctx, d, found)
}

// replaced implements syncer.Parts.Replaced. An engine that started with the record seen has found
// a replacement in its stream.
func (s *successors) replaced(ctx context.Context, seen upgradestate.Deployment, what *record.ReplacedError) error {
	d, err := s.deployment.Get(ctx)
	if err != nil {
		return err
	}
	version := seen.CurrentVersion
	was, _ := seen.Namespace(version)
	is, _ := d.Namespace(version)
	before, known := was.Kind(what.Kind)
	now, there := is.Kind(what.Kind)
	if d.Epoch != seen.Epoch || !known || !there || now.Replaced != before.Replaced {
		return nil // another controller recorded it already
	}
	found, err := identity.Replacements(ctx, d, s.namespaces[version])
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found, func(r identity.Replaced) bool { return r.Kind == what.Kind }) {
		// The original collection has its name again, or a fence hides the answer. Meanwhile it may
		// have changed under another name, without events. So copy it again under the same
		// identity.
		found = append(found, identity.Replaced{Version: version, Kind: what.Kind, Was: now.ID, Is: now.ID, Met: what.What})
	}
	waits, err := s.takeReplaced(ctx, d, found)
	if err == nil && len(waits) > 0 {
		err = errors.New(replacedText(waits))
	}
	return err
}

// takeReplaced records all new collections in one transition. It returns the blockers for those
// that cannot be followed yet.
func (s *successors) takeReplaced(ctx context.Context, d upgradestate.Deployment, found []identity.Replaced) (waits []upgradestate.Blocker, err error) {
	if u := d.Upgrade; len(found) > 0 && u != nil && u.State == upgradestate.Switching {
		return s.refuseReplaced(ctx, u, found)
	}
	ev := upgradestate.Replace{At: time.Now().UTC().Format(time.RFC3339)}
	for _, r := range found {
		next, err := s.claimReplaced(ctx, d, r)
		if err != nil {
			waits = append(waits, unfollowed(r.Version, r.Kind, err.Error()))
			continue
		}
		ev.Collections = append(ev.Collections, next)
	}
	if len(ev.Collections) == 0 {
		return waits, nil
	}
	_, err = s.deployment.Apply(ctx, ev)
	var refused *upgradestate.RefusedError
	switch {
	case errors.Is(err, upgradestate.ErrOutdated):
		return waits, nil // another controller has done it, or the next look does
	// The record's present state does not allow it. The API shows the reason until it does.
	case errors.As(err, &refused):
		for _, c := range ev.Collections {
			waits = append(waits, unfollowed(d.CurrentVersion, c.Kind, fmt.Sprintf("%s; controllers do not follow it yet: %v", c.Detail, err)))
		}
		return waits, nil
	case err != nil:
		return waits, err
	}
	for _, c := range ev.Collections {
		s.log.Warn("an application replaced a collection: everything is copied and compared again",
			zap.String("version", d.CurrentVersion), zap.String("kind", c.Kind), zap.String("was", c.Was), zap.String("is", c.Is), zap.String("what", c.Detail))
	}
	return waits, nil
}

// refuseReplaced aborts the switch attempt, because its fence would hit a collection that the
// application no longer uses.
func (s *successors) refuseReplaced(ctx context.Context, u *upgradestate.Upgrade, found []identity.Replaced) (waits []upgradestate.Blocker, err error) {
	for _, r := range found {
		waits = append(waits, unfollowed(r.Version, r.Kind, r.String()+"; controllers follow it after the switch is aborted"))
	}
	// An abort is under way already.
	if u.Step == upgradestate.StepAbort {
		return waits, nil
	}
	reason := "a collection was replaced during the switch: " + found[0].String()
	_, err = s.deployment.Apply(ctx, upgradestate.Abort{ID: u.ID, Attempt: u.Attempt, Reason: reason, Again: true})
	return waits, err
}

// claimReplaced claims the collection that now has the kind's name, so that it can be followed.
func (s *successors) claimReplaced(ctx context.Context, d upgradestate.Deployment, r identity.Replaced) (next upgradestate.Replaced, err error) {
	if r.Is == "" {
		return next, errors.New(r.String())
	}
	ns, _ := d.Namespace(r.Version)
	k, _ := ns.Kind(r.Kind)
	db := s.namespaces[r.Version]
	next = upgradestate.Replaced{Kind: r.Kind, Was: r.Was, Is: r.Is, Count: k.Replaced, Restore: k.Restore, Detail: r.String()}
	if r.Is == r.Was {
		return next, nil
	}
	// Look again: the name may belong to a third collection by now.
	info, err := db.Describe(ctx, record.KindSpec{Name: r.Kind, Fixed: true}, r.Kind)
	if err == nil && info.Token.ID != r.Is {
		err = errors.New("its name changed meanwhile")
	}
	if err == nil {
		_, next.Restore, err = db.Prepare(ctx, info.Token, record.FenceClass(k.Fence))
	}
	if err == nil { // claim before the record names it, so that no other deployment takes it
		err = db.Claim(ctx, syncer.TokenOf(withID(k, r.Is)), record.Owner{Deployment: d.Name, Version: r.Version})
	}
	if err != nil {
		return next, fmt.Errorf("%s; controllers cannot follow it yet: %w", r, err)
	}
	return next, nil
}

func withID(k upgradestate.Kind, id string) upgradestate.Kind {
	k.ID = id
	return k
}
