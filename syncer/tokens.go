package syncer

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// sourceTokens returns the present places of the source's kinds. While a rename is announced and
// not confirmed, the collection's identity decides between its names.
func (e *Engine) sourceTokens(ctx context.Context) (record.Tokens, error) {
	return e.tokens(ctx, e.Source, e.Direction.From())
}

// targetTokens is sourceTokens for the target.
func (e *Engine) targetTokens(ctx context.Context) (record.Tokens, error) {
	return e.tokens(ctx, e.Target, e.Direction.To())
}

// sourceView returns the view for reads of the source: not older than notBefore and not older than
// the plan's start, since the engine does not follow earlier changes. Before the start of a plan
// InSync, the source was in sync with nothing.
func (e *Engine) sourceView(ctx context.Context, notBefore record.Version) (transform.View, error) {
	toks, err := e.sourceTokens(ctx)
	return transform.View{Tokens: toks, NotBefore: e.start().Start.At}.AtLeast(notBefore), err
}

// targetView returns the view for reads of the target: not older than the start of this engine.
// They include earlier writes of other controllers and the remains of an earlier direction, so that
// orphans are found.
func (e *Engine) targetView(ctx context.Context) (transform.View, error) {
	toks, err := e.targetTokens(ctx)
	return e.target(toks), err
}

func (e *Engine) target(toks record.Tokens) transform.View {
	e.mu.Lock()
	defer e.mu.Unlock()
	return transform.View{Tokens: toks, NotBefore: e.targetStart}
}

// start returns the plan, or the zero Plan before prepare.
func (e *Engine) start() Plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.plan
}

func (e *Engine) tokens(ctx context.Context, ns record.Namespace, version string) (record.Tokens, error) {
	toks := record.Tokens{}
	for kind, places := range upgradestate.EnginePlaces(e.current(), version) {
		at := places[0]
		if len(places) > 1 && at.ID != "" {
			// The record cannot show whether the rename has happened. The database can.
			name, err := ns.Locate(ctx, at.ID)
			if err != nil {
				return nil, fmt.Errorf("locate %s: %w", kind, err)
			}
			for _, p := range places {
				if p.Name == name {
					at = p
				}
			}
		}
		toks[kind] = TokenAt(at)
	}
	return toks, nil
}

// Tokens returns the tokens of a version's kinds in a Deployment, by kind. A rename that is
// announced but not confirmed does not count yet.
func Tokens(d upgradestate.Deployment, version string) record.Tokens {
	toks := record.Tokens{}
	for kind, places := range upgradestate.EnginePlaces(d, version) {
		toks[kind] = TokenAt(places[0])
	}
	return toks
}

// applierTokens is Tokens for an applier: the tokens carry the fence of kinds that keep their name.
// A record that permits writes has no pending operation on a target, so the fence is the one in
// force. After an abort, it is the new fence of the seal, and the direction goes on with it.
func applierTokens(d upgradestate.Deployment, version string) record.Tokens {
	toks := Tokens(d, version)
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		if tok, ok := toks[k.Kind]; ok {
			tok.Mark = k.Mark()
			toks[k.Kind] = tok
		}
	}
	return toks
}

// TokenAt returns the token for a place.
func TokenAt(p upgradestate.Place) record.Token {
	return record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
}

// TokenOf returns the token for a kind's confirmed place.
func TokenOf(k upgradestate.Kind) record.Token {
	return record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
}

// refresh reads the Deployment, when the watch may be behind.
func (e *Engine) refresh(ctx context.Context) error {
	d, err := e.Deployments.Get(ctx)
	if err != nil {
		return fmt.Errorf("refresh deployment: %w", err)
	}
	e.setRecord(d)
	return nil
}

// awaitApply waits until the target may be written and returns its tokens. It returns errOver if
// this direction may never write again, and ErrOtherTransform if the target is made by another
// transformation. The tokens come from the very record that permits the write: tokens of a later
// record could carry names that were announced to keep this caller out.
func (e *Engine) awaitApply(ctx context.Context) (record.Tokens, error) {
	toks, _, err := e.awaitLoad(ctx)
	return toks, err
}

// awaitLoad is awaitApply. loads reports, by the same record, whether inserts without guards are
// permitted.
func (e *Engine) awaitLoad(ctx context.Context) (toks record.Tokens, loads bool, err error) {
	var never error
	err = e.await(ctx, func() bool {
		foreign := e.foreign(e.record)
		switch {
		case e.over():
			never = errOver
		case foreign != nil:
			never = foreign
		case !upgradestate.ApplyAllowed(e.record):
			return false
		default:
			toks, loads = applierTokens(e.record, e.Direction.To()), upgradestate.Loads(e.record, e.Direction.To())
		}
		return true
	})
	if err == nil {
		err = never
	}
	return toks, loads, err
}

// loadersFenced reports whether loaders are fenced more than a given number of times. Loaders that
// read the source before such a fence can no longer write to the target. If the fence is missing,
// loadersFenced announces it: the driver of the switch sets it, and the Deployment shows when it is
// in force.
func (e *Engine) loadersFenced(ctx context.Context, more uint64) (bool, error) {
	d, to := e.current(), e.Direction.To()
	// No fence can be announced now. Housekeeping asks again.
	if d.Epoch != e.cfg.Epoch || e.foreign(d) != nil || !upgradestate.ApplyAllowed(d) {
		return false, nil
	}
	if upgradestate.LoadersFenced(d, to, more) {
		return true, nil
	}
	seen, _ := upgradestate.ImagesOf(d, to)
	return false, e.apply(ctx, upgradestate.FenceLoaders{Version: to, Seen: seen})
}

// bind binds the engine to the generation of images in its record. It refuses a target made by
// another transformation.
func (e *Engine) bind() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if target, _ := e.record.Namespace(e.Direction.To()); target.Images.Epoch == e.cfg.Epoch {
		e.generation = target.Images.Generation
	}
	e.key, e.bound = Key(e.cfg.Epoch, e.Direction, e.generation), e.record
	return e.foreign(e.record)
}

// foreign returns an error if a Deployment asks for other images than this engine makes. e.mu is
// held, or the caller alone has the record.
func (e *Engine) foreign(d upgradestate.Deployment) error {
	// The record is about another direction.
	if d.Epoch != e.cfg.Epoch {
		return nil
	}
	if u := d.Upgrade; u != nil && u.TargetVersion == e.Direction.To() && u.TransformHash != e.Direction.Hash() {
		return fmt.Errorf("%w: upgrade %s to %s runs with transform %s, this process has %s",
			ErrOtherTransform, u.ID, u.TargetVersion, u.TransformHash, e.Direction.Hash())
	}
	m, ok := upgradestate.ImagesOf(d, e.Direction.To())
	switch {
	case !ok:
		return nil
	case m.TransformHash != e.Direction.Hash():
		return fmt.Errorf("%w: records of %s are made with transform %s now, this process has %s",
			ErrOtherTransform, e.Direction.To(), m.TransformHash, e.Direction.Hash())
	case m.Generation != e.generation:
		return errOver // another engine copies again
	}
	return nil
}

// fencedTries is the number of immediate retries after the database reports that a kind has moved.
// Each retry has a newer record or the kind's new name.
const fencedTries = 5

// unfenced runs f and retries it with fresh tokens if it met a fence. f must read again on each
// call. The retries are immediate since a switch waits for them.
func (e *Engine) unfenced(ctx context.Context, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		if !errors.Is(err, record.ErrFenced) || try == fencedTries {
			return err
		}
		if err := e.refresh(ctx); err != nil {
			return err
		}
	}
}
