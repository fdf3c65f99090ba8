package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/upgradestate"
)

// ErrNotRegistered reports that no server or client with this id is registered. The caller should
// register again.
var ErrNotRegistered = errors.New("not registered")

// Register publishes a server's state with its lease. Servers call it again after each change.
// coord.ErrLeaseLost means that the caller needs a new lease.
func (s *Store) Register(ctx context.Context, lease coord.Lease, state upgradestate.ServerState) error {
	if state.ID == "" {
		return fmt.Errorf("register server: %w", &InvalidError{"server id", "", "a name that is unique among servers"})
	}
	// Warnings come from other processes, so bound their size.
	state.Warnings = bounded(state.Warnings)
	state.Copies = state.Copies[:min(len(state.Copies), limits.Copies)]
	state.Moves = state.Moves[:min(len(state.Moves), limits.Moves)]
	value, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("register server %s: %w", state.ID, err)
	}
	if err := s.put(ctx, s.serverKey(state.ID), lease.ID(), func([]byte) ([]byte, error) { return value, nil }); err != nil {
		return fmt.Errorf("register server %s: %w", state.ID, err)
	}
	return nil
}

// Insecure holds the security warnings of a controller.
type Insecure struct {
	ID       string   `json:"id"`
	Warnings []string `json:"warnings"`
}

// registerInsecure publishes the security warnings of a controller with its lease.
func (s *Store) registerInsecure(ctx context.Context, lease coord.Lease, id string, warnings []string) error {
	value, err := json.Marshal(Insecure{id, bounded(warnings)})
	if err == nil {
		err = s.put(ctx, s.key("insecure", url.PathEscape(id)), lease.ID(), func([]byte) ([]byte, error) { return value, nil })
	}
	if err != nil {
		return fmt.Errorf("announce the insecure settings of %s: %w", id, err)
	}
	return nil
}

// controllerKeys lists the encryption keys that a controller has.
type controllerKeys struct {
	ID   string              `json:"id"`
	Keys map[string][]string `json:"keys"` // as in upgradestate.ServerState
}

// registerKeys publishes which encryption keys a controller has, with its lease.
func (s *Store) registerKeys(ctx context.Context, lease coord.Lease, id string, keys map[string][]string) error {
	value, err := json.Marshal(controllerKeys{id, keys})
	if err == nil {
		err = s.put(ctx, s.key("controllerKeys", url.PathEscape(id)), lease.ID(), func([]byte) ([]byte, error) { return value, nil })
	}
	if err != nil {
		return fmt.Errorf("announce the keys of %s: %w", id, err)
	}
	return nil
}

// ControllerKeys returns the encryption keys of controllers, by id and then by version. A
// controller without keys, or with a binary that does not report them, is missing.
func (s *Store) ControllerKeys(ctx context.Context) (map[string]map[string][]string, error) {
	kvs, _, err := s.coord.List(ctx, s.key("controllerKeys", ""))
	if err != nil {
		return nil, fmt.Errorf("list keys of controllers: %w", err)
	}
	all := map[string]map[string][]string{}
	for _, kv := range kvs {
		var c controllerKeys
		if err := json.Unmarshal(kv.Value, &c); err != nil {
			// A controller with unknown keys could fail after the switch, so do not guess.
			return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, kv.Key, err)
		}
		all[c.ID] = c.Keys
	}
	return all, nil
}

// bounded cuts warnings to the limits for their number and length.
func bounded(warnings []string) []string {
	var some []string
	for _, w := range warnings[:min(len(warnings), limits.Warnings)] {
		// The cut may split a character.
		some = append(some, strings.ToValidUTF8(w[:min(len(w), limits.WarningBytes)], ""))
	}
	return some
}

// insecure returns the controllers with security warnings, by id.
func (s *Store) insecure(ctx context.Context) (all []Insecure, bad []error, err error) {
	kvs, _, err := s.coord.List(ctx, s.key("insecure", ""))
	if err != nil {
		return nil, nil, fmt.Errorf("list insecure controllers: %w", err)
	}
	all, bad = decodeInsecure(kvs)
	return all, bad, nil
}

