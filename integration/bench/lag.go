package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller/record"
	"dbcontroller/syncer"
)

// lagFigures are milliseconds from the acknowledgement of a write at the source to its
// being visible at the target.
type lagFigures struct {
	Rate    float64 `json:"writes_per_second"` // reached, not asked
	Samples int     `json:"n"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

func (l *lagFigures) String() string {
	return fmt.Sprintf("sync lag at %.0f writes/s: p50 %.0f ms, p99 %.0f ms (n=%d)", l.Rate, l.P50, l.P99, l.Samples)
}

const lagRecords = 50_000

func measureLag(ctx context.Context, uri string, o settings) (*lagFigures, error) {
	var p50s, p99s, rates []float64
	out := &lagFigures{}
	for range o.runs {
		f, err := lagOnce(ctx, uri, o)
		if err != nil {
			return nil, err
		}
		p50s, p99s, rates = append(p50s, f.P50), append(p99s, f.P99), append(rates, f.Rate)
		out.Samples += f.Samples
	}
	out.P50, out.P99, out.Rate = median(p50s), median(p99s), median(rates)
	return out, nil
}

// lagOnce measures while an upgrade that is ready waits for its switch.
func lagOnce(ctx context.Context, uri string, o settings) (*lagFigures, error) {
	s, err := open(ctx, uri, o)
	if err != nil {
		return nil, err
	}
	defer s.close(context.WithoutCancel(ctx)) //nolint:errcheck // scratch databases
	if err := s.fill(ctx, lagRecords, o.size); err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx); err != nil {
		return nil, err
	}
	return s.writeAndWatch(ctx, o)
}

// awaitReady waits until every shard is copied and compared, and the proof of the rollback is
// over, after which the pause can be predicted.
func (s *system) awaitReady(ctx context.Context) error {
	return s.poll(ctx, func() (bool, error) {
		ps, err := s.store.Progress(ctx)
		if err != nil {
			return false, err
		}
		readiness, err := s.store.Readiness(ctx)
		if err != nil {
			return false, err
		}
		waits := slices.ContainsFunc(ps, func(p syncer.Progress) bool { return p.State != "ready" })
		return len(ps) == ring && !waits && readiness != nil && readiness.PredictedPauseMillis != nil, nil
	})
}

// writeAndWatch writes at the rate asked for, on an open schedule, and meanwhile writes a
// sample now and then and looks at the target until it is there.
func (s *system) writeAndWatch(ctx context.Context, o settings) (*lagFigures, error) {
	tok := s.token()
	client := s.old.Client()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.seconds)*time.Second)
	defer cancel()
	begun := time.Now()
	var written atomic.Int64
	write := func(i int, stamp int64) error {
		doc, err := bson.Marshal(append(document(i, o.size), bson.E{Key: "stamp", Value: stamp}))
		if err != nil {
			return err
		}
		err = client.Write(context.WithoutCancel(ctx), record.Tokens{kindName: tok}, []record.Mutation{{
			Kind: kindName, Key: record.StringKey(fmt.Sprintf("document-%09d", i)), Doc: doc,
		}})
		written.Add(1)
		return err
	}
	const writers = 16
	g, gctx := errgroup.WithContext(ctx)
	for w := range writers {
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			every := time.Second * writers / time.Duration(o.rate)
			for due := time.Now(); gctx.Err() == nil; due = due.Add(every) {
				rest(gctx, time.Until(due))
				if err := write(1+rng.IntN(lagRecords-1), 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var lags []float64
	g.Go(func() error {
		for stamp := int64(1); gctx.Err() == nil; stamp++ {
			if err := write(0, stamp); err != nil {
				return err
			}
			acked := time.Now()
			if arrived, err := s.awaitStamp(gctx, stamp); err != nil {
				return err
			} else if arrived {
				lags = append(lags, float64(time.Since(acked).Microseconds())/1000)
			}
			rest(gctx, 20*time.Millisecond)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(lags)
	if len(lags) == 0 {
		return nil, fmt.Errorf("no sample arrived at the target in %d s", o.seconds)
	}
	return &lagFigures{
		Rate: float64(written.Load()) / time.Since(begun).Seconds(), Samples: len(lags),
		P50: lags[len(lags)/2], P99: lags[len(lags)*99/100],
	}, nil
}

// awaitStamp looks at the sample in the target, about every millisecond, until it has the
// stamp.
func (s *system) awaitStamp(ctx context.Context, stamp int64) (arrived bool, err error) {
	target := s.collection("v2")
	for ctx.Err() == nil {
		var got struct {
			Stamp int64 `bson:"stamp"`
		}
		err := target.FindOne(ctx, bson.D{{Key: "_id", Value: "document-000000000"}}).Decode(&got)
		switch {
		case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded): // the driver ends an operation before its context
			return false, nil
		case err != nil:
			return false, err
		case got.Stamp == stamp:
			return true, nil
		}
		rest(ctx, time.Millisecond)
	}
	return false, nil
}

// rest waits, or less if ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
