package controller

import (
	"strings"
	"testing"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

// TestTry moves a record there and back through the controller's own transform.
func TestTry(t *testing.T) {
	t.Parallel()
	l, err := lens.Parse("orders.yaml", []byte("lens: 1\noperations:\n- rename: {from: mail, to: email}\n- convert: {field: size, from: int, to: long}\n- add: {field: state, default: new}\n"))
	if err != nil {
		t.Fatal(err)
	}
	a := &App{registry: transform.NewRegistry("shop")}
	if err := a.registry.Add("v1", "v2", l.Spec("orders", "orders")); err != nil {
		t.Fatal(err)
	}
	try := func(req *pb.TryTransformRequest) (*pb.TryTransformResponse, error) { return a.Try(t.Context(), req) }

	r, err := try(&pb.TryTransformRequest{FromVersion: "v1", ToVersion: "v2", Kind: "orders", Record: `{"_id": "a", "mail": "m", "size": 5}`})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(r.There[0].Record), " "); got != `{ "_id": "a", "email": "m", "size": {"$numberLong":"5"}, "state": "new" }` || !r.Exact || r.Failed != "" {
		t.Errorf("there: %s, exact %t, failed %q", got, r.Exact, r.Failed)
	}
	// The kind can be left out where there is one, and the way can lead to the older version.
	r, err = try(&pb.TryTransformRequest{FromVersion: "v2", ToVersion: "v1", Record: `{"_id": "a", "email": "m", "size": {"$numberLong": "5"}, "state": "old"}`})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Differences) != 1 || r.Differences[0].Path != "state" || r.Differences[0].Was != `"old"` || r.Differences[0].Is != `"new"` || r.Exact {
		t.Errorf("differences %v", r.Differences)
	}
	// Over the old record nothing is lost.
	r, err = try(&pb.TryTransformRequest{FromVersion: "v2", ToVersion: "v1", Over: true, Record: `{"_id": "a", "email": "m", "size": {"$numberLong": "5"}, "state": "old"}`})
	if err != nil || len(r.Differences) != 0 {
		t.Errorf("over the old record: differences %v, %v", r.GetDifferences(), err)
	}
	r, err = try(&pb.TryTransformRequest{FromVersion: "v1", ToVersion: "v2", Record: `{"_id": "a", "size": "five"}`})
	if err != nil || r.Failed != "there" || !strings.Contains(r.Reason, "size") || len(r.There) != 0 {
		t.Errorf("a record that is refused: %v, %v", r, err)
	}
	for _, tc := range []struct{ kind, record, to, want string }{
		{"packages", `{"_id": 1}`, "v2", `kind "packages": want one of v1: orders`},
		{"orders", ``, "v2", "record: it is empty"},
		{"orders", `{"_id": 1} {"_id": 2}`, "v2", "something follows the record"},
		{"orders", `{"mail": "m"}`, "v2", "it has no _id"},
		{"orders", `{"_id": `, "v2", "record: record 1:"},
		{"orders", `[{"_id": 1}]`, "v2", "one JSON array"},
		{"orders", `{"_id": 1}`, "v9", "v9"},
	} {
		if _, err := try(&pb.TryTransformRequest{FromVersion: "v1", ToVersion: tc.to, Kind: tc.kind, Record: tc.record}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s to %s: %v, want %q", tc.kind, tc.record, tc.to, err, tc.want)
		}
	}
}
