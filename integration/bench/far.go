package main

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/integration/bench/figures"
)

// split is a lens that makes two records of each one.
const split = "lens: 1\noperations:\n  - fanOut: {field: owner, as: object, kind: owners, key: \"{_key}/owner\", parent: document}\n"

// farIs says how distance is made.
const farIs = "The controllers reach the target through a relay that delivers every byte late, %v there and back; the source is near. The bandwidth has no limit."

// farLags measures how far a target that is far away is behind, with one kind that stays as it is and with one that becomes two.
func farLags(ctx context.Context, b *bench, _ int) error {
	const ms = time.Millisecond
	var near time.Duration
	if b.asked("far.ready") {
		var err error
		if near, err = b.readyAfter(ctx, 0); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		row, lens string
		far       time.Duration
		rate      int
	}{
		{"far.lag.100", identity, 100 * ms, 2000},
		{"far.lag.200", identity, 200 * ms, 1000},
		{"far.split.100", split, 100 * ms, 1000},
		{"far.split.200", split, 200 * ms, 500},
	} {
		if !b.asked(l.row) {
			continue
		}
		if err := b.farLag(ctx, l.row, l.lens, l.far, l.rate); err != nil {
			return fmt.Errorf("%s: %w", l.row, err)
		}
	}
	if !b.asked("far.ready") {
		return nil
	}
	const far = 100 * ms
	late, err := b.readyAfter(ctx, far)
	if err != nil {
		return err
	}
	b.figure("far.ready", late.Seconds()/near.Seconds(), "%d records of %d B of a fixed-name kind, copied, compared both ways, the rollback proved: %.1f s and %.1f s. "+farIs, b.others, b.size, late.Seconds(), near.Seconds(), far)
	return nil
}

// readyAfter returns the time from the beginning of an upgrade until it is ready.
func (b *bench) readyAfter(ctx context.Context, far time.Duration) (time.Duration, error) {
	d := b.small("other", b.others)
	if err := b.fill(ctx, d); err != nil {
		return 0, err
	}
	sp := fixed(b.from, b.to, d.name)
	sp.far = far
	s, err := b.deploy(ctx, sp)
	if err != nil {
		return 0, err
	}
	defer s.close(ctx)
	begun := time.Now()
	if err := s.begin(ctx, true); err != nil {
		return 0, err
	}
	err = s.awaitReady(ctx, true)
	return time.Since(begun), err
}

func (b *bench) farLag(ctx context.Context, row, lens string, far time.Duration, rate int) error {
	d := b.small("hot", b.hot)
	if err := b.fill(ctx, d); err != nil {
		return err
	}
	sp := fixed(b.from, b.to, d.name)
	sp.far, sp.lens = far, lens
	s, err := b.deploy(ctx, sp)
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
	app := &clients{col: collection(b.from.client.Database(d.name).Collection(kindName), "majority"), keys: b.hot, rate: rate}
	lags, reached, err := s.lag(ctx, app)
	if err != nil {
		return err
	}
	// A controller that falls behind shows in the second half.
	half := len(lags) / 2
	b.figure(row, percentile(lags, 50), "From the acknowledgement of a write at the source to its being visible at the target, of %d samples that are looked at every millisecond, for %d s while 32 clients update %d records, w:majority; asked %d/s, reached %.0f/s (n = %d); p99 %.0f ms; p50 of the first half %.0f ms, of the second %.0f ms. "+farIs,
		samples, b.seconds, b.hot, rate, reached, len(lags), percentile(lags, 99), percentile(lags[:half], 50), percentile(lags[half:], 50), far)
	const enough = 0.95
	if reached < enough*float64(rate) {
		b.short(row, fmt.Sprintf("It does not count: the clients of this machine reached %.0f of %d updates/s.", reached, rate))
	}
	return nil
}

// farPauses measures switches to a cluster that is far away, and back.
func farPauses(ctx context.Context, b *bench, _ int) error {
	for row, far := range map[string]time.Duration{"far.pause.100": 100 * time.Millisecond, "far.pause.200": 200 * time.Millisecond} {
		if !b.asked(row) {
			continue
		}
		var there, back felt
		// So many that 32 writers can keep it up over the distance.
		const clientRate, records = 100, 5000
		reached, err := b.behindProxies(ctx, behindProxies{rate: clientRate, records: records, far: far, each: func(ctx context.Context, s *system, seen *acknowledged, _ *mongo.Collection) error {
			for range min(max(b.switches/2, 1), 3) { // each prepares for ten seconds or more
				if err := s.onceBehindProxies(ctx, "v2", seen, &there); err != nil {
					return err
				}
				if err := s.onceBehindProxies(ctx, "v1", seen, &back); err != nil {
					return err
				}
			}
			return nil
		}})
		if err != nil {
			return fmt.Errorf("%s: %w", row, err)
		}
		b.figure(row, figures.Median(there.p50)/1000, "As proxy.pause.p50, with %d $inc a second (reached %.0f) of %d records, medians of %d switches to the far cluster, whose writes take the distance too: p99 %.2f s, held for %.2f s by the record. The %d switches back: p50 %.2f s, held for %.2f s. "+farIs,
			clientRate, reached, records, len(there.p50), figures.Median(there.p99)/1000, figures.Median(there.held)/1000, len(back.p50), figures.Median(back.p50)/1000, figures.Median(back.held)/1000, far)
	}
	return nil
}
