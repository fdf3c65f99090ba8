package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// rotation brings all records of the current version under one key.
type rotation struct{ *Keeper }

var _ backfill.Rotation = rotation{}

// Begin makes all processes write under the new key, and the database refuse other writes, before
// the first record is read. So records that are written later need no second pass.
func (r rotation) Begin(ctx context.Context, u upgradestate.Update, planned bool) (task transform.Task, ns backfill.Namespace, waits string, err error) {
	e, err := r.encryption(ctx, u.Version)
	switch {
	case err != nil:
		return task, nil, "", err
	case e == nil:
		return task, nil, fmt.Sprintf("the database of %s does not support encryption", u.Version), nil
	}
	s := e.Sealer()
	if u.Key != sealed.Off && !slices.Contains(s.Keys().Names(), u.Key) {
		return task, nil, fmt.Sprintf("controller %s has no key %s: add it to encryption.keys of %s there", r.ID, u.Key, u.Version), nil
	}
	if !planned {
		if waits, err = r.turn(ctx, u, e); waits != "" || err != nil {
			return task, nil, waits, err
		}
	}
	task = transform.Task{Name: u.Name, Version: u.Version, Kind: u.Kind, Prepare: func(ctx context.Context, _ []record.Record, _ transform.KeyFinder) (transform.TaskFunc, error) {
		return r.again(ctx, u)
	}}
	return task, stored{r.Keeper, u.Version}, "", nil
}

// again returns the re-encryption of one record for a page of records. It uses the present
// connection, because a run may outlast a password. An error of the database or of this process's
// keys fails the page, not a record.
func (r rotation) again(ctx context.Context, u upgradestate.Update) (transform.TaskFunc, error) {
	e, err := r.encryption(ctx, u.Version)
	if err != nil {
		return nil, err
	}
	s := e.Sealer()
	if err := s.Check(ctx); err != nil {
		return nil, err
	}
	return func(rec record.Record) (bson.Raw, error) {
		doc, err := s.Again(ctx, u.ID, record.Token{Kind: u.Kind}, rec)
		// Another State or a missing database is not the record's fault. As unavailable, it is
		// retried instead of parked.
		if err != nil && (errors.Is(err, sealed.ErrOvertaken) || r.Backend.Unavailable(err)) {
			err = fmt.Errorf("%w: %w", record.ErrUnavailable, err)
		}
		return doc, err
	}, nil
}

// turn makes all processes write under u's key. It returns waits, the missing condition, if it
// cannot do so yet.
//
// turn reads the State before the record. If the record still runs u then, and no other run changes
// the State in between, u is the latest run. A process that paused therefore cannot set an earlier
// key again.
//
// The database accepts both keys before the State names the new one, and only the new key after
// that. So a writer is refused for no longer than it needs to read the State.
func (r rotation) turn(ctx context.Context, u upgradestate.Update, e *sealed.Namespace) (waits string, err error) {
	s := e.Sealer()
	st, err := s.State(ctx)
	if err != nil {
		return "", err
	}
	d, err := r.Deployments.Get(ctx)
	switch {
	case err != nil:
		return "", err
	case d.Update == nil || d.Update.ID != u.ID:
		return "what runs instead of " + u.ID, nil
	}
	toks := managed(d, u.Version)
	kinds, err := shapes(ctx, toks, e)
	if err != nil {
		return "", err
	}
	if st.Run != u.ID {
		// A process without the key could not read records that others write under it.
		if waits, err = r.lacking(ctx, u, s.Keys()); waits != "" || err != nil {
			return waits, err
		}
		// Accept both keys before any process learns of the new one.
		if err := e.Hold(ctx, toks, u.Key); err != nil {
			return "", err
		}
		if err := s.Turn(ctx, st.Run, u.ID, u.Key, kinds); err != nil {
			return "", err
		}
	}
	if u.Key != sealed.Off { // kinds may be new since the key was turned
		if err := s.Begin(ctx, kinds); err != nil {
			return "", err
		}
	}
	// Also if an earlier attempt stopped after Turn: the former key must be refused.
	return "", e.Hold(ctx, toks)
}

// managed returns the tokens of a version's managed kinds. Only those may be encrypted.
func managed(d upgradestate.Deployment, version string) (toks []record.Token) {
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		if !k.Fixed {
			toks = append(toks, syncer.TokenOf(k))
		}
	}
	return toks
}

// shapes returns the kinds of tokens with their present indexes.
func shapes(ctx context.Context, toks []record.Token, e *sealed.Namespace) ([]record.KindSpec, error) {
	var out []record.KindSpec
	for _, tok := range toks {
		info, err := e.Describe(ctx, record.KindSpec{Name: tok.Kind}, tok.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, record.KindSpec{Name: tok.Kind, Shape: info.Shape})
	}
	return out, nil
}

// rotationOf returns the update that brings all records of d's current version under a key. ok is
// false if the version has no managed kinds.
func rotationOf(d upgradestate.Deployment, key string) (u upgradestate.Update, ok bool) {
	ns, _ := d.Namespace(d.CurrentVersion)
	for _, k := range ns.Kinds {
		if !k.Fixed {
			u.Rest = append(u.Rest, k.Kind)
		}
	}
	if len(u.Rest) == 0 {
		return u, false
	}
	u.Name, u.Version, u.Key = upgradestate.RotateKeys, d.CurrentVersion, key
	u.Hash = transform.Task{Name: u.Name, Version: u.Version, Revision: key}.Hash()
	u.Kind, u.Rest = u.Rest[0], u.Rest[1:]
	return u, true
}

// switchedLately reports whether a rollback of the latest switch is still likely.
func switchedLately(d upgradestate.Deployment) bool {
	if !upgradestate.ReverseSynced(d) {
		return false
	}
	at, err := time.Parse(time.RFC3339, d.LastSwitch.At)
	return err == nil && time.Since(at) < afterSwitch
}

// outcomeOf returns how an update ended. It returns "" if the update runs or the history no longer
// has it.
func outcomeOf(d upgradestate.Deployment, id string) string {
	for _, e := range slices.Backward(d.History) {
		if e.What == "update" && e.ID == id {
			return e.Outcome
		}
	}
	return ""
}
