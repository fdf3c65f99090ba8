package syncer

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller/record"
	"dbcontroller/upgradestate"
)

// sourceTokens returns where the source's kinds are now. While renames are announced
// and not confirmed, the identity decides between the names that the record allows.
func (e *Engine) sourceTokens(ctx context.Context) (record.Tokens, error) {
	return e.tokens(ctx, e.Source, e.Direction.From())
}

func (e *Engine) targetTokens(ctx context.Context) (record.Tokens, error) {
	return e.tokens(ctx, e.Target, e.Direction.To())
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
		toks[kind] = record.Token{Kind: kind, Name: at.Name, ID: at.ID, Fixed: at.Fixed}
	}
	return toks, nil
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
// never may be again in this direction.
func (e *Engine) awaitApply(ctx context.Context) error {
	err := e.await(ctx, func() bool { return e.over() || upgradestate.ApplyAllowed(e.record) })
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over() {
		return errOver
	}
	return nil
}

// fencedTries is how often work is begun again at once when the database says that a
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
