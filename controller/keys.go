package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/backfill"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/sealed"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Encrypted is a Connection whose managed kinds may be encrypted.
type Encrypted interface {
	// Encryption is what encrypts the namespace, and the namespace as it is stored.
	Encryption(ctx context.Context) (*sealed.Namespace, error)
	// KeysHere are the keys that this process is configured with (sealed.Keys.Checked).
	KeysHere() []string
	// Unreadable returns why records could not be decrypted; nil: nothing is known of that kind.
	Unreadable() error
}

// encryption is that of a version's database; nil where there can be none.
func (a *App) encryption(ctx context.Context, version string) (*sealed.Namespace, error) {
	db, ok := a.databases[version].(Encrypted)
	if !ok {
		return nil, nil //nolint:nilnil // it is asked for
	}
	e, err := db.Encryption(ctx)
	if err != nil || a.opts.Wrap == nil {
		return e, err
	}
	return e.Sealer().Namespace(a.opts.Wrap(version, e.Stored())), nil
}

// beginKeys has new kinds of a namespace encrypted from their first record on. take makes them the
// namespace's, and begins it where it is not.
func (a *App) beginKeys(ctx context.Context, version string, kinds []record.KindSpec, take func(first *sealed.State) error) error {
	e, err := a.encryption(ctx, version)
	if err != nil {
		return err
	}
	if e == nil {
		return take(nil)
	}
	first, err := e.Sealer().First(kinds)
	if err != nil {
		return err
	}
	if err := take(first); err != nil {
		return err
	}
	return e.Sealer().Begin(ctx, kinds)
}

// rotation puts all records of the current version under a key.
type rotation struct{ *App }

var _ backfill.Rotation = rotation{}

// Begin has everybody write under the key, and the database refuse what is not, before the first
// record is looked at: what is written later needs no second look.
func (r rotation) Begin(ctx context.Context, u upgradestate.Update, planned bool) (task transform.Task, ns backfill.Namespace, waits string, err error) {
	e, err := r.encryption(ctx, u.Version)
	switch {
	case err != nil:
		return task, nil, "", err
	case e == nil:
		return task, nil, fmt.Sprintf("the database of %s cannot be encrypted", u.Version), nil
	}
	s := e.Sealer()
	if u.Key != sealed.Off && !slices.Contains(s.Keys().Names(), u.Key) {
		return task, nil, fmt.Sprintf("controller %s has no key %s: add it to encryption.keys of %s there", r.opts.ID, u.Key, u.Version), nil
	}
	if !planned {
		if waits, err = r.turn(ctx, u, e); waits != "" || err != nil {
			return task, nil, waits, err
		}
	}
	task = transform.Task{Name: u.Name, Version: u.Version, Kind: u.Kind, Prepare: func(ctx context.Context, _ []record.Record, _ transform.KeyFinder) (transform.TaskFunc, error) {
		return r.again(ctx, u)
	}}
	return task, stored{r.App, u.Version}, "", nil
}

// again is what is to be done to the records of a page, by the login of now. What is not of one
// record, but of the database or of this process's keys, is an error of the page.
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
		if err != nil && (errors.Is(err, sealed.ErrOvertaken) || r.backend.Unavailable(err)) {
			err = fmt.Errorf("%w: %w", record.ErrUnavailable, err)
		}
		return doc, err
	}, nil
}

// turn changes the key that everybody writes under. waits: what has to be before.
//
// The State is read before the record: where u still runs after that, and no other run has come
// between when the State changes, u is the latest one. Who slept since cannot set the key back.
//
// The database takes both keys before the State names the new one, and that one alone after it, so
// that no write is refused for longer than its writer needs to read the State.
func (r rotation) turn(ctx context.Context, u upgradestate.Update, e *sealed.Namespace) (waits string, err error) {
	s := e.Sealer()
	st, err := s.State(ctx)
	if err != nil {
		return "", err
	}
	d, err := r.deployment.Get(ctx)
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
		if waits, err = r.lacking(ctx, u, s.Keys()); waits != "" || err != nil {
			return waits, err
		}
		if err := e.Hold(ctx, toks, u.Key); err != nil {
			return "", err
		}
		if err := s.Turn(ctx, st.Run, u.ID, u.Key, kinds); err != nil {
			return "", err
		}
	}
	if u.Key != sealed.Off { // kinds may have come since the key was turned
		if err := s.Begin(ctx, kinds); err != nil {
			return "", err
		}
	}
	return "", e.Hold(ctx, toks)
}

// managed are the tokens of the kinds of a version that may be encrypted.
func managed(d upgradestate.Deployment, version string) (toks []record.Token) {
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		if !k.Fixed {
			toks = append(toks, syncer.TokenOf(k))
		}
	}
	return toks
}

// shapes are kinds with the indexes that they have.
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

// rotationOf is the update that puts all records of d's current version under a key.
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

