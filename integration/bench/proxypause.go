package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"dbcontroller.dev/integration/bench/figures"
)

const (
	proxyPauseRate = 500
	openCursors    = 8
	openBytes      = 10 << 20 // that each of them has left, and the collection about has
)

// acknowledged records the writes of clients that do not know which version answers.
type acknowledged struct {
	mu     sync.Mutex
	writes []timed
}

func (a *acknowledged) timed(due, acked time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes = append(a.writes, timed{due, acked})
}

func (a *acknowledged) expect(string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes = nil
}

func (a *acknowledged) underWay(w window) ([]float64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first time.Time
	for _, t := range a.writes {
		if t.acked.After(w.ended) && (first.IsZero() || t.acked.Before(first)) {
			first = t.acked
		}
	}
	if first.IsZero() {
		return nil, errors.New("no write was made after the switch")
	}
	return between(a.writes, w.begun, first), nil
}

// behindProxies holds the clients of switches behind proxies.
type behindProxies struct {
	rate, records int
	far           time.Duration
	// each makes the switches with what the clients see and the collection that they use.
	each func(ctx context.Context, s *system, seen *acknowledged, col *mongo.Collection) error
}

// run makes an unmodified client write through two proxies during switches between two clusters. It
// returns the updates per second that the client reached.
func (b *bench) behindProxies(ctx context.Context, c behindProxies) (rate float64, err error) {
	d := b.small("", c.records)
	sp := fixed(b.from, b.to, scratch("proxied"))
	sp.controllers, sp.auto, sp.far = 2, true, c.far
	defer b.from.drop(ctx, sp.database)
	if err := d.insertInto(ctx, b.from.client.Database(sp.database).Collection(kindName), d.records()); err != nil {
		return 0, err
	}
	s, err := b.deploy(ctx, sp)
	if err != nil {
		return 0, err
	}
	defer s.close(ctx)
	p, err := s.proxies(ctx, 2)
	if err != nil {
		return 0, err
	}
	defer p.close()
	client, err := p.client()
	if err != nil {
		return 0, err
	}
	defer disconnect(ctx, client)
	col := client.Database(sp.database).Collection(kindName)
	seen := &acknowledged{}
	app := &clients{rate: c.rate, timed: seen.timed, write: func(ctx context.Context, rng *rand.Rand) error {
		_, err := col.UpdateOne(ctx, bson.D{{Key: "_id", Value: key(rng.IntN(d.records()))}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "at", Value: 1}}}})
		return err
	}}
	writing, stop := context.WithCancel(ctx)
	done := make(chan float64, 1)
	go func() { done <- app.run(writing) }()
	err = c.each(ctx, s, seen, col)
	stop()
	// The clients must have ended before their results are read.
	rate = <-done
	return rate, errors.Join(err, app.failed)
}

// proxyPauses measures switches there and back.
func proxyPauses(ctx context.Context, b *bench, _ int) error {
	var plain, beside felt
	records := openBytes / b.size
	rate, err := b.behindProxies(ctx, behindProxies{rate: proxyPauseRate, records: records, each: func(ctx context.Context, s *system, seen *acknowledged, col *mongo.Collection) (err error) {
		plain, beside, err = s.switchBehindProxies(ctx, seen, col)
		return err
	}})
	if err != nil {
		return err
	}
	how := "Latency, from when it was due, of the writes under way between the beginning of SWITCHING and the first write after it; the Go driver behind two proxies, 2 controllers, all as processes; %d $inc a second (reached %.0f) of %d records of %d B by key, w:majority, between two clusters. Each run is the median of %d switches, there and back; no write failed, or the run would have."
	args := []any{proxyPauseRate, rate, records, b.size, len(plain.p50)}
	b.figure("proxy.pause.p50", figures.Median(plain.p50), how+" By the record writes were held for %.0f ms.", append(args, figures.Median(plain.held))...)
	b.figure("proxy.pause.p99", figures.Median(plain.p99), how+" Median of the maxima %.0f ms.", append(args, figures.Median(plain.most))...)
	b.figure("proxy.pause.cursors", figures.Median(beside.p50), "As proxy.pause.p50, over %d switches, while %d cursors have about %d MB left each, which the proxies read before a switch; p99 %.0f ms, held for %.0f ms.",
		len(beside.p50), openCursors, openBytes>>20, figures.Median(beside.p99), figures.Median(beside.held))
	return nil
}

// onceBehindProxies makes one switch.
func (s *system) onceBehindProxies(ctx context.Context, to string, seen *acknowledged, f *felt) error {
	rest(ctx, time.Second) // the held writes have been served
	millis, held, err := s.switchTo(ctx, to, seen)
	if err != nil {
		return fmt.Errorf("switch to %s: %w", to, err)
	}
	f.p50, f.p99, f.most, f.held = append(f.p50, percentile(millis, 50)), append(f.p99, percentile(millis, 99)), append(f.most, percentile(millis, 100)), append(f.held, held)
	return nil
}

// switchBehindProxies switches there and back, without and with open cursors.
func (s *system) switchBehindProxies(ctx context.Context, seen *acknowledged, col *mongo.Collection) (plain, beside felt, err error) {
	to, from := "v2", "v1"
	once := func(f *felt) error {
		err := s.onceBehindProxies(ctx, to, seen, f)
		to, from = from, to
		return err
	}
	for range s.bench.switches {
		if err := once(&plain); err != nil {
			return plain, beside, err
		}
	}
	for range max(s.bench.switches/2, 1) {
		var cursors []*mongo.Cursor
		var err error
		for range openCursors {
			var c *mongo.Cursor
			if c, err = col.Find(ctx, bson.D{}, options.Find().SetBatchSize(100)); err != nil {
				break
			}
			cursors = append(cursors, c)
		}
		if err == nil {
			err = once(&beside)
		}
		for _, c := range cursors {
			// What the proxies have read is delivered after the switch.
			for err == nil && c.Next(ctx) { //nolint:revive // only counted by the driver
			}
			err = errors.Join(err, c.Err(), c.Close(context.WithoutCancel(ctx)))
		}
		if err != nil {
			return plain, beside, err
		}
	}
	return plain, beside, nil
}
