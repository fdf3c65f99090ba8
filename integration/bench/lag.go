package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// following measures while an upgrade that is ready waits for its switch.
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
		app := &clients{col: collection(source, l.w), keys: b.hot, rate: l.rate, bulk: l.bulk}
		lags, rate, err := s.lag(ctx, app)
		if err != nil {
			return fmt.Errorf("%s: %w", l.p50, err)
		}
		how := fmt.Sprintf("From the acknowledgement of a write at the source to its being visible at the target, looked at every millisecond, for %d s while 32 clients update %d records, w:%v; asked %d/s, reached %.0f/s (n = %d).",
			b.seconds, b.hot, l.w, l.rate, rate, len(lags))
		b.figure(l.p50, percentile(lags, 50), "%s", how)
		if l.p99 != "" {
			b.figure(l.p99, percentile(lags, 99), "%s", how)
		} else {
			half := len(lags) / 2
			b.note(l.p50, fmt.Sprintf("p50 of the first half of the samples %.0f ms, of the second %.0f ms.", percentile(lags[:half], 50), percentile(lags[half:], 50)))
			b.note(l.p50, fmt.Sprintf("It runs for %d s, not for 60.", b.seconds))
		}
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

// lag has clients write for a while and, meanwhile, writes a sample now and then, and waits until it is
// there. What is left behind at the end is waited for, so that the next one begins level.
func (s *system) lag(ctx context.Context, app *clients) (lags []float64, rate float64, err error) {
	busy, stop := context.WithTimeout(ctx, time.Duration(s.bench.seconds)*time.Second)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { rate = app.run(busy) })
	target := s.targets()[0]
	for busy.Err() == nil && err == nil {
		stamp := time.Now().UnixNano()
		_, err = app.col.UpdateByID(ctx, key(0), bson.D{{Key: "$set", Value: bson.D{{Key: "stamp", Value: stamp}}}})
		acked := time.Now()
		if err == nil {
			err = s.awaitStamp(ctx, target, stamp)
			lags = append(lags, float64(time.Since(acked).Microseconds())/1000)
		}
		rest(busy, 20*time.Millisecond)
	}
	stop()
	wg.Wait()
	if err == nil {
		err = app.failed
	}
	if err == nil { // level again: the last of what was written is there
		stamp := time.Now().UnixNano()
		if _, err = app.col.UpdateByID(ctx, key(0), bson.D{{Key: "$set", Value: bson.D{{Key: "stamp", Value: stamp}}}}); err == nil {
			err = s.awaitStamp(ctx, target, stamp)
		}
	}
	return lags, rate, err
}

// awaitStamp looks at the sample in the target until it has the stamp.
func (s *system) awaitStamp(ctx context.Context, target *mongo.Collection, stamp int64) error {
	return s.poll(ctx, time.Millisecond, func() (bool, error) {
		var got struct {
			Stamp int64 `bson:"stamp"`
		}
		err := target.FindOne(ctx, bson.D{{Key: "_id", Value: key(0)}}).Decode(&got)
		if err != nil && ctx.Err() == nil && !errors.Is(err, mongo.ErrNoDocuments) {
			return false, err
		}
		return got.Stamp == stamp, nil
	})
}