func decodeInsecure(kvs []coord.KV) (all []Insecure, bad []error) {
	all, bad = decodeAll[Insecure](kvs)
	slices.SortFunc(all, func(a, b Insecure) int { return cmp.Compare(a.ID, b.ID) })
	return all, bad
}

// updateServer changes the state of a registered server. With keepLease it keeps the lease. With
// another lease, one controller takes over a client of another controller.
func (s *Store) updateServer(ctx context.Context, id string, lease coord.LeaseID, change func(*upgradestate.ServerState)) error {
	return s.put(ctx, s.serverKey(id), lease, func(old []byte) ([]byte, error) {
		if old == nil {
			// A missing registration must not come back by a late acknowledgement.
			return nil, fmt.Errorf("%s: %w", id, ErrNotRegistered)
		}
		var state upgradestate.ServerState
		if err := json.Unmarshal(old, &state); err != nil {
			return nil, fmt.Errorf("%w: server %s: %w", ErrCorrupt, id, err)
		}
		change(&state)
		return json.Marshal(state)
	})
}

// Servers returns the registered servers and clients, by id. It fails if one cannot be read,
// because that server's abilities are then unknown.
func (s *Store) Servers(ctx context.Context) ([]upgradestate.ServerState, error) {
	servers, bad, err := s.servers(ctx)
	if err == nil {
		err = firstOf(bad)
	}
	return servers, err
}

func (s *Store) servers(ctx context.Context) (servers []upgradestate.ServerState, bad []error, err error) {
	kvs, _, err := s.coord.List(ctx, s.key("servers", ""))
	if err != nil {
		return nil, nil, fmt.Errorf("list servers: %w", err)
	}
	servers, bad = decodeServers(kvs)
	return servers, bad, nil
}

func decodeServers(kvs []coord.KV) (servers []upgradestate.ServerState, bad []error) {
	servers, bad = decodeAll[upgradestate.ServerState](kvs)
	slices.SortFunc(servers, func(a, b upgradestate.ServerState) int { return cmp.Compare(a.ID, b.ID) })
	return servers, bad
}

// WatchServers delivers the registered servers, now and after each change. Like Watch, it skips
// intermediate values. It closes the channel when ctx ends.
func (s *Store) WatchServers(ctx context.Context) <-chan []upgradestate.ServerState {
	return conflate(ctx, func(emit func([]upgradestate.ServerState)) {
		s.follow(ctx, s.key("servers", ""), func(kvs map[string]coord.KV) {
			// A caller that waits for all servers must also wait for the unreadable ones, so
			// deliver nothing.
			servers, bad := decodeServers(values(kvs))
			if err := firstOf(bad); err != nil {
				s.log.Error("cannot read servers", zap.Error(err))
				return
			}
			emit(servers)
		}, nil)
	})
}

// TakeOver moves the registration of a server or client to a lease. It keeps the state that another
// process has stored, and stores fresh if there is none.
func (s *Store) TakeOver(ctx context.Context, lease coord.LeaseID, fresh upgradestate.ServerState) error {
	key := s.serverKey(fresh.ID)
	kv, err := s.coord.Get(ctx, key)
	switch {
	// A registration under this lease needs no write.
	case err == nil && kv.Lease == lease:
		return nil
	case err != nil && !errors.Is(err, coord.ErrNotFound):
		return err
	}
	return s.put(ctx, key, lease, func(old []byte) ([]byte, error) {
		// Keep what another process stored, such as an acknowledged hold, unless it is unreadable.
		if json.Unmarshal(old, new(upgradestate.ServerState)) == nil {
			return old, nil
		}
		return json.Marshal(fresh)
	})
}

// AnyLease makes Deregister end a registration with any lease.
const AnyLease = keepLease

