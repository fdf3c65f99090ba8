package collections

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Chunked is a Database whose server may move records between machines by itself, as the balancer of
// a sharded cluster does. A fence waits for such a move, and clients' writes wait for the fence.
type Chunked interface {
	// PinChunks stops further moves of these kinds and waits for running ones. It returns an error if
	// one does not end soon.
	PinChunks(ctx context.Context, toks []record.Token) error
	// UnpinChunks ends what PinChunks of any process did.
	UnpinChunks(ctx context.Context) error
}

// unpinWait bounds the wait for one database, which may be unavailable.
const unpinWait = 10 * time.Second

// PinChunks stops moves of both versions' collections before a switch. KeepExpiry allows them again
// when no switch is near.
func (m *Maintainer) PinChunks(ctx context.Context, d upgradestate.Deployment) error {
	if err := m.expiring.take(ctx); err != nil {
		return err
	}
	defer m.expiring.give()
	var g sync.WaitGroup
	errs := make([]error, 2)
	for i, version := range []string{d.CurrentVersion, d.Upgrade.TargetVersion} {
		db, ok := m.Database(version).(Chunked)
		ns, known := d.Namespace(version)
		if !ok || !known {
			continue
		}
		toks := make([]record.Token, len(ns.Kinds))
		for at, k := range ns.Kinds {
			toks[at] = syncer.TokenOf(k)
		}
		g.Go(func() {
			if err := db.PinChunks(ctx, toks); err != nil {
				errs[i] = fmt.Errorf("%s: %w", version, err)
			}
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

// unpinChunks allows moves again in all databases. The caller has seen that no switch is near.
func (m *Maintainer) unpinChunks(ctx context.Context, d upgradestate.Deployment) error {
	var g sync.WaitGroup
	errs := make([]error, len(d.Namespaces))
	for i, ns := range d.Namespaces {
		db, ok := m.Database(ns.Version).(Chunked)
		if !ok {
			continue
		}
		g.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, unpinWait)
			defer cancel()
			// The database of an idle version may be gone for good.
			if err := db.UnpinChunks(ctx); err != nil && !m.Idle(d, ns.Version) {
				errs[i] = fmt.Errorf("allow moves of chunks in %s: %w", ns.Version, err)
			}
		})
	}
	g.Wait()
	return errors.Join(errs...)
}
