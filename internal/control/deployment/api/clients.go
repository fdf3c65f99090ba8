package api

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api/status"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// Applications of fixed-name kinds cannot hold a lease in the coordination store. The controller
// that they call holds one for them, and returns it when they stop calling. They may call any
// controller; the latest one holds the registration.

const (
	clientTTL     = 15 * time.Second
	leastTTL      = time.Second
	longestTTL    = 5 * time.Minute
	clientsLookAt = 500 * time.Millisecond
	closeTimeout  = 3 * time.Second
)

var (
	applicationName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	clientID        = regexp.MustCompile(`^client-[A-Za-z0-9._-]{1,120}$`)
)

// client is an application whose lease this process holds.
type client struct {
	mu    sync.Mutex
	lease coord.Lease // nil: none yet
	ttl   time.Duration
	until time.Time
	by    string // identity that registered or renewed it last
	gone  bool   // removed from the map: look there again

	maker string // identity that created the entry, and whose share it uses
}

type clients struct {
	mu      sync.Mutex
	running bool
	byKey   map[string]*client // by deployment and client id
	places  shares             // of byKey
	calls   calls
	leases  leases
}

// leases limits the leases for registrations, because each is work for the coordination store.
// Without a limit, a caller could create them endlessly, by registering with new names or changing
// ttl_ms. The limit lets all applications of one caller register twice at once, as after a restart
// of the controller.
type leases struct {
	mu   sync.Mutex
	used shares    // leases that time has not given back yet
	at   time.Time // time of the last update of used
}

const (
	// ownLeases is the number of leases for a caller that is alone.
	ownLeases  = leaseBurst / 2
	leaseBurst = 2 * limits.Clients
	leaseRate  = 20 // per second
)

// take counts one lease for a caller. It returns a FullError if the caller has used its share.
func (l *leases) take(who string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used.most = leaseBurst
	// Each second that passed gives leaseRate leases back.
	l.used.fade(leaseRate * now.Sub(l.at).Seconds())
	l.at = now
	if has, ok := l.used.take(who); !ok {
		return &FullError{"new registrations and changes of ttl_ms by this caller at this controller within minutes", has, "renew with the previous ttl_ms, or retry in a second"}
	}
	return nil
}

// giveBack returns the share of a lease that was not created.
func (l *leases) giveBack(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used.giveBack(who)
}

// Run ends the registrations of clients that stopped calling, and takes samples of the progress.
// When ctx ends, it ends all registrations of this process and all long calls.
func (v *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return v.lastHour.Run(ctx) })
	g.Go(func() error { return v.runClients(ctx) })
	return g.Wait()
}

func (v *Service) runClients(ctx context.Context) error {
	v.clients.mu.Lock()
	v.clients.running = true
	v.clients.mu.Unlock()
	// Clients must register again elsewhere, so end their leases when this process stops.
	defer v.endClients(context.WithoutCancel(ctx))
	defer v.stop.Do(func() { close(v.stopping) })
	tick := time.NewTicker(clientsLookAt)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			v.dropClients(ctx, func(_ string, c *client) bool { return now.After(c.until) })
		}
	}
}

func (v *Service) endClients(ctx context.Context) {
	v.clients.mu.Lock()
	// First refuse new registrations, or one could slip in after the loop.
	v.clients.running = false
	v.clients.mu.Unlock()
	v.dropClients(ctx, func(string, *client) bool { return true })
}

// dropClients closes the leases of the clients that over selects, and forgets the clients.
func (v *Service) dropClients(ctx context.Context, over func(key string, c *client) bool) {
	v.clients.mu.Lock()
	// Work on a copy: closing a lease takes time, and calls need the map meanwhile.
	all := make(map[string]*client, len(v.clients.byKey))
	maps.Copy(all, v.clients.byKey)
	v.clients.mu.Unlock()
	for key, c := range all {
		c.mu.Lock()
		if !c.gone && over(key, c) { // another call may have removed it
			v.closeLease(ctx, key, c.lease)
			c.gone = true
			v.clients.mu.Lock()
			delete(v.clients.byKey, key)
			v.clients.places.giveBack(c.maker)
			v.clients.mu.Unlock()
		}
		c.mu.Unlock()
	}
}

func (v *Service) closeLease(ctx context.Context, key string, lease coord.Lease) {
	if lease == nil {
		return
	}
	short, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := lease.Close(short); err != nil {
		v.cfg.Log.Info("registration of a client ends with its lease", zap.String("key", key), zap.Error(err))
	}
}

// RegisterClient implements the API. It also renews a registration.
func (v *Service) RegisterClient(ctx context.Context, req *connect.Request[pb.RegisterClientRequest]) (*connect.Response[pb.RegisterClientResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	ttl, err := between("ttl_ms", req.Msg.TtlMs, clientTTL, leastTTL, longestTTL)
	if err != nil {
		return nil, err
	}
	id := req.Msg.ClientId
	switch app := req.Msg.Application; {
	// The id is part of a key, so it must have a safe form.
	case id != "" && !clientID.MatchString(id):
		return nil, invalid("client_id", id, "client-APPLICATION-SOMETHING of letters, digits, and any of . _ -, or none to let the controller make one")
	case id != "":
	case app == "":
		return nil, invalid("application", "", "a name of the application, such as billing")
	case !applicationName.MatchString(app):
		return nil, invalid("application", app, "letters, digits, and any of . _ -")
	default:
		id = randomID("client-" + app)
	}
	v.clients.calls.note(s.Name() + "/" + id)
	// Fail before a lease is taken if the deployment does not exist.
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	if err := v.keepClient(ctx, s, id, ttl, d.CurrentVersion); err != nil {
		return nil, fmt.Errorf("register client: %w", err)
	}
	// Read the location after the registration. Otherwise a switch could begin in between, and not
	// wait for a client that believes that it may write.
	if d, err = s.Get(ctx); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.RegisterClientResponse{
		ClientId: id, TtlMs: int32(ttl.Milliseconds()), Location: status.Location(d),
	}), nil
}

