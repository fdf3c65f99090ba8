package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// clients simulates an application that updates random records on a schedule. A late update is sent
// at once. Its latency counts from its scheduled time, so that a stall is not hidden.
type clients struct {
	col  *mongo.Collection
	keys int // number of records, from the first one on
	rate int // updates per second
	bulk int // updates per command; 0 means 1
	// write makes one update. Nil sets a field of a random record of col.
	write  func(ctx context.Context, rng *rand.Rand) error
	timed  func(due, acked time.Time) // called for each write; may be nil
	felt   []float64
	failed error
	mu     sync.Mutex
}

// collection returns col with another write concern: "majority", or a number of members.
func collection(col *mongo.Collection, w any) *mongo.Collection {
	return col.Database().Collection(col.Name(), options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: w}))
}

// run writes until ctx ends, and returns the updates per second that it reached.
func (c *clients) run(ctx context.Context) (rate float64) {
	const writers = 32
	begun := time.Now()
	bulk := max(c.bulk, 1)
	// Each writer has its share of the rate. 32 of them keep the rate even during slow writes.
	every := time.Second * time.Duration(writers*bulk) / time.Duration(c.rate)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(begun.UnixNano()), uint64(w)))
			var felt []float64
			// Staggered, so that the writers do not send all at once.
			due := begun.Add(every * time.Duration(w) / writers)
			for ; ctx.Err() == nil; due = due.Add(every) {
				// A late writer does not rest, and sends at once.
				rest(ctx, time.Until(due))
				if ctx.Err() != nil {
					break
				}
				// The end of the run must not fail a write in progress.
				if err := c.update(context.WithoutCancel(ctx), rng, bulk); err != nil {
					c.mu.Lock()
					c.failed = err
					c.mu.Unlock()
					return
				}
				acked := time.Now()
				// From the due time: otherwise one slow write would hide the delay of those behind
				// it.
				felt = append(felt, float64(acked.Sub(due).Microseconds())/1000)
				if c.timed != nil {
					c.timed(due, acked)
				}
			}
			// Each writer adds its latencies once, to keep the lock out of the measurement.
			c.mu.Lock()
			c.felt = append(c.felt, felt...)
			c.mu.Unlock()
		})
	}
	wg.Wait()
	return float64(len(c.felt)*bulk) / time.Since(begun).Seconds()
}

// problem returns the error that stopped a writer, or nil.
func (c *clients) problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *clients) update(ctx context.Context, rng *rand.Rand, bulk int) error {
	// A write that takes this long has failed, whatever held it.
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if c.write != nil {
		return c.write(ctx, rng)
	}
	change := func() (filter, update bson.D) {
		// The first records are the samples of lag.
		return bson.D{{Key: "_id", Value: key(samples + rng.IntN(c.keys-samples))}}, bson.D{{Key: "$set", Value: bson.D{{Key: "at", Value: rng.Int64()}}}}
	}
	if bulk == 1 {
		filter, update := change()
		_, err := c.col.UpdateOne(ctx, filter, update)
		return err
	}
	models := make([]mongo.WriteModel, bulk)
	for i := range models {
		filter, update := change()
		models[i] = mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(update)
	}
	_, err := c.col.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	return err
}

// percentile returns the p-th percentile by nearest rank; 0 without values.
func percentile(xs []float64, p int) float64 {
	if len(xs) == 0 {
		return 0
	}
	// A sorted copy: callers need the original order for halves of a run.
	xs = slices.Sorted(slices.Values(xs))
	return xs[max((len(xs)*p+99)/100, 1)-1]
}

const besideRate = 500

// beside returns clients that write while a dataset is copied.
func (b *bench) beside(d dataset) *clients {
	return &clients{col: collection(b.from.client.Database(d.name).Collection(kindName), "majority"), keys: b.others, rate: besideRate}
}

// copyBesideUpdates copies the same records twice, once alone and once during updates. If
// ClusterSync is available, it repeats the second copy with it.
func copyBesideUpdates(ctx context.Context, b *bench, round int) error {
	d := b.small("updated", b.others)
	speeds := [2]float64{}
	var app *clients
	var rate float64
	for i := range 2 {
		// The order alternates, so that neither copy always finds the warmer cache.
		busy := (i + round) % 2
		c := copying{data: d}
		if busy == 1 {
			app = b.beside(d)
			c.meanwhile = func(ctx context.Context) { rate = app.run(ctx) }
		}
		done, err := b.copyOnce(ctx, c, round)
		if err != nil {
			return err
		}
		speeds[busy] = done.speed
	}
	if app.failed != nil {
		return app.failed
	}
	p99 := percentile(app.felt, 99)
	how := "%d records of %d B; %d clients' updates/s (reached %.0f) of random ones, w:majority, during the copy alone."
	b.figure("copy.updates", speeds[1]/speeds[0], how+" The quiet copy of the same run makes %.0f records/s.", b.others, b.size, besideRate, rate, speeds[0])
	b.figure("application.p99", p99, how+" Latency from when an update was due; p50 %.1f ms.", b.others, b.size, besideRate, rate, percentile(app.felt, 50))
	return b.besidePeer(ctx, d, p99)
}

// besidePeer compares the clients' latency with their latency during a copy by ClusterSync.
func (b *bench) besidePeer(ctx context.Context, d dataset, ours float64) error {
	peer := clusterSync("clustersync", nil, "")
	// The row then keeps its reason from neverMeasured.
	if b.lacks(peer) != "" {
		return nil
	}
	app := b.beside(d)
	during, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		app.run(during)
	}()
	took, _, err := b.peerCopy(ctx, peer, d.name, b.others)
	stop()
	<-done
	if err == nil {
		err = app.failed
	}
	if err != nil {
		return err
	}
	theirs := percentile(app.felt, 99)
	b.figure("application.peers", ours/theirs, "The same clients next to Percona ClusterSync, while it starts and copies the same records in %.1f s: p99 %.1f ms, p50 %.1f ms.", took.Seconds(), theirs, percentile(app.felt, 50))
	return nil
}
