package controller

import (
	"context"
	"testing"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
)

// listing is a coordination store that does something before a list.
type listing struct {
	coord.Store
	before func()
}

func (l listing) List(ctx context.Context, prefix string) ([]coord.KV, int64, error) {
	l.before()
	return l.Store.List(ctx, prefix)
}

// TestOutlived: a controller notices that etcd has lost its record, or has another one. It says which,
// also where etcd changes between the two reads of a look.
func TestOutlived(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	root := memcoord.New()
	const name = "services/shop/deployments/d"
	store := deployment.New(root, name, deployment.Config{})
	empty := func() {
		kvs, _, err := root.List(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		var ops []coord.Op
		for _, kv := range kvs {
			ops = append(ops, coord.Op{Key: kv.Key, Delete: true})
		}
		if _, err := root.Commit(ctx, nil, ops); err != nil {
			t.Fatal(err)
		}
	}
	setUp := func() string {
		if _, err := store.Create(ctx, "v1", 4); err != nil {
			t.Fatal(err)
		}
		incarnation, err := store.Incarnation(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return incarnation
	}
	incarnation := setUp()
	look := func(seen int64, meanwhile func(), want string) (revision int64) {
		t.Helper()
		w := recordWatch{deployment: deployment.New(listing{root, meanwhile}, name, deployment.Config{}), incarnation: incarnation}
		revision, text, err := w.lookForRecord(ctx, seen)
		if err != nil || text != want {
			t.Errorf("the controller says %q, want %q; %v", text, want, err)
		}
		return revision
	}
	nothing := func() {}
	seen := look(0, nothing, "")
	look(seen+1, nothing, outlivedOlder)
	look(seen, empty, outlivedGone)
	look(seen, nothing, outlivedGone)
	setUp()
	look(seen, nothing, outlivedOther)
}
