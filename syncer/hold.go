package syncer

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// This file bounds the memory of groups that are read and written. A read may return up to
// transform.ReadBytes of each side, so that much is reserved before it. Afterwards its size is known,
// and the rest is given back before the write: over a distance a write takes much longer than a read,
// and is mostly small.

const (
	// heldUnit is the number of bytes of one unit of Engine.holding.
	heldUnit = 256 << 10
	// heldUnits are the units of one read.
	heldUnits = transform.ReadBytes / heldUnit
)

// newHolding returns the memory for a read of each worker. That of helpers is taken, until they work.
func newHolding(workers int) *semaphore.Weighted {
	s := semaphore.NewWeighted(int64(workers+mostHelpers) * heldUnits)
	s.TryAcquire(mostHelpers * heldUnits)
	return s
}

// held is memory that is reserved for one read of groups, and for the write of what it returned.
type held struct {
	holding *semaphore.Weighted
	units   int64
	bytes   atomic.Int64 // that were read
}

// hold reserves memory for one read of groups. Copies, comparisons and changes share cfg.Workers such
// reads, and over a distance one more for each helper that works, so that memory stays bounded. A group above
// transform.ReadBytes takes that of cfg.Workers. A holder must not wait for another holder, or they could
// deadlock.
func (e *Engine) hold(ctx context.Context, bytes int) (*held, error) {
	h := &held{holding: e.holding, units: heldUnits}
	if bytes > transform.ReadBytes {
		h.units *= int64(e.cfg.Workers)
	}
	if err := e.holding.Acquire(ctx, h.units); err != nil {
		return nil, err
	}
	return h, nil
}

// release gives everything back.
func (h *held) release() { h.holding.Release(h.units) }

// shrink gives back what the write of a batch does not need, after the reads for it.
func (h *held) shrink(b record.Batch) {
	bytes := h.bytes.Load()
	for i := range b.Groups {
		for _, w := range b.Groups[i].Writes {
			bytes += int64(len(w.Doc))
		}
	}
	if need := 1 + bytes/heldUnit; need < h.units {
		h.holding.Release(h.units - need)
		h.units = need
	}
}

// counted returns r with its reads counted.
func (h *held) counted(r record.Reader) record.Reader { return countedReader{r, h} }

type countedReader struct {
	record.Reader
	held *held
}

func (c countedReader) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	snap, err := c.Reader.Read(ctx, req)
	for i := range snap.Records {
		c.held.bytes.Add(int64(len(snap.Records[i].Doc)))
	}
	return snap, err
}
