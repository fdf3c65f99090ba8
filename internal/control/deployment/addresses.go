package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
)

// Addressed is a controller process with the address that other controllers reach its API under.
type Addressed struct {
	ID          string   `json:"id"`
	Address     string   `json:"address"`         // http://host:port or https://host:port
	Deployments []string `json:"deployments"`     // that it runs
	Build       string   `json:"build,omitempty"` // of its program, for operators
}

// The keys lie beside the deployments, because a process can run many of them.
func (s *Store) addressesPrefix() string { return s.cfg.Prefix + "/addresses/" }

// AnnounceAddress publishes where the API of a controller is, like Announce. It is about the whole
// coordination store, so any deployment's Store will do.
func (p *Presence) AnnounceAddress(ctx context.Context, a Addressed) error {
	return p.announce(ctx, a.ID, func(ctx context.Context, lease coord.Lease) error {
		value, err := json.Marshal(a)
		if err == nil {
			err = p.store.put(ctx, p.store.addressesPrefix()+url.PathEscape(a.ID), lease.ID(), func([]byte) ([]byte, error) { return value, nil })
		}
		if err != nil {
			return fmt.Errorf("announce the address of %s: %w", a.ID, err)
		}
		return nil
	})
}

// FollowAddresses calls changed with all controllers that have announced an address, now and after
// each change, until ctx ends. It skips announcements that it cannot read. Without the coordination
// store the latest ones stay in force.
func (s *Store) FollowAddresses(ctx context.Context, changed func([]Addressed)) {
	s.follow(ctx, s.addressesPrefix(), func(kvs map[string]coord.KV) {
		all := make([]Addressed, 0, len(kvs))
		for _, key := range slices.Sorted(maps.Keys(kvs)) {
			var a Addressed
			// A controller that others cannot find still works.
			if err := json.Unmarshal(kvs[key].Value, &a); err != nil {
				s.log.Warn("cannot read the address of a controller", zap.String("key", key), zap.Error(err))
				continue
			}
			all = append(all, a)
		}
		changed(all)
	}, nil)
}
