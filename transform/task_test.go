package transform_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

func TestTasks(t *testing.T) {
	t.Parallel()
	leave := func(record.Record) (bson.Raw, error) { return nil, nil }
	r := transform.NewRegistry("items")
	for _, bad := range []transform.Task{{}, {Name: "a", Version: "v1", Kind: "k"}, {Name: "a", Kind: "k", Func: leave}} {
		if err := r.AddTasks(bad); err == nil {
			t.Errorf("%+v was added", bad)
		}
	}
	if _, err := r.Task("a"); err == nil || err.Error() != `there is no data update "a": there are none here` {
		t.Error(err)
	}
	one := transform.Task{Name: "fill", Version: "v1", Kind: "k", Revision: "1", Func: leave}
	if err := errors.Join(r.AddTasks(one), r.AddTasks(transform.Task{Name: "b", Version: "v1", Kind: "k", Func: leave})); err != nil {
		t.Fatal(err)
	}
	if err := r.AddTasks(one); err == nil {
		t.Error("a name twice")
	}
	if _, err := r.Task("a"); err == nil || err.Error() != `there is no data update "a": there are fill, b` {
		t.Error(err)
	}
	if got, err := r.Task("fill"); err != nil || got.Hash() != one.Hash() || len(r.Tasks()) != 2 {
		t.Errorf("%+v, %v of %d", got, err, len(r.Tasks()))
	}
	other := one
	other.Revision = "2"
	if one.Hash() == other.Hash() {
		t.Error("two revisions have one hash")
	}
}
