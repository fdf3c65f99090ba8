package mongostore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/integration/localmongo/mongotest"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestFenceWhileTransactionsArePrepared fences a kind again and again while clients write to
// both shards in one transaction, so that renames meet transactions that one shard or both
// have prepared. Whatever was acknowledged is there whole; what was refused is not there by
// half; and every change is before the marker of the fence that stopped it.
func TestFenceWhileTransactionsArePrepared(t *testing.T) {
	t.Parallel()
	const rounds, writers = 6, 4
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := mongotest.Sharded(t)
	db := c.Database(t, 0)
	ns := storetest.OpenSuite(t, c.URI(), db)
	kind := record.KindSpec{Name: "pairs"}
	tok, err := ns.Provision(ctx, kind, record.PhysicalName(kind.Name, 1))
	if err != nil {
		t.Fatal(err)
	}
	c.ShardRanged(t, db, tok.Name, "m")
	prepared := func() (n int64) {
		for shard := range c.Shards() {
			raw, err := c.Direct(t, shard).Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Raw()
			if err != nil {
				t.Fatal(err)
			}
			total, _ := raw.Lookup("transactions", "totalPrepared").AsInt64OK()
			n += total
		}
		return n
	}
	before := prepared()
	start, err := ns.Position(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	acked, unknown := map[string]int{}, map[string]bool{} // pair -> round
	for round := range rounds {
		var g errgroup.Group
		warm := make(chan struct{}, writers*1000)
		for w := range writers {
			g.Go(func() error {
				for i := 0; ; i++ {
					pair := fmt.Sprintf("%d-%d-%d", round, w, i)
					var ms []record.Mutation
					for _, half := range []string{"a", "z"} {
						doc, err := bson.Marshal(bson.D{{Key: "_id", Value: half + pair}})
						if err != nil {
							return err
						}
						ms = append(ms, record.Mutation{Kind: kind.Name, Key: record.StringKey(half + pair), Doc: doc})
					}
					err := ns.Client().Write(ctx, record.Tokens{kind.Name: tok}, ms)
					mu.Lock()
					switch {
					case err == nil:
						acked[pair] = round
					case errors.Is(err, record.ErrUnknown):
						unknown[pair] = true
					}
					mu.Unlock()
					select {
					case warm <- struct{}{}:
					default:
					}
					if errors.Is(err, record.ErrFenced) {
						return nil
					}
					if err != nil && !errors.Is(err, record.ErrUnknown) {
						return err
					}
				}
			})
		}
		for range 5 * writers {
			select {
			case <-warm:
			case <-ctx.Done():
				t.Fatal("writers make no progress")
			}
		}
		to := record.PhysicalName(kind.Name, uint64(round)+2)
		if err := ns.Fence(ctx, record.Fence{Token: tok, To: to, Class: record.FenceUUID}); err != nil {
			t.Fatal(err)
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		tok.Name = to
	}
	if n := prepared() - before; n == 0 {
		t.Error("no transaction was prepared")
	}

	stored := map[string]int{}
	cursor, err := c.Client().Database(db).Collection(tok.Name).Find(ctx, bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var docs []struct {
		ID string `bson:"_id"`
	}
	if err := cursor.All(ctx, &docs); err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		stored[d.ID[1:]]++
	}
	for pair := range acked {
		if stored[pair] != 2 {
			t.Errorf("pair %s was acknowledged, and %d of its records are there", pair, stored[pair])
		}
	}
	for pair, n := range stored {
		if _, ok := acked[pair]; n != 2 || !ok && !unknown[pair] {
			t.Errorf("pair %s has %d records, and was acknowledged: %t", pair, n, ok)
		}
	}

	s, err := ns.Watch(ctx, start, []record.KindSpec{kind})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(ctx))
	seen, round := map[string]int{}, 0
	for round < rounds {
		batch, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range batch.Changes {
			if change.Marker == record.PhysicalName(kind.Name, uint64(round)+2) {
				for pair, in := range acked {
					if in == round && seen[pair] < 2 {
						t.Errorf("pair %s of round %d was acknowledged, and is not before the marker", pair, round)
					}
				}
				round++
				continue
			}
			if change.Marker == "" {
				seen[change.Key.String()[1:]]++
			}
		}
	}
	t.Logf("%d pairs acknowledged, %d of unknown outcome, %d transactions prepared", len(acked), len(unknown), prepared()-before)
}
