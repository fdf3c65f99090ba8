package provision_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestViewsAreSurveyed: views are found with all that they read, at any depth.
func TestViewsAreSurveyed(t *testing.T) {
	t.Parallel()
	ns := storetest.OpenSuite(t, storetest.Start(t, localmongo.Options{}).URI(), "views_surveyed")
	stage := func(op string, v any) bson.A { return bson.A{bson.D{{Key: op, Value: v}}} }
	for name, stages := range map[string]bson.A{
		"plain":  {},
		"joins":  stage("$lookup", bson.D{{Key: "from", Value: "lines"}, {Key: "localField", Value: "_id"}, {Key: "foreignField", Value: "o"}, {Key: "as", Value: "l"}}),
		"unites": stage("$unionWith", "old_orders"),
		"deep":   stage("$unionWith", bson.D{{Key: "coll", Value: "lines"}, {Key: "pipeline", Value: stage("$unionWith", "parts")}}),
	} {
		cmd := bson.D{{Key: "create", Value: name}, {Key: "viewOn", Value: "orders"}, {Key: "pipeline", Value: stages}}
		if err := ns.DB.RunCommand(t.Context(), cmd).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := ns.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range s.Views {
		got[v.Name] = strings.Join(v.Reads, " ")
	}
	want := map[string]string{"plain": "orders", "joins": "lines orders", "unites": "old_orders orders", "deep": "lines orders parts"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A name that is too long is refused in words, before anything is made.
	long := record.LongestName(strings.Repeat("x", 220))
	if _, err := ns.Describe(t.Context(), record.KindSpec{Name: "k", Fixed: true}, long); err == nil || !strings.Contains(err.Error(), "too long") || !strings.Contains(err.Error(), "255") {
		t.Errorf("%v", err)
	}
}
