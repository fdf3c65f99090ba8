package syncer

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// sized is a reader whose reads return one document of a size.
type sized struct {
	record.Reader
	bytes int
}

func (s sized) Read(context.Context, record.ReadRequest) (record.Snapshot, error) {
	return record.Snapshot{Records: []record.Record{{Doc: make(bson.Raw, s.bytes)}}}, nil
}

// TestHold: a read reserves what it may return at most, and its write what it has returned. All together
// stay below what the workers may hold.
func TestHold(t *testing.T) {
	t.Parallel()
	const workers = 2
	e := &Engine{cfg: Config{Workers: workers}, holding: newHolding(workers)}
	hold := func(bytes int) *held {
		t.Helper()
		h, err := e.hold(t.Context(), bytes)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	read := func(h *held, bytes int) {
		t.Helper()
		if _, err := h.counted(sized{bytes: bytes}).Read(t.Context(), record.ReadRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	writing := func(bytes int) record.Batch {
		return record.Batch{Groups: []record.GroupWrite{{Writes: []record.Write{{Doc: make(bson.Raw, bytes)}}}}}
	}
	var all []*held
	// Small writes leave room for one more read until the memory of all is used.
	for range (workers-1)*heldUnits + 1 {
		h := hold(transform.ReadBytes)
		read(h, 100)
		h.shrink(writing(100))
		all = append(all, h)
	}
	for range heldUnits - 1 {
		if !e.holding.TryAcquire(1) {
			t.Fatal("small writes hold more than a unit each")
		}
	}
	if e.holding.TryAcquire(1) {
		t.Error("small writes hold less than a unit each")
	}
	e.holding.Release(heldUnits - 1)
	for _, h := range all {
		h.release()
	}
	// A write that is larger than the reservation keeps it.
	large := hold(transform.ReadBytes)
	read(large, transform.ReadBytes)
	large.shrink(writing(transform.ReadBytes))
	other := hold(transform.ReadBytes)
	if e.holding.TryAcquire(1) {
		t.Error("two workers with large reads leave memory for a third one")
	}
	other.release()
	large.release()
	// A group above the limit takes all memory, and gives back what it does not need.
	huge := hold(transform.ReadBytes + 1)
	if e.holding.TryAcquire(1) {
		t.Error("there is memory beside a huge group")
	}
	read(huge, 3*heldUnit)
	huge.shrink(writing(heldUnit))
	if !e.holding.TryAcquire(workers*heldUnits - 5) {
		t.Error("a group of five units holds more than them")
	}
	if e.holding.TryAcquire(1) {
		t.Error("a group of five units holds less than them")
	}
}
