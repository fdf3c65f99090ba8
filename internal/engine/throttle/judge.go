package throttle

import (
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

// strain says how much load bulk work may add to a database.
type strain int

const (
	strainNone strain = iota + 1
	strainSome        // reduce
	strainMost        // stop
)

func (s strain) String() string {
	switch s {
	case strainNone:
		return "ok"
	case strainSome:
		return "throttled"
	case strainMost:
		return "overloaded"
	default:
		return "invalid strain"
	}
}

// Bounds of a measurement. WiredTiger makes client threads write pages from 20 % dirty and 95 %
// used on, which clients feel.
const (
	lagSlow, lagStop     = 2 * time.Second, 10 * time.Second
	dirtySlow, dirtyStop = 0.15, 0.20
	usedSlow             = 0.95
	queueSlow            = 2.0 // as many operations wait as run; a copy alone fills all places
)

// judge interprets a measurement. why is a text for operators, empty with strainNone. maxCPU is a
// share from 0 to 1; 0 means no limit.
func judge(h record.Health, maxCPU float64) (s strain, why string) {
	percent := func(share float64) int { return int(share*100 + 0.5) }
	switch {
	// The conditions for a stop come first. A lesser one must not hide them.
	case h.Lag > lagStop:
		return strainMost, fmt.Sprintf("its replication is %s behind", h.Lag.Round(time.Second))
	case h.CacheDirty > dirtyStop:
		return strainMost, fmt.Sprintf("%d %% of its cache are not written yet", percent(h.CacheDirty))
	case h.Lag > lagSlow:
		return strainSome, fmt.Sprintf("its replication is %s behind", h.Lag.Round(time.Second))
	case h.CacheDirty > dirtySlow:
		return strainSome, fmt.Sprintf("%d %% of its cache are not written yet", percent(h.CacheDirty))
	case h.CacheUsed > usedSlow:
		return strainSome, fmt.Sprintf("its cache is %d %% full", percent(h.CacheUsed))
	case h.Queue >= queueSlow:
		return strainSome, "operations wait in its queue"
	case maxCPU > 0 && h.CPU > maxCPU:
		return strainSome, fmt.Sprintf("the load of its processors is %d %%, above %d %%", percent(h.CPU), percent(maxCPU))
	default:
		return strainNone, ""
	}
}

const (
	floor     = 50   // records a second that remain under pressure
	firstRate = 1000 // records a second, if pressure comes before any count
	steps     = 20   // from zero back to the rate before the pressure
)

// throttle is the rate limit under pressure. The zero value is no limit.
type throttle struct { // records a second; 0: none
	limit float64 // rate when the pressure began
	peak  float64 // what went when it began
}

// next returns the throttle after a measurement. done is the rate since the previous one, in
// records a second.
func (t throttle) next(s strain, done float64) throttle {
	switch s {
	case strainSome, strainMost:
		if t.limit == 0 {
			if done <= 0 {
				done = firstRate
			}
			t = throttle{limit: done, peak: max(done, floor)}
		}
		t.limit = max(floor, t.limit/2)
	case strainNone:
		if t.limit == 0 {
			break
		}
		t.limit += max(floor, t.peak/steps)
		// Well above the old rate without strain: the limit has no effect any longer.
		if t.limit >= 2*t.peak {
			t = throttle{}
		}
	}
	return t
}
