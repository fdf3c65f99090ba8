package record_test

import (
	"maps"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

func TestExpiryOfShapes(t *testing.T) {
	t.Parallel()
	index := func(d ...bson.E) bson.Raw {
		raw, err := bson.Marshal(bson.D(append([]bson.E{{Key: "key", Value: bson.D{{Key: "at", Value: 1}, {Key: "n", Value: -1}}}}, d...)))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	shape := record.Shape{Indexes: []bson.Raw{
		index(bson.E{Key: "name", Value: "int"}, bson.E{Key: "expireAfterSeconds", Value: int32(60)}),
		index(bson.E{Key: "expireAfterSeconds", Value: 5.0}), // named after its key
		index(bson.E{Key: "name", Value: "plain"}, bson.E{Key: "unique", Value: true}),
	}}
	want := map[string]int64{"int": 60, "at_1_n_-1": 5}
	stopped, had := record.Unexpiring(shape)
	if !maps.Equal(had, want) {
		t.Errorf("expiry %v, want %v", had, want)
	}
	if now := record.ExpiryOf(stopped); !maps.Equal(now, map[string]int64{"int": record.NeverExpires, "at_1_n_-1": record.NeverExpires}) {
		t.Errorf("stopped: %v", now)
	}
	if again := record.WithExpiry(stopped, map[string]int64{"int": 60, "at_1_n_-1": 5, "plain": 7, "gone": 7}); !maps.Equal(record.ExpiryOf(again), want) {
		t.Errorf("started: %v, want %v", record.ExpiryOf(again), want)
	}
	if !maps.Equal(record.ExpiryOf(shape), want) {
		t.Error("the shape that was given has changed")
	}
	if none, had := record.Unexpiring(record.Shape{}); len(none.Indexes) != 0 || had != nil {
		t.Errorf("of no indexes: %v, %v", none, had)
	}
}