// rotateAsked is the update for an operator who wants every record looked at.
func (a *App) rotateAsked(ctx context.Context) (u upgradestate.Update, err error) {
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return u, err
	}
	e, err := a.encryption(ctx, d.CurrentVersion)
	if err != nil {
		return u, err
	}
	if e == nil || len(e.Sealer().Keys().Names()) == 0 {
		return u, fmt.Errorf("there are no keys: configure encryption of %s", d.CurrentVersion)
	}
	u, ok := rotationOf(d, e.Sealer().Keys().Active())
	if !ok {
		return u, fmt.Errorf("%s has no managed kinds, and others are never encrypted", d.CurrentVersion)
	}
	return u, nil
}

// lookAtKeys is how often the leader compares the key that is configured with that of the records.
const lookAtKeys = 2 * time.Second

// afterSwitch is how long after a switch nothing is rotated by itself while the former version
// follows: it would have to take up every record anew, and a rollback wait for that.
const afterSwitch = 10 * time.Minute

// keepKeys puts the records of the current version under the key that is configured. What an
// operator cancels stays cancelled, whichever controller leads.
func (a *App) keepKeys(ctx context.Context) error {
	return a.follow(ctx, func(d upgradestate.Deployment) (time.Duration, error) {
		if d.CurrentVersion == "" || a.databases[d.CurrentVersion] == nil || !a.databases[d.CurrentVersion].Opened() {
			return lookAtKeys, nil
		}
		return lookAtKeys, errors.Join(a.keepKey(ctx, d), a.holdKeys(ctx, d))
	})
}

// holdKeys has each database go by what is noted in it. A controller that was stopped between the
// two, or slept on its way to the database over a whole run, leaves them apart: until then what is
// written under the key that is noted is refused, or what is not is taken.
func (a *App) holdKeys(ctx context.Context, d upgradestate.Deployment) error {
	var errs []error
	for _, ns := range d.Namespaces {
		if db := a.databases[ns.Version]; db == nil || !db.Opened() || upgradestate.Retired(d, ns.Version) {
			continue
		}
		if err := a.holdKey(ctx, d, ns.Version); err != nil { // others are held all the same
			errs = append(errs, fmt.Errorf("hold %s to its key: %w", ns.Version, err))
		}
	}
	return errors.Join(errs...)
}

func (a *App) holdKey(ctx context.Context, d upgradestate.Deployment, version string) error {
	e, err := a.encryption(ctx, version)
	if err != nil || e == nil {
		return err
	}
	st, err := e.Sealer().State(ctx)
	if err != nil {
		return err
	}
	if st.Run == "" {
		return nil // it has the key that it was begun with
	}
	if u := d.Update; u != nil && u.Key != "" && u.Version == version && u.ID != st.Run {
		return nil // it is about to turn the key, and has the database take both
	}
	// A kind that moves is held to its key as soon as it has arrived.
	if err := e.Hold(ctx, managed(d, version)); err != nil && !errors.Is(err, record.ErrFenced) {
		return err
	}
	return nil
}

func (a *App) keepKey(ctx context.Context, d upgradestate.Deployment) error {
	e, err := a.encryption(ctx, d.CurrentVersion)
	if err != nil || e == nil {
		return err
	}
	s := e.Sealer()
	if len(s.Keys().Names()) == 0 {
		return nil // records are under none, or the database would not be open
	}
	if adopted, err := s.Adopt(ctx); err != nil {
		return err
	} else if adopted {
		a.log.Info("the mark has proof now that records are plain: another key may be active", zap.String("version", d.CurrentVersion))
	}
	st, err := s.State(ctx)
	if err != nil {
		return err
	}
	if !st.Whole && st.Run != "" && strings.HasPrefix(outcomeOf(d, st.Run), "done") {
		if err := s.Finish(ctx, st.Run); err != nil {
			return err
		}
		if st, err = s.State(ctx); err != nil || !st.Whole {
			return err
		}
		a.log.Info("every record is under one key", zap.String("version", d.CurrentVersion), zap.String("key", st.Key))
		return nil
	}
	active := s.Keys().Active()
	ns, _ := d.Namespace(d.CurrentVersion)
	if ns.DeclinedKey != "" && ns.DeclinedKey != active {
		_, err := a.deployment.Apply(ctx, upgradestate.ConfigureKey{Version: ns.Version, Key: active})
		return err
	}
	u, ok := rotationOf(d, active)
	if !ok || st.New || st.Promised() == active || d.Update != nil || d.Upgrade != nil || ns.DeclinedKey == active || switchedLately(d) {
		return nil
	}
	u.ID = "d-" + strings.ToLower(rand.Text()[:16]) // as those that operators begin
	_, err = a.deployment.Apply(ctx, upgradestate.BeginUpdate{Update: u, Unasked: true})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil // what it was decided by has changed
	}
	return err
}

// switchedLately reports whether a rollback of the latest switch is likely yet.
func switchedLately(d upgradestate.Deployment) bool {
	if !upgradestate.ReverseSynced(d) {
		return false
	}
	at, err := time.Parse(time.RFC3339, d.LastSwitch.At)
	return err == nil && time.Since(at) < afterSwitch
}

// outcomeOf is how an update ended; empty: it has not, or that was forgotten.
func outcomeOf(d upgradestate.Deployment, id string) string {
	for _, e := range slices.Backward(d.History) {
		if e.What == "update" && e.ID == id {
			return e.Outcome
		}
	}
	return ""
}
