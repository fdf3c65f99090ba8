package databases

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

// encrypted is an open database that encrypts managed kinds as its namespace requires, possibly not
// at all.
type encrypted struct {
	Space
	ns *sealed.Namespace
}

// encrypt wraps a database with the encryption of its namespace.
func (d *Database) encrypt(space Space) encrypted {
	notes := identity.NotesOf(space, record.Owner{Deployment: d.cfg.Deployment, Version: d.db.Version})
	keys := d.keys.Load()
	s := sealed.New(d.db.Version, func() *sealed.Keys { return keys.Get().Keys }, notes)
	s.Log = d.how.Log
	return encrypted{space, s.Namespace(space)}
}

// held are a process's keys for a database. They are immutable.
type held struct {
	*sealed.Keys
	configured *sealed.Keys // without keys kept from earlier configurations
	all        []sealed.Key
}

// hold returns the configured keys and those of the earlier configuration. Other processes may
// still write records under an earlier key. Without it, this process could not write.
func hold(active string, keys []sealed.Key, before *held) (*held, error) {
	configured, err := sealed.NewKeys(active, keys...)
	if err != nil {
		return nil, err
	}
	h := &held{configured, configured, keys}
	if before == nil || len(keys) == 0 { // a missing section does not rotate to off
		return h, nil
	}
	h.all = slices.Clone(keys)
	for _, k := range before.all {
		if !slices.ContainsFunc(keys, func(o sealed.Key) bool { return o.Name == k.Name || bytes.Equal(o.Bytes, k.Bytes) }) {
			h.all = append(h.all, k)
		}
	}
	h.Keys, err = sealed.NewKeys(active, h.all...)
	return h, err
}

// suits refuses keys without which existing records would be unreadable. It warns about keys that
// only this process still has.
func (d *Database) suits(h *held) error {
	w := d.opened.Load()
	if w == nil {
		return nil // opening the database checks them
	}
	s := w.Space.(encrypted).ns.Sealer() //nolint:forcetypeassert // every way is
	// All keys at hand must suffice to read, and only a warning follows if the configured ones do
	// not.
	if err := s.Suits(h.Keys); err != nil {
		return err
	}
	if err := s.Suits(h.configured); err != nil {
		d.how.Log.Warn("a key that records are under was taken out of encryption.keys: this process keeps it, and no other one will start without it",
			zap.String("version", d.db.Version), zap.Error(err))
	}
	return nil
}

// watchKeys starts to follow the keys of the configuration. It does so once.
func (d *Database) watchKeys() error {
	if d.keys.Load() != nil {
		return nil
	}
	var last *held // the latest usable keys
	keys, err := config.WatchEncryption(d.cfg, d.db.Version, d.how.Log, func(e config.Encryption, keys [][]byte) (*held, error) {
		var all []sealed.Key
		for i, k := range e.Keys {
			all = append(all, sealed.Key{Name: k.Name, Bytes: keys[i]})
		}
		next, err := hold(e.Active, all, last)
		if err == nil {
			err = d.suits(next)
		}
		if err != nil {
			return nil, fmt.Errorf("encryption.keys: %w", err)
		}
		last = next
		return next, nil
	})
	if err != nil {
		return fmt.Errorf("database of %s: %w", d.db.Version, err)
	}
	d.keys.Store(keys)
	return nil
}

func (e encrypted) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	return e.ns.Scan(ctx, req)
}

func (e encrypted) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	return e.ns.Read(ctx, req)
}

func (e encrypted) Apply(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return e.ns.Apply(ctx, b)
}

func (e encrypted) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	return e.ns.Load(ctx, b)
}

func (e encrypted) Swap(ctx context.Context, tok record.Token, swaps []record.Swap) ([]record.Result, error) {
	return e.ns.Swap(ctx, tok, swaps)
}

func (e encrypted) Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error) {
	return e.ns.Describe(ctx, kind, name)
}

func (e encrypted) Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error) {
	return e.ns.Provision(ctx, kind, name)
}

func (e encrypted) BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	return e.ns.BuildIndexes(ctx, tok, kind)
}

func (e encrypted) Client() record.OnceClient { return e.ns.Sealer().Client(e.Space.Client()) }

func (e encrypted) Quietly() Space {
	// Keep the same sealer: both forms must use the same keys and state.
	quiet := e.Space.Quietly()
	return encrypted{quiet, e.ns.Sealer().Namespace(quiet)}
}

// Encryption returns the encrypting namespace, which also gives access to the stored form. It opens
// the database.
func (d *Database) Encryption(ctx context.Context) (*sealed.Namespace, error) {
	w, err := d.way(ctx)
	if err != nil {
		return nil, err
	}
	return w.Space.(encrypted).ns, nil //nolint:forcetypeassert // every way is
}

// Unreadable returns the reason that records cannot be decrypted here, or nil if none is known.
func (d *Database) Unreadable() error {
	if w := d.opened.Load(); w != nil {
		return w.Space.(encrypted).ns.Sealer().Problem() //nolint:forcetypeassert // every way is
	}
	return nil
}

// KeysHere returns the configured keys (sealed.Keys.Checked). It returns nil before the first
// attempt to open the database.
func (d *Database) KeysHere() []string {
	if keys := d.keys.Load(); keys != nil {
		return keys.Get().configured.Checked()
	}
	return nil
}

// KeysHere returns the configured keys of all databases, by version.
func (s *Set) KeysHere() map[string][]string {
	out := map[string][]string{}
	for version, d := range s.byVersion {
		if keys := d.KeysHere(); len(keys) > 0 {
			out[version] = keys
		}
	}
	return out
}
