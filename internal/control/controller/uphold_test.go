package controller

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// electing fails a number of commits, as etcd does in an election.
type electing struct {
	coord.Store
	left *int
}

func (s electing) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	if *s.left > 0 {
		*s.left--
		return 0, record.ErrUnavailable
	}
	return s.Store.Commit(ctx, conditions, ops)
}

// TestBreachIsRecordedAfterAnElection: a fence that was missing is in force again when the breach is
// recorded, so no later check finds it.
func TestBreachIsRecordedAfterAnElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := 0
		f := fences{
			log:        zap.NewNop(),
			deployment: deployment.New(electing{memcoord.New(), &left}, "services/a/deployments/b", deployment.Config{}),
		}
		if _, err := f.deployment.Create(t.Context(), "v2", 1); err != nil {
			t.Fatal(err)
		}
		d, err := f.deployment.Apply(t.Context(), upgradestate.AnnounceNamespace{Namespace: upgradestate.Namespace{
			Version: "v1", Location: "mem:v1", Kinds: []upgradestate.Kind{{Kind: "things", Fixed: true, Physical: "things", Fence: "validator"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		left = 3
		if err := f.noteBreaches(t.Context(), d, "v1", "things", []record.Breach{{What: "the validator was removed"}}); err != nil {
			t.Fatal(err)
		}
		if now, err := f.deployment.Get(t.Context()); err != nil || len(upgradestate.OpenBreaches(now)) != 1 || left != 0 {
			t.Errorf("recorded are %+v, %v", now.Breaches, err)
		}
		// A version that is gone by now is no reason to go on for ever.
		if err := f.noteBreaches(t.Context(), d, "v9", "things", []record.Breach{{What: "the validator was removed"}}); err == nil {
			t.Error("a breach of an unknown version is recorded")
		}
	})
}

// dying is an etcd that this process can no longer write to.
type dying struct {
	coord.Store
	die func()
}

func (s dying) Commit(ctx context.Context, _ []coord.Condition, _ []coord.Op) (int64, error) {
	s.die()
	return 0, ctx.Err()
}

// fencedThings is a deployment at v2, whose v1 has one kind. Somebody lifted its fence.
func fencedThings(t *testing.T, class record.FenceClass) (etcd *memcoord.Store, db *memstore.Store, leader func(coord.Store) *fences, f record.Fence) {
	t.Helper()
	const deploymentName = "services/a/deployments/b"
	ctx := t.Context()
	etcd, db = memcoord.New(), memstore.New()
	leader = func(s coord.Store) *fences {
		return &fences{
			connections: &connections{namespaces: map[string]record.Namespace{"v1": db}},
			log:         zap.NewNop(), opts: &Options{reads: true}, deployment: deployment.New(s, deploymentName, deployment.Config{}),
		}
	}
	if err := db.Foreign().Insert(ctx, "things", emptyDoc(t)); err != nil {
		t.Fatal(err)
	}
	info, err := db.Describe(ctx, record.KindSpec{Name: "things", Fixed: true}, "things")
	if err != nil {
		t.Fatal(err)
	}
	f = record.Fence{Class: class, Token: info.Token, To: "things.n1"}
	if err := db.Fence(ctx, f); err != nil {
		t.Fatal(err)
	}
	fenced := upgradestate.New(deploymentName, "v2", 1)
	fenced.Namespaces = []upgradestate.Namespace{{
		Version: "v1", Location: "mem:v1", Kinds: []upgradestate.Kind{{Kind: "things", Fixed: true, Physical: "things", ID: info.Token.ID, Fence: string(class), Fenced: f.To, NextSeq: 2}},
	}}
	value, err := json.Marshal(fenced)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Commit(ctx, nil, []coord.Op{{Key: leader(etcd).deployment.Root() + "/record", Value: value}}); err != nil {
		t.Fatal(err)
	}
	if err := db.Foreign().Unfence(ctx, "things"); err != nil {
		t.Fatal(err)
	}
	f.Standing = true
	return etcd, db, leader, f
}

// TestBreachSurvivesItsLeader: the leader dies between the check of a fence and the record of the
// breach. The next leader finds the breach, because the fence was not restored yet.
func TestBreachSurvivesItsLeader(t *testing.T) {
	t.Parallel()
	for class, lost := range map[record.FenceClass]string{record.FenceValidator: "the validator was removed", record.FenceWriteBlock: "the write block was removed"} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			etcd, db, leader, f := fencedThings(t, class)
			next := leader(etcd)
			life, die := context.WithCancel(ctx)
			if err := leader(dying{etcd, die}).upholdVersion(life, "v1", true); err == nil {
				t.Fatal("the leader lives")
			}
			for range 2 { // it is one breach
				if err := next.upholdVersion(ctx, "v1", true); err != nil {
					t.Fatal(err)
				}
			}
			d, err := next.deployment.Get(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if open := upgradestate.OpenBreaches(d); len(open) != 1 || open[0].What != lost {
				t.Errorf("recorded are %+v", open)
			}
			if err := db.Fence(ctx, f); err != nil {
				t.Errorf("the fence: %v", err)
			}
		})
	}
}

// away is an etcd that refuses all writes until it is back.
type away struct {
	coord.Store
	back chan struct{}
}

func (s away) Commit(ctx context.Context, conditions []coord.Condition, ops []coord.Op) (int64, error) {
	select {
	case <-s.back:
		return s.Store.Commit(ctx, conditions, ops)
	default:
		return 0, record.ErrUnavailable
	}
}

// TestFenceIsRestoredWhileEtcdIsAway: an open fence does not wait for an election of etcd. The breach
// is recorded after it.
func TestFenceIsRestoredWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		etcd, db, leader, f := fencedThings(t, record.FenceValidator)
		back, done := make(chan struct{}), make(chan error, 1)
		l := leader(away{etcd, back})
		go func() { done <- l.upholdVersion(t.Context(), "v1", true) }()
		time.Sleep(10 * time.Second) // of the bubble's clock
		if err := db.Fence(t.Context(), f); err != nil {
			t.Errorf("the fence while etcd is away: %v", err)
		}
		close(back)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if d, err := l.deployment.Get(t.Context()); err != nil || len(upgradestate.OpenBreaches(d)) != 1 {
			t.Errorf("recorded are %+v, %v", d.Breaches, err)
		}
	})
}

func emptyDoc(t *testing.T) bson.Raw {
	t.Helper()
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}
