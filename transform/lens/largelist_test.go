package lens_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens"
)

// processor returns the processor time of this process, which other processes do not change.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano())
}

// TestLargeLists: the time for a list over an existing target grows with its items, and not with their
// square. A record has room for some hundred thousand.
func TestLargeLists(t *testing.T) {
	for name, tc := range map[string]struct {
		operation string
		item      func(i int) bson.D
		items     int  // the square of it takes a minute
		differs   bool // the reverse over the old record differs without it
	}{
		// The order of fields is restored in each item.
		"rename": {"rename: {from: n, to: m}", func(i int) bson.D { return bson.D{{Key: "id", Value: int32(i)}, {Key: "n", Value: "x"}} }, 100_000, false},
		// Each item has a form of its own.
		"forms": {"normalize: {field: n, steps: [trim]}", func(i int) bson.D { return bson.D{{Key: "id", Value: int32(i)}, {Key: "n", Value: " x"}} }, 10_000, true},
	} {
		for _, in := range []string{"list", "map"} {
			t.Run(name+" in a "+in, func(t *testing.T) {
				match := ", match: id"
				var v any
				if list := (bson.A{}); in == "list" {
					for i := range tc.items {
						list = append(list, tc.item(i))
					}
					v = list
				} else {
					match = ""
					entries := bson.D{}
					for i := range tc.items {
						entries = append(entries, bson.E{Key: fmt.Sprint("k", i), Value: tc.item(i)})
					}
					v = entries
				}
				old, err := bson.Marshal(bson.D{{Key: "_id", Value: "x"}, {Key: "v", Value: v}})
				if err != nil {
					t.Fatal(err)
				}
				l, err := lens.Parse("x.yaml", fmt.Appendf(nil, "operations:\n  - each: {field: v, in: %s%s, operations: [{%s}]}\n", in, match, tc.operation))
				if err != nil {
					t.Fatal(err)
				}
				began := processor(t)
				now, err := l.Up(old, nil)
				if err != nil {
					t.Fatal(err)
				}
				again, err := l.Up(old, now)
				if err != nil || !bytes.Equal(again, now) {
					t.Fatalf("up over the target differs, %v", err)
				}
				back, err := l.Down(now, old)
				if err != nil || !bytes.Equal(back, old) {
					t.Fatalf("the reverse over the old record differs, %v", err)
				}
				if bare, err := l.Down(now, nil); err != nil || bytes.Equal(bare, old) == tc.differs {
					t.Fatalf("the reverse alone is equal: %t, %v", !tc.differs, err)
				}
				if took := processor(t) - began; took > 5*time.Second {
					t.Errorf("%d items take %s", tc.items, took)
				}
			})
		}
	}
}
