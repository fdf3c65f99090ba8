package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

// following measures the lag of an upgrade that is ready and waits for its switch.
func following(ctx context.Context, b *bench, _ int) error {
	d := b.small("hot", b.hot)
	if err := b.fill(ctx, d); err != nil {
		return err
	}
	s, err := b.deploy(ctx, spec{from: b.from, to: b.to, database: d.name, kinds: map[string]bool{kindName: true}, lens: d.lens})
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if err := s.begin(ctx, true); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, true); err != nil {
		return err
	}
	source := b.from.client.Database(d.name).Collection(kindName)
	for _, l := range []struct {
		p50, p99   string
		rate, bulk int
		w          any
	}{
		{"lag.majority.p50", "lag.majority.p99", 2000, 0, "majority"},
		{"lag.w1.p50", "lag.w1.p99", 2000, 0, 1},
		{"backlog.single", "", 3000, 0, 1},
		{"backlog.bulk", "", 5000, 10, 1},
	} {
		// All rates run over the same deployment, since a copy for each would take too long.
		app := &clients{col: collection(source, l.w), keys: b.hot, rate: l.rate, bulk: l.bulk}
		lags, rate, err := s.lag(ctx, app)
		if err != nil {
			return fmt.Errorf("%s: %w", l.p50, err)
		}
		how := fmt.Sprintf("From the acknowledgement of a write at the source to its being visible at the target, of 6 samples that are looked at every millisecond, for %d s while 32 clients update %d records, w:%v; asked %d/s, reached %.0f/s (n = %d).",
			b.seconds, b.hot, l.w, l.rate, rate, len(lags))
		b.figure(l.p50, percentile(lags, 50), "%s", how)
		if l.p99 != "" {
			b.figure(l.p99, percentile(lags, 99), "%s", how)
		} else {
			// A growing backlog shows in the second half, where one median could hide it.
			half := len(lags) / 2
			b.note(l.p50, fmt.Sprintf("p50 of the first half of the samples %.0f ms, of the second %.0f ms.", percentile(lags[:half], 50), percentile(lags[half:], 50)))
			if b.seconds < 60 {
				b.note(l.p50, fmt.Sprintf("It runs for %d s, not for 60. By hand: `make bench ARGS=\"-only '^backlog' -seconds 60 -deadline 6m -runs 1\"`.", b.seconds))
			}
		}
		// A client that falls behind would measure itself instead of the controller.
		const enough = 0.95
		if rate < enough*float64(l.rate) {
			for _, row := range []string{l.p50, l.p99} {
				if row != "" {
					b.short(row, fmt.Sprintf("It does not count: the clients of this machine reached %.0f of %d updates/s.", rate, l.rate))
				}
			}
		}
	}
	return nil
}

// documents returns the target's collection of kindName.
func (s *system) documents() *mongo.Collection {
	d := s.now()
	ns, _ := d.Namespace("v2")
	kind, _ := ns.Kind(kindName)
	return s.to.client.Database(s.target).Collection(kind.Physical)
}

// samples is the number of records that are written separately, to observe their arrival at the
// target.
const samples = 6

// lag runs the clients for a while. Meanwhile it writes sample records and waits for their arrival.
// At the end it waits until the target has caught up, so that the next measurement starts without a
// backlog.
func (s *system) lag(ctx context.Context, app *clients) (lags []float64, rate float64, err error) {
	// Only the clients end with it. The samples run on until the backlog is gone.
	busy, stop := context.WithTimeout(ctx, time.Duration(s.bench.seconds)*time.Second)
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	// The reader ends after the last sample has arrived.
	looking, enough := context.WithCancel(gctx)
	arrivals := &arrivals{stamps: make([]int64, samples), came: make(chan struct{})}
	g.Go(func() error { return arrivals.look(looking, s.documents()) })
	g.Go(func() error {
		defer enough()
		var mu sync.Mutex
		writing, wctx := errgroup.WithContext(gctx)
		writing.Go(func() error {
			rate = app.run(busy)
			return app.failed
		})
		for i := range samples {
			writing.Go(func() error {
				for last := false; !last; {
					rest(busy, 20*time.Millisecond)
					last = busy.Err() != nil // the last sample only waits for the backlog to drain, and does not count
					stamp := time.Now().UnixNano()
					if _, err := app.col.UpdateByID(wctx, key(i), bson.D{{Key: "$set", Value: bson.D{{Key: "stamp", Value: stamp}}}}); err != nil {
						return err
					}
					// The lag counts from here: before that no client can rely on the write.
					acked := time.Now()
					arrived, err := arrivals.await(wctx, i, stamp)
					if err != nil {
						return err
					}
					// A write can arrive before its own acknowledgement, which counts as 0.
					if mu.Lock(); !last {
						lags = append(lags, max(float64(arrived.Sub(acked).Microseconds())/1000, 0))
					}
					mu.Unlock()
				}
				return nil
			})
		}
		return writing.Wait()
	})
	if err = g.Wait(); err == nil && len(lags) == 0 {
		err = fmt.Errorf("no sample has arrived in %d s", s.bench.seconds)
	}
	return lags, rate, err
}

// arrivals tracks the samples in the target.
type arrivals struct {
	mu     sync.Mutex
	stamps []int64
	at     time.Time     // time of the latest read
	came   chan struct{} // closed by the next read that sees a change
}

// look reads the samples from the target every millisecond until ctx ends.
func (a *arrivals) look(ctx context.Context, target *mongo.Collection) error {
	ids := bson.A{}
	for i := range samples {
		ids = append(ids, key(i))
	}
	for ; ctx.Err() == nil; rest(ctx, time.Millisecond) {
		cur, err := target.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, options.Find().SetProjection(bson.D{{Key: "stamp", Value: 1}}))
		var got []struct {
			ID    string `bson:"_id"`
			Stamp int64  `bson:"stamp"`
		}
		if err == nil {
			err = cur.All(ctx, &got)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		// The time is taken after the read, so a lag may be overstated, but never understated.
		a.mu.Lock()
		a.at = time.Now()
		changed := false
		for _, g := range got {
			for i := range samples {
				if g.ID == key(i) && g.Stamp != a.stamps[i] {
					a.stamps[i], changed = g.Stamp, true
				}
			}
		}
		if changed {
			// A closed channel wakes all waiting samples, unlike a single value.
			close(a.came)
			a.came = make(chan struct{})
		}
		a.mu.Unlock()
	}
	return nil
}

// await returns the time of the read that first saw the sample's stamp.
func (a *arrivals) await(ctx context.Context, i int, stamp int64) (time.Time, error) {
	for {
		a.mu.Lock()
		has, at, came := a.stamps[i], a.at, a.came
		a.mu.Unlock()
		if has == stamp {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, ctx.Err()
		case <-came:
		}
	}
}
