package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/limits"
	"dbcontroller.dev/internal/coord"
)

// Addressed is a controller process with the address that other controllers reach its API under.
type Addressed struct {
	ID          string   `json:"id"`
	Address     string   `json:"address"`         // http://host:port or https://host:port
	Deployments []string `json:"deployments"`     // that it runs
	Build       string   `json:"build,omitempty"` // of its program, for operators
}

// Limits of announcements. Others can write them, too.
const (
	maxAnnounced    = 1000 // controllers of a coordination store
	maxAddressBytes = 300  // also of an id
)

// check returns an error for an announcement that no controller makes.
func (a Addressed) check() error {
	long := func(name string) bool { return len(name) > limits.NameBytes }
	switch {
	case len(a.ID) > maxAddressBytes || len(a.Address) > maxAddressBytes:
		return fmt.Errorf("want an id and an address of at most %d bytes", maxAddressBytes)
	case len(a.Deployments) > limits.Deployments || slices.ContainsFunc(a.Deployments, long):
		return fmt.Errorf("want at most %d deployments, each with a name of at most %d bytes", limits.Deployments, limits.NameBytes)
	}
	return nil
}

// The keys lie beside the deployments, because a process can run many of them.
func (s *Store) addressesPrefix() string { return s.cfg.Prefix + "/addresses/" }

// AnnounceAddress publishes where the API of a controller is, like Announce. It is about the whole
// coordination store, so any deployment's Store will do.
func (p *Presence) AnnounceAddress(ctx context.Context, a Addressed) error {
	return p.announce(ctx, a.ID, func(ctx context.Context, lease coord.Lease) error {
		value, err := json.Marshal(a)
		if err == nil {
			// The lease is part of the key, or two processes with the same id would replace each other's address.
			key := fmt.Sprintf("%s%s/%x", p.store.addressesPrefix(), url.PathEscape(a.ID), lease.ID())
			err = p.store.put(ctx, key, lease.ID(), func([]byte) ([]byte, error) { return value, nil })
		}
		if err != nil {
			return fmt.Errorf("announce the address of %s: %w", a.ID, err)
		}
		return nil
	})
}

// FollowAddresses calls changed with all controllers that have announced an address, now and after
// each change, until ctx ends. It skips announcements that it cannot read, with one line in the log for
// each. Without the coordination store the latest ones stay in force.
func (s *Store) FollowAddresses(ctx context.Context, changed func([]Addressed)) {
	logged := map[string]int64{} // skipped keys, with their revisions
	s.follow(ctx, s.addressesPrefix(), func(kvs map[string]coord.KV) {
		maps.DeleteFunc(logged, func(key string, at int64) bool { return kvs[key].Mod != at })
		all := make([]Addressed, 0, len(kvs))
		for _, key := range slices.Sorted(maps.Keys(kvs)) {
			var a Addressed
			err := json.Unmarshal(kvs[key].Value, &a)
			if err == nil {
				err = a.check()
			}
			if err == nil && len(all) == maxAnnounced {
				err = fmt.Errorf("%d controllers have announced an address: no more are read", maxAnnounced)
			}
			if err == nil {
				all = append(all, a)
				continue
			}
			// A controller that others cannot find still works.
			if _, known := logged[key]; !known {
				logged[key] = kvs[key].Mod
				s.log.Warn("cannot read the address of a controller", zap.String("key", key[:min(len(key), 2*maxAddressBytes)]), zap.Error(err))
			}
		}
		changed(all)
	}, nil)
}
