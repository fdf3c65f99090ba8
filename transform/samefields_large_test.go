package transform_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform"
)

// TestSameFieldsOfLargeObjects: the time to compare objects of many fields in another order grows with
// their number, and not with its square.
func TestSameFieldsOfLargeObjects(t *testing.T) {
	const fields = 50_000
	there, back := bson.D{}, bson.D{}
	for i := range fields {
		there = append(there, bson.E{Key: fmt.Sprint("k", i), Value: int32(i)})
		back = append(back, bson.E{Key: fmt.Sprint("k", fields-1-i), Value: int32(fields - 1 - i)})
	}
	a, errA := bson.Marshal(bson.D{{Key: "v", Value: there}})
	b, errB := bson.Marshal(bson.D{{Key: "v", Value: back}})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano())
	}
	began := used()
	if !transform.SameFields(a, b) {
		t.Error("the order of fields counts")
	}
	if took := used() - began; took > 3*time.Second {
		t.Errorf("%d fields take %s", fields, took)
	}
}
