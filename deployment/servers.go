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

	"dbcontroller.dev/coord"
	"dbcontroller.dev/limits"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/upgradestate"
)

// ErrNotRegistered: no server or client of this id is registered (any longer). Register.
var ErrNotRegistered = errors.New("not registered")

// Register publishes what a server says of itself, under its lease; again at each
// change. coord.ErrLeaseLost: take a new lease.
func (s *Store) Register(ctx context.Context, lease coord.Lease, state upgradestate.ServerState) error {
	if state.ID == "" {
		return fmt.Errorf("register server: %w", &InvalidError{"server id", "", "a name that is unique among servers"})
	}
	state.Warnings = bounded(state.Warnings)
	value, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("register server %s: %w", state.ID, err)
	}
	if err := s.put(ctx, s.serverKey(state.ID), lease.ID(), func([]byte) ([]byte, error) { return value, nil }); err != nil {
		return fmt.Errorf("register server %s: %w", state.ID, err)
	}
	return nil
}

// Insecure is a controller that warns of itself.
type Insecure struct {
	ID       string   `json:"id"`
	Warnings []string `json:"warnings"`
}

// registerInsecure publishes what is insecure about a controller, under its lease.
func (s *Store) registerInsecure(ctx context.Context, lease coord.Lease, id string, warnings []string) error {
	value, err := json.Marshal(Insecure{id, bounded(warnings)})
	if err == nil {
		err = s.put(ctx, s.key("insecure", url.PathEscape(id)), lease.ID(), func([]byte) ([]byte, error) { return value, nil })
	}
	if err != nil {
		return fmt.Errorf("announce what is insecure about %s: %w", id, err)
	}
	return nil
}

// controllerKeys is which keys of records a controller has.
type controllerKeys struct {
	ID   string              `json:"id"`
	Keys map[string][]string `json:"keys"` // as upgradestate.ServerState has them
}

// registerKeys publishes which keys of records a controller has, under its lease.
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

// ControllerKeys are the keys of records that controllers have, by id and then by version. One that
// has none, or does not know of keys, is not among them.
func (s *Store) ControllerKeys(ctx context.Context) (map[string]map[string][]string, error) {
	kvs, _, err := s.coord.List(ctx, s.key("controllerKeys", ""))
	if err != nil {
		return nil, fmt.Errorf("list keys of controllers: %w", err)
	}
	all := map[string]map[string][]string{}
	for _, kv := range kvs {
		var c controllerKeys
		if err := json.Unmarshal(kv.Value, &c); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, kv.Key, err)
		}
		all[c.ID] = c.Keys
	}
	return all, nil
}

// bounded takes as many warnings as there may be, each as long as it may be.
func bounded(warnings []string) []string {
	var some []string
	for _, w := range warnings[:min(len(warnings), limits.Warnings)] {
		some = append(some, strings.ToValidUTF8(w[:min(len(w), limits.WarningBytes)], ""))
	}
	return some
}

// insecure lists the controllers that warn of themselves now, by id.
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

// updateServer changes what a registered server says, and keeps its lease. With a lease
// of another process it is how one controller speaks for a client of another one.
func (s *Store) updateServer(ctx context.Context, id string, lease coord.LeaseID, change func(*upgradestate.ServerState)) error {
	return s.put(ctx, s.serverKey(id), lease, func(old []byte) ([]byte, error) {
		if old == nil {
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

// Servers lists the servers and clients that are registered now, by id. It fails where one cannot
// be read: nobody knows what that one can follow.
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

// WatchServers delivers the registered servers, first as they are and then as they
// change, as Watch does with the record.
func (s *Store) WatchServers(ctx context.Context) <-chan []upgradestate.ServerState {
	return conflate(ctx, func(emit func([]upgradestate.ServerState)) {
		s.follow(ctx, s.key("servers", ""), func(kvs map[string]coord.KV) {
			// Who waits for all of them to hold waits for those that cannot be read, too.
			servers, bad := decodeServers(values(kvs))
			if err := firstOf(bad); err != nil {
				s.cfg.Log.Error("servers cannot be read", zap.String("deployment", s.name), zap.Error(err))
				return
			}
			emit(servers)
		})
	})
}

// TakeOver has the registration of a server or client stand under a lease. What another
// process, which held it before, has stored of it stays.
func (s *Store) TakeOver(ctx context.Context, lease coord.LeaseID, fresh upgradestate.ServerState) error {
	key := s.serverKey(fresh.ID)
	kv, err := s.coord.Get(ctx, key)
	switch {
	case err == nil && kv.Lease == lease:
		return nil
	case err != nil && !errors.Is(err, coord.ErrNotFound):
		return err
	}
	return s.put(ctx, key, lease, func(old []byte) ([]byte, error) {
		if json.Unmarshal(old, new(upgradestate.ServerState)) == nil {
			return old, nil
		}
		return json.Marshal(fresh)
	})
}

// AnyLease has Deregister end a registration under whatever lease it stands.
const AnyLease = keepLease

// RegisteredUnder returns the lease of a registration, or ErrNotRegistered.
func (s *Store) RegisteredUnder(ctx context.Context, id string) (coord.LeaseID, error) {
	kv, err := s.coord.Get(ctx, s.serverKey(id))
	if errors.Is(err, coord.ErrNotFound) {
		err = fmt.Errorf("%s: %w", id, ErrNotRegistered)
	}
	return kv.Lease, err
}

// Deregister ends a registration that stands under a lease, and does nothing where it stands
// under another one or has ended.
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

// AckHold notes that a registered client holds its writes for an attempt.
func (s *Store) AckHold(ctx context.Context, id, upgrade string, attempt uint64) error {
	return s.updateServer(ctx, id, keepLease, func(state *upgradestate.ServerState) {
		state.AckID, state.AckAttempt = upgrade, attempt
	})
}

// Acks counts the registered servers and those of them that hold writes for an attempt.
func (s *Store) Acks(ctx context.Context, id string, attempt uint64) (acked, total int, err error) {
	servers, bad, err := s.servers(ctx)
	if err != nil {
		return 0, 0, err
	}
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
		if countAcks(servers, id, attempt) == len(servers) {
			return nil
		}
	}
	return fmt.Errorf("wait for servers to hold: %w", ctx.Err())
}

// Controllers lists the ids of the controllers that are alive now.
func (s *Store) Controllers(ctx context.Context) ([]string, error) {
	kvs, _, err := s.coord.List(ctx, s.key("controllers", ""))
	if err != nil {
		return nil, fmt.Errorf("list controllers: %w", err)
	}
	return controllerIDs(kvs), nil
}

// controllerIDs takes the ids from the values: in the keys they are escaped.
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

// ForDriver is the Store as package switchover wants it.
type ForDriver struct{ *Store }

var _ switchover.Deployments = ForDriver{}

// Parked counts what is parked and not waived in the directions that are copied now.
func (d ForDriver) Parked(ctx context.Context) (int, error) {
	list, err := d.ParkedNow(ctx)
	if err != nil {
		return 0, err
	}
	return int(CountParked(list).Blocking), nil
}
