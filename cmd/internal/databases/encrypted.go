package databases

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/record/sealed"
)

// encrypted is an open database whose managed kinds are encrypted as its namespace has it, which
// may be not at all.
type encrypted struct {
	Space
	ns *sealed.Namespace
}

// encrypt puts what encrypts the namespace before a database.
func (d *Database) encrypt(space Space) encrypted {
	notes := identity.NotesOf(space, record.Owner{Deployment: d.cfg.Deployment, Version: d.db.Version})
	keys := d.keys.Load()
	s := sealed.New(d.db.Version, func() *sealed.Keys { return keys.Get().Keys }, notes)
	s.Log = d.how.Log
	return encrypted{space, s.Namespace(space)}
}

// held are the keys that a process has for a database. They do not change.
type held struct {
	*sealed.Keys
	configured *sealed.Keys // these alone
	all        []sealed.Key
}

// hold makes the keys of a configuration, and keeps those that were there before: records that
// others write at this moment may be under one of them, and without it all writes would end here.
func hold(active string, keys []sealed.Key, before *held) (*held, error) {
	configured, err := sealed.NewKeys(active, keys...)
	if err != nil {
		return nil, err
	}
	h := &held{configured, configured, keys}
	if before == nil || len(keys) == 0 { // no section at all is none that rotates to off
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

// suits refuses keys without which records could not be read, and warns of those that are here
// only until the process ends.
func (d *Database) suits(h *held) error {
	w := d.opened.Load()
	if w == nil {
		return nil // opening it finds out
	}
	s := w.Space.(encrypted).ns.Sealer() //nolint:forcetypeassert // every way is
	if err := s.Suits(h.Keys); err != nil {
		return err
	}
	if err := s.Suits(h.configured); err != nil {
		d.how.Log.Warn("a key that records are under was taken out of encryption.keys: this process keeps it, and no other one will start without it",
			zap.String("version", d.db.Version), zap.Error(err))
	}
	return nil
}

// watchKeys has the keys of the configuration, as it is now.
func (d *Database) watchKeys() error {
	if d.keys.Load() != nil {
		return nil
	}
	var last *held // of those that could be used
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
	quiet := e.Space.Quietly()
	return encrypted{quiet, e.ns.Sealer().Namespace(quiet)}
}

// Encryption is what encrypts the namespace, and the namespace as it is stored.
func (d *Database) Encryption(ctx context.Context) (*sealed.Namespace, error) {
	w, err := d.way(ctx)
	if err != nil {
		return nil, err
	}
	return w.Space.(encrypted).ns, nil //nolint:forcetypeassert // every way is
}

// Unreadable says why records cannot be decrypted here; nil: nothing is known that could not.
func (d *Database) Unreadable() error {
	if w := d.opened.Load(); w != nil {
		return w.Space.(encrypted).ns.Sealer().Problem() //nolint:forcetypeassert // every way is
	}
	return nil
}

// KeysHere are the keys that this process is configured with (sealed.Keys.Checked); none before the
// database was tried.
func (d *Database) KeysHere() []string {
	if keys := d.keys.Load(); keys != nil {
		return keys.Get().configured.Checked()
	}
	return nil
}

// KeysHere are those of all databases, by version.
func (s *Set) KeysHere() map[string][]string {
	out := map[string][]string{}
	for version, d := range s.byVersion {
		if keys := d.KeysHere(); len(keys) > 0 {
			out[version] = keys
		}
	}
	return out
}
