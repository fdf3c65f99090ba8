// Package keys keeps the records of each version's database under the configured encryption key.
//
// It encrypts new kinds from their first record on, starts a rotation when another key is
// configured, makes each database refuse writes under other keys, and tells the API which processes
// lack a key.
//
// It is not for users and may change with any version.
package keys

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/controller/recordloop"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Database is a version's database.
type Database interface {
	// Opened reports whether the database is open.
	Opened() bool
}

// Encrypted is a Database whose managed kinds may be encrypted.
type Encrypted interface {
	// Encryption returns the encrypting namespace. It gives access to the stored form, too.
	Encryption(ctx context.Context) (*sealed.Namespace, error)
	// KeysHere returns the keys in this process's configuration, as from sealed.Keys.Checked.
	KeysHere() []string
	// Unreadable returns the reason why records could not be decrypted, or nil if no such record is
	// known.
	Unreadable() error
}

// Backend is the backend of the databases.
type Backend interface {
	// Unavailable reports whether a database error is temporary.
	Unavailable(err error) bool
}

// Parts are the parts of a controller that a Keeper uses.
type Parts struct {
	Deployments *deployment.Store
	// Databases returns the configured databases, by version.
	Databases func() map[string]Database
	// Wrap wraps the stored form of a version's records. Nil: it is used as it is.
	Wrap    func(version string, ns record.Namespace) record.Namespace
	Backend Backend
	ID      string        // of this controller
	Self    func() string // name of this process, for messages about its keys
	Log     *zap.Logger
}

// Keeper keeps the records of a deployment under the configured keys. It is safe for concurrent
// use.
type Keeper struct {
	Parts
	encrypted encryptions // last known encryption state of each version, for the API
}

// New returns the Keeper of a controller.
func New(p Parts) *Keeper { return &Keeper{Parts: p} }

// Rotation returns the data update that brings all records of the current version under one key.
func (k *Keeper) Rotation() backfill.Rotation { return rotation{k} }

// encryption returns the encrypting namespace of a version's database, or nil if the backend cannot
// encrypt.
func (k *Keeper) encryption(ctx context.Context, version string) (*sealed.Namespace, error) {
	db, ok := k.Databases()[version].(Encrypted)
	if !ok {
		return nil, nil //nolint:nilnil // it is asked for
	}
	e, err := db.Encryption(ctx)
	if err != nil || k.Wrap == nil {
		return e, err
	}
	// Rebuild it over the wrapped store, so that tests also see the commands for the stored form.
	return e.Sealer().Namespace(k.Wrap(version, e.Stored())), nil
}

// Begin encrypts new kinds of a namespace from their first record on. take claims the kinds and
// stores the first State, if there is one.
func (k *Keeper) Begin(ctx context.Context, version string, kinds []record.KindSpec, take func(first *sealed.State) error) error {
	e, err := k.encryption(ctx, version)
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

// Requested returns the rotation that an operator has requested, which checks every record.
func (k *Keeper) Requested(ctx context.Context) (u upgradestate.Update, err error) {
	d, err := k.Deployments.Get(ctx)
	if err != nil {
		return u, err
	}
	e, err := k.encryption(ctx, d.CurrentVersion)
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

// Keep starts a rotation if records are not under the configured key. It does not repeat a
// rotation that an operator cancelled, whichever controller leads.
func (k *Keeper) Keep(ctx context.Context) error {
	return recordloop.Aside(ctx, k.Deployments, k.Log, func(d upgradestate.Deployment) (time.Duration, error) {
		if d.CurrentVersion == "" || k.Databases()[d.CurrentVersion] == nil || !k.Databases()[d.CurrentVersion].Opened() {
			return lookAtKeys, nil
		}
		return lookAtKeys, errors.Join(k.keepKey(ctx, d), k.holdKeys(ctx, d))
	})
}

// holdKeys makes each open database enforce the key in its State. If a controller stops between the
// two steps, or pauses for a whole run before the second, they differ. The database then refuses
// writes under the right key or accepts writes under another.
func (k *Keeper) holdKeys(ctx context.Context, d upgradestate.Deployment) error {
	var errs []error
	for _, ns := range d.Namespaces {
		if db := k.Databases()[ns.Version]; db == nil || !db.Opened() || upgradestate.Retired(d, ns.Version) {
			continue
		}
		if err := k.holdKey(ctx, d, ns.Version); err != nil { // continue with the other databases
			errs = append(errs, fmt.Errorf("hold %s to its key: %w", ns.Version, err))
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) holdKey(ctx context.Context, d upgradestate.Deployment, version string) error {
	e, err := k.encryption(ctx, version)
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

func (k *Keeper) keepKey(ctx context.Context, d upgradestate.Deployment) error {
	e, err := k.encryption(ctx, d.CurrentVersion)
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
		k.Log.Info("the mark now proves that records are plain, so another key may become active", zap.String("version", d.CurrentVersion))
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
		k.Log.Info("all records are encrypted with one key", zap.String("version", d.CurrentVersion), zap.String("key", st.Key))
		return nil
	}
	active := s.Keys().Active()
	ns, _ := d.Namespace(d.CurrentVersion)
	// The operator declined another key than the present one. Clear that, so that this key can
	// start.
	if ns.DeclinedKey != "" && ns.DeclinedKey != active {
		_, err := k.Deployments.Apply(ctx, upgradestate.ConfigureKey{Version: ns.Version, Key: active})
		return err
	}
	u, ok := rotationOf(d, active)
	if !ok || st.New || st.Promised() == active || d.Update != nil || d.Upgrade != nil || ns.DeclinedKey == active || switchedLately(d) {
		return nil
	}
	u.ID = "d-" + strings.ToLower(rand.Text()[:16]) // the same form as ids of operators' runs
	_, err = k.Deployments.Apply(ctx, upgradestate.BeginUpdate{Update: u, Unasked: true})
	if errors.Is(err, upgradestate.ErrOutdated) {
		return nil // the record has changed since the decision; look again
	}
	return err
}
