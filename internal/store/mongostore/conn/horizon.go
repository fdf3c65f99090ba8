package conn

import (
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Horizon is the latest cluster time that the clients of a database in this process have seen. It
// covers the writes that were acknowledged to them and the states that they read. A read with this
// time as afterClusterTime is not older than any of these, whichever server answers. A deposed
// primary has no majority for so late a time, and waits until it learns of its successor. The
// cluster compares the times. The zero value is ready to use, and methods may be called
// concurrently.
type Horizon struct {
	at atomic.Uint64 // seconds in the upper half
}

// Reach moves the horizon forward, never back.
func (h *Horizon) Reach(t bson.Timestamp) {
	to := uint64(t.T)<<32 | uint64(t.I)
	for {
		at := h.at.Load()
		if to <= at || h.at.CompareAndSwap(at, to) {
			return
		}
	}
}

// Answered moves the horizon to the time of a reply. The reply must be that of a majority write or
// a majority read. A reply without a time changes nothing.
func (h *Horizon) Answered(reply bson.Raw) {
	if t, err := operationTime(reply); err == nil {
		h.Reach(t)
	}
}

// Concern returns the read concern majority, not before the horizon.
func (h *Horizon) Concern() bson.D {
	concern := bson.D{{Key: "level", Value: "majority"}}
	if at := h.Time(); !at.IsZero() {
		concern = append(concern, bson.E{Key: "afterClusterTime", Value: at})
	}
	return concern
}

// Time returns the horizon, zero if nothing was seen.
func (h *Horizon) Time() bson.Timestamp {
	at := h.at.Load()
	return bson.Timestamp{T: uint32(at >> 32), I: uint32(at)}
}
