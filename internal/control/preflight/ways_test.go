package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// TestProofBringsAsTheEngineDoes: what the engine would delete, overwrite or park on the way
// back is found, though it does not show where the old side holds nothing yet.
func TestProofBringsAsTheEngineDoes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(s *transform.Spec)
		want   string
	}{
		"left over, so that it is deleted": {func(s *transform.Spec) {
			down := s.Down
			s.DownNeedsHave = true
			s.Down = func(src, have transform.Group) ([]record.Record, error) {
				if len(have.Records) > 0 {
					return nil, nil // not what it makes where nothing is
				}
				return down(src, have)
			}
		}, "orders o-000: source and target differ after repair"},
		"refused where something is": {func(s *transform.Spec) {
			down := s.Down
			s.DownNeedsHave = true
			s.Down = func(src, have transform.Group) ([]record.Record, error) {
				if len(have.Records) > 0 {
					return nil, errors.New("no idea of what is there")
				}
				return down(src, have)
			}
		}, "no idea of what is there"},
		"another result with each try": {func(s *transform.Spec) {
			down, n := s.Down, 0
			s.Reversal = transform.ReversalNone
			s.Down = func(src, have transform.Group) ([]record.Record, error) {
				out, err := down(src, have)
				if n++; err == nil {
					out[0].Doc = document("o-000", strings.Repeat("x", n))
				}
				return out, err
			}
		}, "is the transformer deterministic?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := ordersSpec(t, ordersLens)
			s.Revision, s.Reversal = name, transform.ReversalOwn
			tc.change(&s)
			n := 3
			if s.Reversal == transform.ReversalNone {
				n = 1
			}
			w := newProofWorld(t, nil, nil, orders(n), s)
			found, err := w.proof(nil).run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("proved %+v, error %v, want %q in it", found, err, tc.want)
			}
			if left := w.scratches(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestProofOfOneWay: a transformer that is declared not to give back what it was made of has a
// rollback as long as nothing is refused there, and the proof says what comes back altered.
func TestProofOfOneWay(t *testing.T) {
	t.Parallel()
	// Full names cannot be taken apart again.
	merged := func(text func(bson.Raw) string) transform.Func {
		return func(src, _ transform.Group) ([]record.Record, error) {
			r := src.Records[0]
			name, _ := r.Key.Name()
			return []record.Record{{Kind: "orders", Key: r.Key, Doc: document(name, text(r.Doc))}}, nil
		}
	}
	spec := func(down transform.Func) transform.Spec {
		s := ordersSpec(t, ordersLens)
		s.Revision, s.Reversal = "one-way", transform.ReversalNone
		s.Up = merged(func(d bson.Raw) string { return d.Lookup("section").String() })
		s.Down = down
		return s
	}
	t.Run("altered", func(t *testing.T) {
		t.Parallel()
		w := newProofWorld(t, nil, nil, orders(5), spec(merged(func(d bson.Raw) string { return d.Lookup("of").String() })))
		found, err := w.proof(nil).run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if found.records != 5 || !strings.Contains(found.String(), "a one-way transformer altered 5 of them") {
			t.Errorf("proved %+v: %s", found, found)
		}
	})
	t.Run("impossible", func(t *testing.T) {
		t.Parallel()
		w := newProofWorld(t, nil, nil, orders(5), spec(func(transform.Group, transform.Group) ([]record.Record, error) {
			return nil, errors.New("a name cannot be taken apart")
		}))
		if _, err := w.proof(nil).run(t.Context()); err == nil || !strings.Contains(err.Error(), "could not be migrated back from v2 to v1: orders o-000: ") ||
			!strings.Contains(err.Error(), "cannot be taken apart") {
			t.Errorf("error %v", err)
		}
	})
}

// TestProofIsNotFelt: a transaction that a client has open on the application's collection,
// which is fenced by a view, stands and commits, and nothing locks the whole server.
func TestProofIsNotFelt(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, err := localmongo.Start(ctx, localmongo.Options{Own: true}) // others would end transactions, too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Disconnect(context.WithoutCancel(ctx)) }) //nolint:errcheck // the server ends
	n := 0
	w := newProofWorldOn(t, client, func() (string, string) { n++; return server.URI(), fmt.Sprint("shop", n) }, nil, nil, orders(30), ordersSpec(t, ordersLens))
	if ns, _ := w.record.Namespace("v1"); ns.Kinds[0].Fence != string(record.FenceView) {
		t.Fatalf("the collection is fenced by %q", ns.Kinds[0].Fence)
	}
	applyOps := func() int64 {
		t.Helper()
		var status struct {
			Metrics struct {
				Commands struct {
					ApplyOps struct {
						Total int64 `bson:"total"`
					} `bson:"applyOps"`
				} `bson:"commands"`
			} `bson:"metrics"`
		}
		w.check(client.Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status))
		return status.Metrics.Commands.ApplyOps.Total
	}
	session, err := client.StartSession()
	w.check(err)
	defer session.EndSession(ctx)
	w.check(session.StartTransaction())
	inside := mongo.NewSessionContext(ctx, session)
	_, err = w.raw["v1"].Collection("orders").UpdateByID(inside, "o-000", bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int32(9)}}}})
	w.check(err)
	before := applyOps()
	found, err := w.proof(nil).run(ctx)
	if err != nil || found.records != tripGroups {
		t.Errorf("proved %+v, %v", found, err)
	}
	if after := applyOps(); before == 0 || after != before {
		t.Errorf("%d commands that lock the whole server, %d before the proof", after, before)
	}
	if err := session.CommitTransaction(inside); err != nil {
		t.Errorf("the client's transaction: %v", err)
	}
}
