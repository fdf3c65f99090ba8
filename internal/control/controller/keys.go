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

	"dbcontroller.dev/internal/control/controller/recordloop"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Encrypted is a Connection whose managed kinds may be encrypted.
type Encrypted interface {
	// Encryption returns the encrypting namespace. It gives access to the stored form, too.
	Encryption(ctx context.Context) (*sealed.Namespace, error)
	// KeysHere returns the keys in this process's configuration, as from sealed.Keys.Checked.
	KeysHere() []string
	// Unreadable returns the reason why records could not be decrypted, or nil if no such record is
	// known.
	Unreadable() error
}

// encryption returns the encrypting namespace of a version's database, or nil if the backend cannot
// encrypt.
func (a *App) encryption(ctx context.Context, version string) (*sealed.Namespace, error) {
	db, ok := a.databases[version].(Encrypted)
	if !ok {
		return nil, nil //nolint:nilnil // it is asked for
	}
	e, err := db.Encryption(ctx)
	if err != nil || a.opts.Wrap == nil {
		return e, err
	}
	// Rebuild it over the wrapped store, so that tests also see the commands for the stored form.
	return e.Sealer().Namespace(a.opts.Wrap(version, e.Stored())), nil
}

// beginKeys encrypts new kinds of a namespace from their first record on. take claims the kinds and
// stores the first State, if there is one.
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
	// The State must be stored with the claim. Later, plain records may exist already.
	if err := take(first); err != nil {
		return err
	}
	return e.Sealer().Begin(ctx, kinds)
}

// rotation brings all records of the current version under one key.
type rotation struct{ *App }

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
		if err != nil && (errors.Is(err, sealed.ErrOvertaken) || r.backend.Unavailable(err)) {
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

// rotateAsked returns the rotation that an operator has requested, which checks every record.
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
		return u, fmt.Errorf("no keys are configured: configure encryption of %s", d.CurrentVersion)
	}
	u, ok := rotationOf(d, e.Sealer().Keys().Active())
	if !ok {
		return u, fmt.Errorf("%s has no managed kinds, and only managed kinds are encrypted", d.CurrentVersion)
	}
	return u, nil
}

// lookAtKeys is the interval of all checks of encryption keys.
const lookAtKeys = 2 * time.Second

// afterSwitch is the time after a switch in which no rotation starts by itself while reverse sync
// runs. A rotation makes reverse sync process every record, and a rollback would have to wait for
// it.
const afterSwitch = 10 * time.Minute

// keepKeys starts a rotation if records are not under the configured key. It does not repeat a
// rotation that an operator cancelled, whichever controller leads.
func (a *App) keepKeys(ctx context.Context) error {
	return recordloop.Follow(ctx, a.deployment, a.log, func(d upgradestate.Deployment) (time.Duration, error) {
		if d.CurrentVersion == "" || a.databases[d.CurrentVersion] == nil || !a.databases[d.CurrentVersion].Opened() {
			return lookAtKeys, nil
		}
		return lookAtKeys, errors.Join(a.keepKey(ctx, d), a.holdKeys(ctx, d))
	})
}

// holdKeys makes each open database enforce the key in its State. If a controller stops between the
// two steps, or pauses for a whole run before the second, they differ. The database then refuses
// writes under the right key or accepts writes under another.
func (a *App) holdKeys(ctx context.Context, d upgradestate.Deployment) error {
	var errs []error
	for _, ns := range d.Namespaces {
		if db := a.databases[ns.Version]; db == nil || !db.Opened() || upgradestate.Retired(d, ns.Version) {
			continue
		}
		if err := a.holdKey(ctx, d, ns.Version); err != nil { // continue with the other databases
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
		return nil // it still has its first key
	}
	if u := d.Update; u != nil && u.Key != "" && u.Version == version && u.ID != st.Run {
		return nil // turn is about to change the key and needs both
	}
	// A kind that is being renamed is held at the next look, under its new name.
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
		return nil // records are plain, or the database could not be open
	}
	// Without a signed State, no other key than off may become active.
	if adopted, err := s.Adopt(ctx); err != nil {
		return err
	} else if adopted {
		a.log.Info("the mark now proves that records are plain, so another key may become active", zap.String("version", d.CurrentVersion))
	}
	st, err := s.State(ctx)
	if err != nil {
		return err
	}
	// Only a run that ended as done has processed every record.
	if !st.Whole && st.Run != "" && strings.HasPrefix(outcomeOf(d, st.Run), "done") {
		if err := s.Finish(ctx, st.Run); err != nil {
			return err
		}
		if st, err = s.State(ctx); err != nil || !st.Whole {
			return err
		}
		a.log.Info("all records are encrypted with one key", zap.String("version", d.CurrentVersion), zap.String("key", st.Key))
		return nil
	}
	active := s.Keys().Active()
	ns, _ := d.Namespace(d.CurrentVersion)
	// The operator declined another key than the present one. Clear that, so that this key can
	// start.
	if ns.DeclinedKey != "" && ns.DeclinedKey != active {
		_, err := a.deployment.Apply(ctx, upgradestate.ConfigureKey{Version: ns.Version, Key: active})
		return err
	}
	u, ok := rotationOf(d, active)
	if !ok || st.New || st.Promised() == active || d.Update != nil || d.Upgrade != nil || ns.DeclinedKey == active || switchedLately(d) {
		return nil
	}
	u.ID = "d-" + strings.ToLower(rand.Text()[:16]) // the same form as ids of operators' runs
	_, err = a.deployment.Apply(ctx, upgradestate.BeginUpdate{Update: u, Unasked: true})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil // the record has changed since the decision; look again
	}
	return err
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