// RegisteredUnder returns the lease of a registration, or ErrNotRegistered.
func (s *Store) RegisteredUnder(ctx context.Context, id string) (coord.LeaseID, error) {
	kv, err := s.coord.Get(ctx, s.serverKey(id))
	if errors.Is(err, coord.ErrNotFound) {
		err = fmt.Errorf("%s: %w", id, ErrNotRegistered)
	}
	return kv.Lease, err
}

// Deregister removes a registration with the given lease. It does nothing if the registration is
// gone or has another lease, because another process then owns it.
func (s *Store) Deregister(ctx context.Context, id string, lease coord.LeaseID) error {
	key := s.serverKey(id)
	wait := newBackOff()
	for {
		kv, err := s.coord.Get(ctx, key)
		switch {
		case errors.Is(err, coord.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("deregister %s: %w", id, err)
		// Another process has taken the registration over.
		case lease != AnyLease && kv.Lease != lease:
			return nil
		}
		_, err = s.coord.Commit(ctx, []coord.Condition{{Key: key, Revision: kv.Mod}}, []coord.Op{{Key: key, Delete: true}})
		if err == nil {
			return nil
		}
		if again(err) {
			err = pause(ctx, wait)
		}
		if err != nil {
			return fmt.Errorf("deregister %s: %w", id, err)
		}
	}
}

// AckHold records that a registered client holds its writes for an attempt of an upgrade.
func (s *Store) AckHold(ctx context.Context, id, upgrade string, attempt uint64) error {
	return s.updateServer(ctx, id, keepLease, func(state *upgradestate.ServerState) {
		state.AckID, state.AckAttempt = upgrade, attempt
	})
}

// Acks returns how many registered servers hold writes for an attempt, and how many are registered.
// Unreadable servers count as not holding.
func (s *Store) Acks(ctx context.Context, id string, attempt uint64) (acked, total int, err error) {
	servers, bad, err := s.servers(ctx)
	if err != nil {
		return 0, 0, err
	}
	// An unreadable server may hold or not; count it as one that does not.
	return countAcks(servers, id, attempt), len(servers) + len(bad), nil
}

func countAcks(servers []upgradestate.ServerState, id string, attempt uint64) (acked int) {
	for _, state := range servers {
		if state.AckID == id && state.AckAttempt == attempt {
			acked++
		}
	}
	return acked
}

// Held blocks until every registered server holds writes for an attempt, or ctx ends.
func (s *Store) Held(ctx context.Context, id string, attempt uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for servers := range s.WatchServers(ctx) {
		// No server registered: nothing to wait for.
		if countAcks(servers, id, attempt) == len(servers) {
			return nil
		}
	}
	return fmt.Errorf("wait for servers to hold: %w", ctx.Err())
}

// Controllers returns the ids of the live controllers, sorted.
func (s *Store) Controllers(ctx context.Context) ([]string, error) {
	kvs, _, err := s.coord.List(ctx, s.key("controllers", ""))
	if err != nil {
		return nil, fmt.Errorf("list controllers: %w", err)
	}
	return controllerIDs(kvs), nil
}

// controllerIDs takes the ids from the values, because those in the keys are escaped.
func controllerIDs(kvs []coord.KV) []string {
	ids := make([]string, 0, len(kvs))
	for _, kv := range kvs {
		ids = append(ids, string(kv.Value))
	}
	slices.Sort(ids)
	return ids
}

func values(kvs map[string]coord.KV) []coord.KV {
	list := make([]coord.KV, 0, len(kvs))
	for _, kv := range kvs {
		list = append(list, kv)
	}
	return list
}

// ForDriver adapts a Store to the interface of package switchover.
type ForDriver struct{ *Store }

var _ switchover.Deployments = ForDriver{}

// Parked counts the parked and not waived groups in the directions that are synced now.
func (d ForDriver) Parked(ctx context.Context) (int, error) {
	list, err := d.ParkedNow(ctx)
	if err != nil {
		return 0, err
	}
	return int(CountParked(list).Blocking), nil
}
