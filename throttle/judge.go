package throttle

import (
	"fmt"
	"time"

	"dbcontroller.dev/record"
)

// strain is what bulk work may add to a database.
type strain int

const (
	strainNone strain = iota + 1
	strainSome        // less
	strainMost        // nothing
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

// Bounds. WiredTiger has the threads of clients write pages out from 20 % dirty and 95 %
// used; that is what clients feel.
const (
	lagSlow, lagStop     = 2 * time.Second, 10 * time.Second
	dirtySlow, dirtyStop = 0.15, 0.20
	usedSlow             = 0.95
	queueSlow            = 2.0 // as many wait as run; a copy alone keeps the places taken
)

// judge returns what a measurement means; why is for people and empty with strainNone.
// maxCPU is a share, 0 for no bound.
func judge(h record.Health, maxCPU float64) (s strain, why string) {
	percent := func(share float64) int { return int(share*100 + 0.5) }
	switch {
	case h.Lag > lagStop:
		return strainMost, fmt.Sprintf("its replication is %s behind", h.Lag.Round(time.Second))
	case h.CacheDirty > dirtyStop:
		return strainMost, fmt.Sprintf("%d %% of its cache are still to be written", percent(h.CacheDirty))
	case h.Lag > lagSlow:
		return strainSome, fmt.Sprintf("its replication is %s behind", h.Lag.Round(time.Second))
	case h.CacheDirty > dirtySlow:
		return strainSome, fmt.Sprintf("%d %% of its cache are still to be written", percent(h.CacheDirty))
	case h.CacheUsed > usedSlow:
		return strainSome, fmt.Sprintf("its cache is %d %% full", percent(h.CacheUsed))
	case h.Queue >= queueSlow:
		return strainSome, "operations wait in its queue"
	case maxCPU > 0 && h.CPU > maxCPU:
		return strainSome, fmt.Sprintf("its processors are loaded by %d %%, above %d %%", percent(h.CPU), percent(maxCPU))
	default:
		return strainNone, ""
	}
}

const (
	floor     = 50   // records a second that remain under pressure
	firstRate = 1000 // records a second where pressure comes before anything was counted
	steps     = 20   // from nothing to what went before the pressure
)

// throttle is the rate that pressure leaves. The zero value is no limit.
type throttle struct {
	limit float64 // records a second; 0: none
	peak  float64 // what went when it began
}

// next is the throttle after a measurement, between which and the one before it done
// records a second went through.
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
		if t.limit >= 2*t.peak {
			t = throttle{}
		}
	}
	return t
}
