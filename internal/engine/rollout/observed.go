package rollout

import "time"

// A driver stores the time that it has observed from time to time, so that the next one goes on from
// there. Each store is a write, so the distance grows with the time.
const (
	minStore = 5 * time.Second
	maxStore = time.Minute
)

// observe takes the step over from another driver, or adds to its time.
func (r *Rollout) observe(s Seen) {
	if r.Driver != s.Driver {
		// Nobody observed the gate between two drivers.
		r.Driver, r.ClockMillis = s.Driver, s.Clock.Milliseconds()
		r.breaks()
		return
	}
	if total := r.inStep(s); total-millis(r.StepMillis) >= max(minStore, min(maxStore, millis(r.StepMillis)/10)) {
		r.StepMillis, r.ClockMillis = total.Milliseconds(), s.Clock.Milliseconds()
	}
}

// inStep returns how long drivers have observed the step. r.Driver must be that of s.
func (r *Rollout) inStep(s Seen) time.Duration {
	return s.Clock - millis(r.ClockMillis) + millis(r.StepMillis)
}

// breaks ends the time for which the gate's conditions hold.
func (r *Rollout) breaks() { r.Holds, r.HeldMillis = false, 0 }

// restart lets the time of the step begin anew. The next look decides who observes it.
func (r *Rollout) restart() {
	r.Driver, r.ClockMillis, r.StepMillis = "", 0, 0
	r.breaks()
}