// keepClient keeps a registration alive for another ttl, with a lease of this process.
func (v *Service) keepClient(ctx context.Context, s *deployment.Store, id string, ttl time.Duration, version string) error {
	key := s.Name() + "/" + id
	// The lease counts against the caller's share.
	caller, _ := access.CallerOf(ctx)
	c, err := v.lockClient(key, caller.Name)
	if err != nil {
		return err
	}
	defer c.mu.Unlock()
	lease := c.lease
	renewal := lease != nil && !lost(lease) && c.ttl == ttl && c.by == caller.Name
	// A lease cannot change its ttl, so a changed one needs a new lease.
	if lease == nil || lost(lease) || c.ttl != ttl {
		if err := v.clients.leases.take(caller.Name, time.Now()); err != nil {
			return err
		}
		if lease, err = v.coord.Grant(ctx, ttl); err != nil {
			// Only a granted lease counts.
			v.clients.leases.giveBack(caller.Name)
			return err
		}
	}
	if err := s.TakeOver(ctx, lease.ID(), upgradestate.ServerState{
		ID: id, Protocol: upgradestate.MinProtocol, Client: true, Active: version,
	}); err != nil {
		// Close only the lease that this call created.
		if lease != c.lease {
			v.closeLease(context.WithoutCancel(ctx), key, lease)
		}
		return err
	}
	if c.lease != nil && c.lease != lease {
		v.closeLease(context.WithoutCancel(ctx), key, c.lease) // the key has the new lease already
	}
	c.lease, c.ttl, c.until, c.by = lease, ttl, time.Now().Add(ttl), caller.Name
	if renewal {
		access.Renewed(ctx)
	}
	return nil
}

// lockClient returns the locked entry of a key. It creates one from the caller's share if needed,
// and fails unless Run is running.
func (v *Service) lockClient(key, who string) (*client, error) {
	for {
		v.clients.mu.Lock()
		c := v.clients.byKey[key]
		switch {
		case !v.clients.running:
			v.clients.mu.Unlock()
			return nil, errStopping
		case c == nil:
			has, ok := v.clients.places.take(who)
			if !ok {
				v.clients.mu.Unlock()
				return nil, &FullError{"registrations of this caller at this controller", has, "ask another controller, or share one registration between applications"}
			}
			c = &client{maker: who}
			v.clients.byKey[key] = c
		}
		// Lock the entry without the map's lock: its holder may wait for the coordination store.
		v.clients.mu.Unlock()
		c.mu.Lock()
		if !c.gone {
			return c, nil
		}
		c.mu.Unlock()
	}
}

// DeregisterClient implements the API. It removes the registration, whichever process holds it.
// Another process returns its lease when the client's time is over.
func (v *Service) DeregisterClient(ctx context.Context, req *connect.Request[pb.DeregisterClientRequest]) (*connect.Response[pb.DeregisterClientResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	id := req.Msg.ClientId
	if !clientID.MatchString(id) {
		return nil, invalid("client_id", id, "the id that RegisterClient returned")
	}
	// Delete the registration first, and only then the lease that holds it.
	if err := s.Deregister(ctx, id, deployment.AnyLease); err != nil {
		return nil, err
	}
	key := s.Name() + "/" + id
	v.dropClients(ctx, func(k string, _ *client) bool { return k == key })
	return connect.NewResponse(&pb.DeregisterClientResponse{}), nil
}

func lost(l coord.Lease) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

// AckHold implements the API. It records that a client holds its writes for an attempt of the
// switch.
func (v *Service) AckHold(ctx context.Context, req *connect.Request[pb.AckHoldRequest]) (*connect.Response[pb.AckHoldResponse], error) {
	s, err := v.store(req.Msg.Name)
	if err != nil {
		return nil, err
	}
	id, upgrade, attempt := req.Msg.ClientId, req.Msg.UpgradeId, req.Msg.Attempt
	if !clientID.MatchString(id) {
		return nil, invalid("client_id", id, "the id that RegisterClient returned")
	}
	d, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	if last := d.LastSwitch; d.Upgrade == nil && last != nil && last.ID == upgrade {
		return connect.NewResponse(&pb.AckHoldResponse{}), nil // switched: nothing waits any longer
	}
	// A late acknowledgement must not count for a later attempt.
	if u := d.Upgrade; u == nil || u.State != upgradestate.Switching || u.ID != upgrade || int64(u.Attempt) != attempt {
		return nil, refuse(fmt.Sprintf("ack-hold: attempt %d of upgrade %q is not switching now: call GetLocation", attempt, upgrade))
	}
	if err := s.AckHold(ctx, id, upgrade, uint64(attempt)); err != nil {
		return nil, fmt.Errorf("ack-hold: %w", err)
	}
	// Report the progress, so that an application can show what the switch waits for.
	acked, total, err := s.Acks(ctx, upgrade, uint64(attempt))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.AckHoldResponse{Acked: int32(acked), Total: int32(total)}), nil
}
