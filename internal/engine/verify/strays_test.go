package verify_test

import (
	"context"
	"fmt"
	"testing"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
)

// counting counts what is read of documents, and how many keys alone.
type counting struct {
	record.Namespace
	docs, keys int
}

func (c *counting) Read(ctx context.Context, req record.ReadRequest) (record.Snapshot, error) {
	snap, err := c.Namespace.Read(ctx, req)
	if req.KeysOnly {
		c.keys += len(snap.Records)
	} else {
		c.docs += len(snap.Records)
	}
	return snap, err
}

// TestStraysByKeys: to find what the source does not have no document is read, but of the
// strays themselves. A record that was deleted in the source leaves one, and a tombstone in
// the target is none.
func TestStraysByKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	source, target := &counting{Namespace: w.old}, &counting{Namespace: w.new}
	up, _ := directions(t)
	c := verify.New(source, target, up)
	w.put(t, "wholes", "c", nil) // which leaves a head and two parts
	w.put(t, "wholes", "b", nil)
	w.put(t, "heads", "b", nil)
	w.put(t, "parts", "b/0", nil)
	differ, compared := pages(t, c.TargetPage, w.oldView(), w.newView(), 3, "heads", "parts")
	if fmt.Sprint(differ) != "[c]" || compared == 0 {
		t.Errorf("%v differ of %d, want c", differ, compared)
	}
	if source.docs > 0 || source.keys == 0 {
		t.Errorf("%d documents and %d keys of the source were read, want keys alone", source.docs, source.keys)
	}
	if target.docs > 2*3 {
		t.Errorf("%d documents of the target were read, want those of the stray", target.docs)
	}
}
