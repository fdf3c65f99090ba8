package mongostore

import (
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Horizon is the latest time that the clients of a database, in this process, know of what a
// majority has: of what was acknowledged to them, and of what they have read. A read that is not
// before it goes back behind neither, whichever server answers: one that was deposed has no
// majority for anything that late, and waits until it knows. It is the cluster that compares.
type Horizon struct {
	at atomic.Uint64 // seconds first
}

// reach moves the horizon, never back.
func (h *Horizon) reach(t bson.Timestamp) {
	to := uint64(t.T)<<32 | uint64(t.I)
	for {
		at := h.at.Load()
		if to <= at || h.at.CompareAndSwap(at, to) {
			return
		}
	}
}

// answered is reach by the reply to a write that a majority has acknowledged, or to a read of
// what one has. One without a time changes nothing.
func (h *Horizon) answered(reply bson.Raw) {
	if t, err := operationTime(reply); err == nil {
		h.reach(t)
	}
}

// concern reads what a majority has, not before the horizon.
func (h *Horizon) concern() bson.D {
	concern := bson.D{{Key: "level", Value: "majority"}}
	if at := h.time(); !at.IsZero() {
		concern = append(concern, bson.E{Key: "afterClusterTime", Value: at})
	}
	return concern
}

func (h *Horizon) time() bson.Timestamp {
	at := h.at.Load()
	return bson.Timestamp{T: uint32(at >> 32), I: uint32(at)}
}
