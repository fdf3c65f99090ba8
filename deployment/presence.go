package deployment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/upgradestate"
)

// presenceTTL is how long a server that died still counts as alive.
const presenceTTL = 3 * time.Second

// closeTimeout bounds how long it takes to give a lease back; it ends by itself anyway.
const closeTimeout = 3 * time.Second

// ErrAbsent: there is no lease at the moment, so that nothing can be announced. What was
// to be is remembered, and announced as soon as there is one.
var ErrAbsent = errors.New("no lease to register under yet")

// Presence keeps what a process says of itself announced: Run holds the lease, takes another
// when it is lost, and announces again under it what was announced last.
type Presence struct {
	store *Store

	// mu is held while something is published, so that what is said later stands later;
	// each publishing is bounded by presenceTTL.
	mu    sync.Mutex
	lease coord.Lease                              // nil while there is none
	said  func(context.Context, coord.Lease) error // publishes what was announced last
}

// NewPresence returns a Presence that Run makes effective.
func NewPresence(s *Store) *Presence { return &Presence{store: s} }

// Announce publishes a server's state. An error means that it is not published yet; it
// will be with the next lease, unless another state is announced before.
func (p *Presence) Announce(ctx context.Context, state upgradestate.ServerState) error {
	return p.announce(ctx, state.ID, func(ctx context.Context, lease coord.Lease) error {
		return p.store.Register(ctx, lease, state)
	})
}

// AnnounceInsecure publishes what is insecure about a controller, as Announce does. A Presence
// is that of a server or of a controller.
func (p *Presence) AnnounceInsecure(ctx context.Context, id string, warnings []string) error {
	return p.announce(ctx, id, func(ctx context.Context, lease coord.Lease) error {
		return p.store.registerInsecure(ctx, lease, id, warnings)
	})
}

// AnnounceKeys publishes which keys of records a controller has, as Announce does.
func (p *Presence) AnnounceKeys(ctx context.Context, id string, keys map[string][]string) error {
	return p.announce(ctx, id, func(ctx context.Context, lease coord.Lease) error {
		return p.store.registerKeys(ctx, lease, id, keys)
	})
}

func (p *Presence) announce(ctx context.Context, id string, publish func(context.Context, coord.Lease) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = publish
	if p.lease == nil {
		return fmt.Errorf("announce %s: %w", id, ErrAbsent)
	}
	ctx, cancel := context.WithTimeout(ctx, presenceTTL)
	defer cancel()
	return publish(ctx, p.lease)
}

// Run holds the registration until ctx ends, and then ends it at once.
func (p *Presence) Run(ctx context.Context) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
	for {
		lease, err := p.arrive(ctx)
		if err == nil {
			wait.Reset()
			select {
			case <-lease.Done():
				err = coord.ErrLeaseLost
			case <-ctx.Done():
			}
			p.leave(context.WithoutCancel(ctx), lease)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.store.cfg.Log.Warn("process is not registered", zap.Error(err))
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// arrive takes a lease and registers under it what was announced before.
func (p *Presence) arrive(ctx context.Context) (coord.Lease, error) {
	lease, err := p.store.coord.Grant(ctx, presenceTTL)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said != nil {
		short, cancel := context.WithTimeout(ctx, presenceTTL)
		defer cancel()
		if err := p.said(short, lease); err != nil {
			p.closeLease(context.WithoutCancel(ctx), lease)
			return nil, err
		}
	}
	p.lease = lease
	return lease, nil
}

func (p *Presence) leave(ctx context.Context, lease coord.Lease) {
	p.mu.Lock()
	p.lease = nil
	p.mu.Unlock()
	p.closeLease(ctx, lease)
}

func (p *Presence) closeLease(ctx context.Context, lease coord.Lease) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := lease.Close(ctx); err != nil {
		p.store.cfg.Log.Info("registration ends with its lease", zap.Error(err))
	}
}
