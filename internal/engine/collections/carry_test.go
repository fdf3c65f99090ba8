package collections

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// route is a direction that leads somewhere; nothing else of it is asked.
type route struct {
	transform.Direction
	from, to string
}

func (r route) From() string { return r.from }
func (r route) To() string   { return r.to }
func (r route) TargetKinds() []record.KindSpec {
	return []record.KindSpec{{Name: "orders", Fixed: true}, {Name: "lrps"}}
}

// TestCarriesAlong: over several versions options and indexes go through each of them,
// between places as they are, and back not at all.
func TestCarriesAlong(t *testing.T) {
	t.Parallel()
	index := func(name string) func(record.Shape) (record.Shape, error) {
		return func(s record.Shape) (record.Shape, error) {
			raw, err := bson.Marshal(bson.D{{Key: "name", Value: name}})
			s.Indexes = append(s.Indexes, raw)
			return s, err
		}
	}
	bad := errors.New("it cannot be")
	c := Carries{
		{"v1", "v2"}: {"orders2": {From: "orders", Shape: index("one")}, "bad": {From: "orders", Shape: func(record.Shape) (record.Shape, error) { return record.Shape{}, bad }}},
		{"v2", "v3"}: {"orders3": {From: "orders2", Shape: index("two")}, "lines3": {From: "lines2", Shape: index("own")}, "bad3": {From: "bad", Shape: index("two")}},
	}
	names := func(kind string, r route) string {
		carry, ok := c.along(r)[kind]
		if !ok {
			return "none"
		}
		start, _ := index("old")(record.Shape{})
		s, err := carry.Shape(start)
		if err != nil {
			return err.Error()
		}
		out := []string{"from " + carry.From}
		for _, ix := range s.Indexes {
			out = append(out, ix.Lookup("name").StringValue())
		}
		return strings.Join(out, " ")
	}
	for _, tc := range []struct{ kind, from, to, want string }{
		{"orders2", "v1", "v2", "from orders old one"},
		{"orders3", "v2@b", "v3", "from orders2 old two"},
		{"orders3", "v1", "v3@c", "from orders old one two"},
		{"lines3", "v1", "v3", "from  own"}, // nothing was carried to lines2
		{"lines3", "v2", "v3", "from lines2 old own"},
		{"bad3", "v1", "v3", bad.Error()},
		{"orders2", "v1", "v3", "none"},
		{"orders", "v3", "v1", "none"},
		{"orders", "v2", "v2@b", "from orders old"},
		{"lrps", "v2", "v2@b", "none"},
	} {
		if got := names(tc.kind, route{from: tc.from, to: tc.to}); got != tc.want {
			t.Errorf("%s from %s to %s: %s, want %s", tc.kind, tc.from, tc.to, got, tc.want)
		}
	}
}
