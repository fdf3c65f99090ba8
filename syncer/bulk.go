package syncer

import "dbcontroller.dev/throttle"

// setPace gives the Pacer the pace in the record, and the part of it that is this
// controller's. e.mu is held.
func (e *Engine) setPace() {
	e.Pacer.Set(e.record.Pace, float64(len(e.shards))/float64(e.cfg.Ring))
}

// bulk reports whether bulk work is still to be done for a shard. Engine.mu is held.
func (s *shard) bulk() bool { return len(s.todo) > 0 || len(s.verify) > 0 || s.rescan }

// heldBack returns why the bulk work of a shard is held back; "" is that it is not, or that
// there is none. e.mu is held.
func (e *Engine) heldBack(s *shard) (why string, cause throttle.Cause) {
	if !s.bulk() || e.switching() || e.over() {
		return "", throttle.CauseNone
	}
	why, _ = e.Pacer.Reason()
	return why, e.Pacer.Cause()
}
