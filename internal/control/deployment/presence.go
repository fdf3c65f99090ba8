package deployment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// presenceTTL is how long a server counts as alive after it died.
const presenceTTL = 3 * time.Second

// closeTimeout bounds the call that returns a lease. The lease expires by itself anyway.
const closeTimeout = 3 * time.Second

// ErrAbsent reports that there is no lease at the moment, so nothing can be announced. Presence
// remembers the announcement and publishes it with the next lease.
var ErrAbsent = errors.New("no lease for the registration yet")

// Presence keeps the announcement of a process published. Run holds the lease. When the lease is
// lost, Run takes another one and publishes the latest announcement again. Its methods may be
// called concurrently.
type Presence struct {
	store *Store

	// mu is held while an announcement is published, so that a later one is also stored later.
	// presenceTTL bounds each publication.
	mu    sync.Mutex
	lease coord.Lease                              // nil while there is none
	said  func(context.Context, coord.Lease) error // publishes the latest announcement
}

// NewPresence returns a Presence. It publishes nothing until Run is called.
func NewPresence(s *Store) *Presence { return &Presence{store: s} }

// Announce publishes a server's state. After an error it is not published yet; Run publishes it
// with the next lease, unless another announcement replaces it.
func (p *Presence) Announce(ctx context.Context, state upgradestate.ServerState) error {
	return p.announce(ctx, state.ID, func(ctx context.Context, lease coord.Lease) error {
		return p.store.Register(ctx, lease, state)
	})
}

// AnnounceInsecure publishes the security warnings of a controller, like Announce. A Presence
// belongs to either a server or a controller.
func (p *Presence) AnnounceInsecure(ctx context.Context, id string, warnings []string) error {
	return p.announce(ctx, id, func(ctx context.Context, lease coord.Lease) error {
		return p.store.registerInsecure(ctx, lease, id, warnings)
	})
}

// AnnounceKeys publishes which encryption keys a controller has, like Announce.
func (p *Presence) AnnounceKeys(ctx context.Context, id string, keys map[string][]string) error {
	return p.announce(ctx, id, func(ctx context.Context, lease coord.Lease) error {
		return p.store.registerKeys(ctx, lease, id, keys)
	})
}

func (p *Presence) announce(ctx context.Context, id string, publish func(context.Context, coord.Lease) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Remember it first: Run publishes it if this attempt fails.
	p.said = publish
	if p.lease == nil {
		return fmt.Errorf("announce %s: %w", id, ErrAbsent)
	}
	// A slow store must not block later announcements for ever.
	ctx, cancel := context.WithTimeout(ctx, presenceTTL)
	defer cancel()
	return publish(ctx, p.lease)
}

// Run holds the registration until ctx ends, and then removes it at once.
func (p *Presence) Run(ctx context.Context) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0))
	for {
		lease, err := p.arrive(ctx)
		if err == nil {
			wait.Reset()
			// Registered now; wait for the end of the lease or of ctx.
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
		p.store.log.Warn("cannot register the process", zap.Error(err))
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// arrive takes a lease and publishes the latest announcement with it.
func (p *Presence) arrive(ctx context.Context) (coord.Lease, error) {
	lease, err := p.store.coord.Grant(ctx, presenceTTL)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said != nil {
		// A slow store must not block announcements for ever.
		short, cancel := context.WithTimeout(ctx, presenceTTL)
		defer cancel()
		if err := p.said(short, lease); err != nil {
			// Give the lease back, or the next attempt would leave this one behind.
			p.closeLease(context.WithoutCancel(ctx), lease)
			return nil, err
		}
	}
	// Only now: announcements before this have been published above.
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
		p.store.log.Info("registration ends with its lease", zap.Error(err))
	}
}
