package shards

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/base/closing"
	"dbcontroller.dev/internal/coord"
)

// errUnregistered means that our member key was deleted while the lease lives.
var errUnregistered = errors.New("registration is gone")

func (p *Pool) memberKey() string    { return p.memberPrefix() + url.PathEscape(p.cfg.ID) }
func (p *Pool) memberPrefix() string { return p.cfg.Prefix + "controllers/" }
func (p *Pool) lockPrefix() string   { return p.cfg.Prefix + "shards/" }

// Run takes part in the ring until ctx ends, which is no error. It then gives up all locks at once,
// so that other members take over without waiting for the lease to run out. Stop the engine first
// if its last checkpoints matter. A non-nil error is a wrong configuration.
func (p *Pool) Run(ctx context.Context) error {
	if p.cfg.ID == "" {
		return errors.New("run shards: no id is configured for this process")
	}
	if p.cfg.Ring < 1 {
		return fmt.Errorf("run shards: ring size %d is configured, at least 1 is needed", p.cfg.Ring)
	}
	retry := newBackOff()
	for ctx.Err() == nil {
		err := freezeRing(ctx, p.store, p.cfg.Prefix+"ring", p.cfg.Ring)
		// All other errors may pass, and are retried.
		if errors.Is(err, ErrRing) {
			return fmt.Errorf("run shards: %w", err)
		}
		if err == nil {
			err = p.session(ctx, retry.Reset)
		}
		if ctx.Err() != nil {
			return nil
		}
		p.cfg.Log.Warn("shards are given up and taken anew", zap.Error(err))
		if pause(ctx, retry) != nil {
			return nil
		}
	}
	return nil
}

// session runs from a lease to its end.
func (p *Pool) session(ctx context.Context, registered func()) error {
	lease, err := p.store.Grant(ctx, p.cfg.TTL)
	if err != nil {
		return fmt.Errorf("grant lease: %w", err)
	}
	defer func() {
		// Reset before the revocation: no work may start under a lease that is being revoked.
		p.begin(nil)
		// A lease that is not closed runs out by itself.
		if err := closing.Bounded(ctx, lease.Close); err != nil {
			p.cfg.Log.Info("lease is left to run out", zap.Error(err))
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lease.Done():
			// Owned is empty from now on, and the engine must learn of it at once.
			signal(p.changes)
			return coord.ErrLeaseLost
		}
	})
	g.Go(func() error {
		// Registered before the members are listed, so that a list without us means a lost
		// registration.
		slow := time.AfterFunc(2*p.cfg.TTL, func() {
			p.cfg.Log.Warn("waits to register; is another process running under this id?")
		})
		_, err := Campaign(ctx, p.store, p.memberKey(), p.cfg.ID, lease)
		slow.Stop()
		if err != nil {
			return fmt.Errorf("register: %w", err)
		}
		registered()
		// From here on Owned may return shards.
		p.begin(lease)
		g.Go(func() error {
			follow(ctx, p.store, p.memberPrefix(), p.cfg.Log, func(v view) { p.see(&p.members, v) })
			return ctx.Err()
		})
		g.Go(func() error {
			follow(ctx, p.store, p.lockPrefix(), p.cfg.Log, func(v view) { p.see(&p.locks, v) })
			return ctx.Err()
		})
		return p.loop(ctx, lease)
	})
	return g.Wait()
}

// see installs a new view.
func (p *Pool) see(which *view, v view) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*which = v
	signal(p.wake)
}

// loop reconciles after each change, and again after a pause when that failed.
func (p *Pool) loop(ctx context.Context, lease coord.Lease) error {
	retry := newBackOff()
	for {
		err := p.reconcile(ctx, lease)
		// Only a new session helps.
		if errors.Is(err, coord.ErrLeaseLost) || errors.Is(err, errUnregistered) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.cfg.Log.Info("shards are tried again", zap.Error(err))
			if err := pause(ctx, retry); err != nil {
				return err
			}
			continue
		}
		retry.Reset()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake:
		}
	}
}
