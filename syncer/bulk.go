package syncer

import "dbcontroller.dev/internal/engine/throttle"

// setPace passes the pace of the Deployment to the Pacer, with this controller's share of it. e.mu
// is held.
func (e *Engine) setPace() {
	e.Pacer.Set(e.record.Pace, float64(len(e.shards))/float64(e.cfg.Ring))
}

// bulk reports whether the shard has bulk work left. Engine.mu is held.
func (s *shard) bulk() bool { return len(s.todo) > 0 || len(s.verify) > 0 || s.rescan }

// bulkLeft reports whether any shard has bulk work left, or waits for the comparison after its copy. e.mu
// is held.
func (e *Engine) bulkLeft() bool {
	if e.pass != nil {
		return true
	}
	for _, s := range e.shards {
		if s.bulk() || !s.verified {
			return true
		}
	}
	return false
}

// heldBack returns why a shard's bulk work is throttled, "" if it is not or if none is left. e.mu
// is held.
func (e *Engine) heldBack(s *shard) (why string, cause throttle.Cause) {
	// Bulk work stops during a switch anyway, and a pace would be a misleading reason.
	if !s.bulk() || e.switching() || e.over() {
		return "", throttle.CauseNone
	}
	why, _ = e.Pacer.Reason()
	return why, e.Pacer.Cause()
}
