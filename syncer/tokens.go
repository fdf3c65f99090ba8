package syncer

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// sourceTokens returns where the source's kinds are now. While renames are announced
// and not confirmed, the identity decides between the names that the record allows.
func (e *Engine) sourceTokens(ctx context.Context) (record.Tokens, error) {
	return e.tokens(ctx, e.Source, e.Direction.From())
}

func (e *Engine) targetTokens(ctx context.Context) (record.Tokens, error) {
	return e.tokens(ctx, e.Target, e.Direction.To())
}

// sourceView is how the source is read: not from before the plan's start, of which nobody
// follows the changes, and not before notBefore. (A plan InSync starts at the switch: before
// it the source was not in sync with anything.)
func (e *Engine) sourceView(ctx context.Context, notBefore record.Version) (transform.View, error) {
	toks, err := e.sourceTokens(ctx)
	return transform.View{Tokens: toks, NotBefore: e.start().Start.At}.AtLeast(notBefore), err
}

// targetView is how the target is read: not from before this engine began. What others had
// written by then, and what an earlier direction left there, is in sight, so that an orphan
// is.
func (e *Engine) targetView(ctx context.Context) (transform.View, error) {
	toks, err := e.targetTokens(ctx)
	return e.target(toks), err
}

func (e *Engine) target(toks record.Tokens) transform.View {
	e.mu.Lock()
	defer e.mu.Unlock()
	return transform.View{Tokens: toks, NotBefore: e.targetStart}
}

// start is the plan, once it is there.
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

// Tokens returns where the record has a version's kinds, by kind: under the names from before
// renames that are announced and not confirmed.
func Tokens(d upgradestate.Deployment, version string) record.Tokens {
	toks := record.Tokens{}
	for kind, places := range upgradestate.EnginePlaces(d, version) {
		toks[kind] = TokenAt(places[0])
	}
	return toks
}

// TokenAt returns the token of a kind at a place.
func TokenAt(p upgradestate.Place) record.Token {
	return record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
}

// TokenOf returns the token of a kind where the record has it.
func TokenOf(k upgradestate.Kind) record.Token {
	return record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
}

// refresh reads the record after a refusal by the database.
func (e *Engine) refresh(ctx context.Context) error {
	d, err := e.Deployments.Get(ctx)
	if err != nil {
		return fmt.Errorf("refresh deployment: %w", err)
	}
	e.setRecord(d)
	return nil
}

// awaitApply blocks while the target must not be written, and ends with errOver when it
// never may be again in this direction, with ErrOtherTransform when others write by another
// transformation. The tokens are those of the very record that allows it: a caller who
// asked for them later could get names that were announced to keep it out.
func (e *Engine) awaitApply(ctx context.Context) (record.Tokens, error) {
	toks, _, err := e.awaitLoad(ctx)
	return toks, err
}

// awaitLoad is awaitApply, and reports by the same record whether what is not there may be
// inserted without guards.
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
			toks, loads = Tokens(e.record, e.Direction.To()), upgradestate.Loads(e.record, e.Direction.To())
		}
		return true
	})
	if err == nil {
		err = never
	}
	return toks, loads, err
}

// loadersFenced reports whether everybody is kept out of the target who has read the source
// before its fences of loaders were more than so many. If not, it has one announced; the driver
// sets it, and the record shows when it is in force.
func (e *Engine) loadersFenced(ctx context.Context, more uint64) (bool, error) {
	d, to := e.current(), e.Direction.To()
	if d.Epoch != e.cfg.Epoch || e.foreign(d) != nil || !upgradestate.ApplyAllowed(d) {
		return false, nil
	}
	if upgradestate.LoadersFenced(d, to, more) {
		return true, nil
	}
	seen, _ := upgradestate.ImagesOf(d, to)
	return false, e.apply(ctx, upgradestate.FenceLoaders{Version: to, Seen: seen})
}

// bind binds the engine to the generation in its record, or refuses one that is made
// by another transformation.
func (e *Engine) bind() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if target, _ := e.record.Namespace(e.Direction.To()); target.Images.Epoch == e.cfg.Epoch {
		e.generation = target.Images.Generation
	}
	e.key, e.bound = Key(e.cfg.Epoch, e.Direction, e.generation), e.record
	return e.foreign(e.record)
}

// foreign returns why the images of this engine are not those that a record asks for. e.mu
// is held, or nobody else has the record.
func (e *Engine) foreign(d upgradestate.Deployment) error {
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
		return errOver // another engine begins anew
	}
	return nil
}

// fencedTries is how often work is started again at once when the database reports that a
// kind has moved; each time with a record that is newer or with the name it moved to.
const fencedTries = 5

// unfenced runs f, and again with fresh tokens when it met a fence: what f had read is
// dropped. A switch waits for what runs here, so it does not back off at first.
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
