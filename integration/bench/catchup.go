package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// gate blocks streams of changes while it is closed.
type gate struct{ closed atomic.Pointer[chan struct{}] }

func (g *gate) close() {
	c := make(chan struct{})
	g.closed.Store(&c)
}

func (g *gate) open() {
	if c := g.closed.Swap(nil); c != nil {
		close(*c)
	}
}

// wait blocks while the gate is closed.
func (g *gate) wait(ctx context.Context) {
	if c := g.closed.Load(); c != nil {
		select {
		case <-*c:
		case <-ctx.Done():
		}
	}
}

type gated struct {
	record.Namespace
	gate *gate
}

func (g gated) Watch(ctx context.Context, from record.Position, kinds []record.KindSpec) (record.Stream, error) {
	s, err := g.Namespace.Watch(ctx, from, kinds)
	if err != nil {
		return nil, err
	}
	return gatedStream{s, g.gate}, nil
}

type gatedStream struct {
	record.Stream
	gate *gate
}

// Next waits before the request. A batch received earlier dates from before the gate was closed.
func (g gatedStream) Next(ctx context.Context) (record.ChangeBatch, error) {
	g.gate.wait(ctx)
	return g.Stream.Next(ctx)
}

// catchUp blocks the stream, changes records, and measures the time from the release of the stream
// until the target has all changes.
func catchUp(ctx context.Context, b *bench, round int) error {
	// A dataset of its own, because the changes stay in it.
	d := b.small("changed", max(b.changes, b.hot))
	if err := b.fill(ctx, d); err != nil {
		return err
	}
	g := &gate{}
	s, err := b.deploy(ctx, spec{
		from: b.from, to: b.to, database: d.name, kinds: map[string]bool{kindName: true}, lens: d.lens, inside: true,
		wrap: func(version string, ns record.Namespace) record.Namespace {
			// Only the stream of the source is blocked.
			if version == "v1" {
				return gated{ns, g}
			}
			return ns
		},
	})
	if err != nil {
		return err
	}
	defer s.close(ctx)
	defer g.open()
	if err := s.begin(ctx, true); err != nil {
		return err
	}
	// The copy must be over, or the changes would be part of it.
	if err := s.awaitReady(ctx, true); err != nil {
		return err
	}
	source := b.from.client.Database(d.name).Collection(kindName)
	for i, l := range []struct {
		row           string
		changes, keys int
	}{{"catchup.distinct", b.changes, b.changes}, {"catchup.hot", 3 * b.changes, b.hot}} {
		g.close()
		rest(ctx, 1500*time.Millisecond) // a request sent before the close returns within a second
		// A value that no earlier round has written, so that awaitChanges cannot match an old one.
		mark := int64(1_000_000*(2*round+i+1)) + time.Now().UnixNano()
		last, err := changeAll(ctx, source, l.changes, l.keys, mark)
		if err != nil {
			return err
		}
		// The time starts with the release, not with the changes.
		begun := time.Now()
		g.open()
		if err := s.awaitChanges(ctx, last, l.keys); err != nil {
			return fmt.Errorf("%s: %w", l.row, err)
		}
		b.figure(l.row, float64(l.changes)/time.Since(begun).Seconds(), "%d changes of %d records, w:majority in bulks, while the stream of changes is held, and then the time until the target has the last state of each; the controller is in the benchmark's process. The bar speaks of 300,000.", l.changes, l.keys)
	}
	return nil
}

// changeAll makes the changes, round after round over the records, and returns each record's last
// value.
func changeAll(ctx context.Context, col *mongo.Collection, changes, keys int, mark int64) (map[string]int64, error) {
	const batch = 1000
	last := map[string]int64{}
	var mu sync.Mutex
	for from := 0; from < changes; from += keys { // the changes of one record must be ordered
		g, gctx := errgroup.WithContext(ctx)
		// Batches of one pass touch different records, so they may run in parallel.
		g.SetLimit(8)
		end := min(changes, from+keys)
		for at := from; at < end; at += batch {
			g.Go(func() error {
				models := make([]mongo.WriteModel, 0, batch)
				for i := at; i < min(end, at+batch); i++ {
					models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: key(i % keys)}}).
						SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "at", Value: mark + int64(i)}}}}))
				}
				// The parallel batches share this map.
				mu.Lock()
				for i := at; i < min(end, at+batch); i++ {
					last[key(i%keys)] = mark + int64(i)
				}
				mu.Unlock()
				_, err := collection(col, "majority").BulkWrite(gctx, models, options.BulkWrite().SetOrdered(false))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// awaitChanges waits until the target has the last value of each record. It polls a few records,
// and reads all of them only once these match.
func (s *system) awaitChanges(ctx context.Context, last map[string]int64, keys int) error {
	target := s.targets()[0]
	differ := func(ids bson.A) (bool, error) {
		filter := bson.D{}
		if ids != nil {
			filter = bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
		}
		cur, err := target.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "at", Value: 1}}))
		if err != nil {
			return false, err
		}
		defer cur.Close(ctx) //nolint:errcheck // it was read
		for cur.Next(ctx) {
			id, at := cur.Current.Lookup("_id").StringValue(), cur.Current.Lookup("at").AsInt64()
			if want, changed := last[id]; changed && at != want {
				return true, nil
			}
		}
		return false, cur.Err()
	}
	some := bson.A{}
	for i := range 64 {
		// The last key of each 64th, since each pass changes the records in order.
		some = append(some, key(keys*(i+1)/64-1))
	}
	return s.poll(ctx, 10*time.Millisecond, func() (bool, error) {
		if open, err := differ(some); open || err != nil {
			return false, err
		}
		open, err := differ(nil)
		return !open, err
	})
}
