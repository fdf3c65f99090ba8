package deployment

import (
	"context"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/upgradestate"
)

// Known returns the newest record that this process has seen, if its shared watch runs and the record
// is at rest. Otherwise it is Get. A deployment at rest then costs the coordination store no read
// for each look of each part.
//
// The result is a value that the record had, and never older than one that this process has stored or
// read. It may be older than the stored record: as after Get, if the process pauses before it uses
// the result. The watch delivers a change within milliseconds. If it died unnoticed, follow notices
// after relist at the latest. So use Known for work that may run late anyway, and decides only by a
// compare-and-swap or by what the database refuses. A record with an upgrade is always read: a late
// look at a switch would find names that the newer record explains.
func (s *Store) Known(ctx context.Context) (upgradestate.Deployment, error) {
	if kv, ok := s.knownRecord(); ok {
		if d, err := s.stored(kv); err == nil && atRest(d) {
			return d, nil
		}
	}
	return s.Get(ctx)
}

// atRest reports whether no upgrade runs and no operator has to decide about a restored database. A
// part that acted on a decided one would ask for the decision again.
func atRest(d upgradestate.Deployment) bool {
	_, restored := upgradestate.WasRestored(d)
	return d.Upgrade == nil && !restored
}

func (s *Store) knownRecord() (coord.KV, bool) {
	seen, live := s.watched.newest()
	// A record too large for s.record is not there. What this process has stored is then unknown.
	own, known := s.record.get(s.recordKey())
	if !live || !known {
		return coord.KV{}, false
	}
	if own.Mod > seen.Mod {
		return own, true
	}
	return seen, true
}
