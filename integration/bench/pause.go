package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"dbcontroller.dev/integration/bench/figures"
	"dbcontroller.dev/upgradestate"
)

// felt holds the effects of switches on clients, in milliseconds, one value for each switch.
type felt struct {
	p50, p99, most, held []float64
	phases               map[string][]float64 // phases as the driver reports them
}

// median formats the median of each phase.
func (f felt) median() string {
	medians := map[string]float64{}
	for phase, millis := range f.phases {
		medians[phase] = figures.Median(millis)
	}
	return fmt.Sprint(medians)[len("map"):]
}

// switchUnderLoad makes clients write through two servers while the active version switches to v2,
// back to v1, and so on.
func (b *bench) switchUnderLoad(ctx context.Context, records, switches int) (f felt, err error) {
	sp := spec{from: b.from, to: b.to, database: scratch("old"), controllers: 2, auto: true}
	s, err := b.deploy(ctx, sp)
	if err != nil {
		return f, err
	}
	defer s.close(ctx)
	// The records go in before the servers start: clients update existing ones only.
	kind, err := s.kind("v1")
	if err != nil {
		return f, err
	}
	if err := b.small("", records).insertInto(ctx, s.from.client.Database(sp.database).Collection(kind.Physical), records); err != nil {
		return f, err
	}
	serving, err := s.serve(ctx, 2)
	if err != nil {
		return f, err
	}
	defer serving.close(ctx)
	app := &clients{rate: b.pauseRate, write: serving.update(records, b.size), timed: serving.timed}
	writing, stop := context.WithCancel(ctx)
	done := make(chan float64, 1)
	go func() { done <- app.run(writing) }()
	defer func() {
		stop()
		// The clients must have ended before their results are read.
		if rate := <-done; err == nil {
			err = app.failed
			// With fewer writes the pause would look shorter than it is.
			if least := 0.9 * float64(b.pauseRate); err == nil && rate < least {
				err = fmt.Errorf("clients made %.0f writes/s of %d: this machine is too slow for them", rate, b.pauseRate)
			}
		}
	}()
	f.phases = map[string][]float64{}
	to, from := "v2", "v1"
	for range switches {
		rest(ctx, time.Second) // the held writes have been served
		felt, held, err := s.switchTo(ctx, to, serving)
		if err != nil {
			return f, errors.Join(fmt.Errorf("switch to %s: %w", to, err), app.problem())
		}
		f.p50, f.p99, f.most, f.held = append(f.p50, percentile(felt, 50)), append(f.p99, percentile(felt, 99)), append(f.most, percentile(felt, 100)), append(f.held, held)
		for phase, millis := range s.now().LastSwitch.Millis {
			f.phases[phase] = append(f.phases[phase], float64(millis))
		}
		to, from = from, to
	}
	return f, nil
}

// witness records the writes of clients.
type witness interface {
	// expect prepares for a switch and discards earlier writes.
	expect(to string)
	// underWay returns the durations in milliseconds of the writes under way between the beginning
	// of a switch and the first write on the new version.
	underWay(w window) (millis []float64, err error)
}

// switchTo makes one switch. It returns the latencies of the writes under way, and the time for
// which the Deployment record had no place to write, both in milliseconds.
func (s *system) switchTo(ctx context.Context, to string, clients witness) (felt []float64, held float64, err error) {
	// Before the switch, so that its first write on the new version is not missed.
	clients.expect(to)
	// One id for all attempts: a begin whose response was lost is then repeated, not doubled.
	id := rand.Text()
	ended, stop := context.WithCancel(ctx)
	defer stop()
	// The watch must run before the switch begins, or it could miss the beginning.
	window := make(chan window, 1)
	go func() { window <- s.window(ended, to) }()
	err = s.poll(ctx, 10*time.Millisecond, func() (bool, error) {
		_, err := s.store.Apply(ctx, upgradestate.Begin{ID: id, TargetVersion: to})
		var refused *upgradestate.RefusedError
		if errors.As(err, &refused) {
			return false, nil // right after a switch, the next one is not offered yet
		}
		return err == nil, err
	})
	if err != nil {
		return nil, 0, err
	}
	select {
	case w := <-window:
		if err := ctx.Err(); err != nil {
			return nil, 0, s.failed(err)
		}
		rest(ctx, time.Second) // until the held writes are acknowledged
		felt, err = clients.underWay(w)
		return felt, w.millis(), err
	case <-ctx.Done():
		return nil, 0, s.failed(ctx.Err())
	}
}

// window is the time in which writes were held, according to the record.
type window struct{ begun, ended time.Time }

func (w window) millis() float64 { return float64(w.ended.Sub(w.begun).Microseconds()) / 1000 }

// window waits for a switch to a version to begin, and then for a record with a place to write.
func (s *system) window(ctx context.Context, to string) (w window) {
	for d := range s.store.Watch(ctx) {
		// The watch may skip states, so each state is judged by itself.
		switching := d.Upgrade != nil && d.Upgrade.TargetVersion == to && d.Upgrade.State == upgradestate.Switching
		version, places := upgradestate.WritePlaces(d)
		switch {
		case switching && w.begun.IsZero():
			w.begun = time.Now()
		case !switching && d.Upgrade != nil && version != to:
			w = window{} // that attempt was aborted
		case !w.begun.IsZero() && version == to && len(places) > 0:
			w.ended = time.Now()
			return w
		}
	}
	return w
}

// kind returns the managed kind of a version.
func (s *system) kind(version string) (upgradestate.Kind, error) {
	ns, _ := s.now().Namespace(version)
	k, ok := ns.Kind(kindName)
	if !ok {
		return k, fmt.Errorf("version %s has no kind %s yet", version, kindName)
	}
	return k, nil
}

func pauses(ctx context.Context, b *bench, _ int) error {
	f, err := b.switchUnderLoad(ctx, b.pauseRecords, b.switches)
	if err != nil {
		return err
	}
	how := "Latency, from when it was due, of the writes under way between the beginning of SWITCHING and the first write on the new version; %d shards, 2 controllers as processes, 2 servers in the benchmark's process (a vrunner over mongostore's Client, as a service in Go embeds them), %d replacements a second of %d records of %d B of a managed kind, between two clusters. Each run is the median of %d switches, there and back; no write failed, or the run would have."
	args := []any{ring, b.pauseRate, b.pauseRecords, b.size, len(f.p50)}
	b.figure("pause.p50", figures.Median(f.p50), how+" By the record writes were held for %.0f ms, of which in its phases %s.", append(args, figures.Median(f.held), f.median())...)
	b.figure("pause.p99", figures.Median(f.p99), how+" Median of the maxima %.0f ms.", append(args, figures.Median(f.most))...)
	const asked = 2000
	// A weaker load cannot meet the bar, whatever the figure.
	if b.pauseRate < asked {
		for _, row := range []string{"pause.p50", "pause.p99"} {
			b.short(row, fmt.Sprintf("It does not count: %d writes/s, not %d.", b.pauseRate, asked))
		}
	}
	b.held = figures.Median(f.held)
	return nil
}

// pauseOfMore checks that the pause does not depend on the amount of data.
func pauseOfMore(ctx context.Context, b *bench, _ int) error {
	const more = 10
	if b.held == 0 {
		f, err := b.switchUnderLoad(ctx, b.pauseRecords, b.switches)
		if err != nil {
			return err
		}
		b.held = figures.Median(f.held)
	}
	// The comparison takes the pause of the same process, because machines differ.
	f, err := b.switchUnderLoad(ctx, more*b.pauseRecords, b.switches)
	if err != nil {
		return err
	}
	b.figure("pause.data", figures.Median(f.held)/b.held, "How long writes are held, by the record, over %d and over %d records; in the last run %.0f and %.0f ms, medians of %d switches each.",
		more*b.pauseRecords, b.pauseRecords, figures.Median(f.held), b.held, b.switches)
	b.held = 0
	return nil
}

// manyKinds switches many collections of an application, after all are copied and compared.
func manyKinds(ctx context.Context, b *bench, _ int) error {
	took, held, how, err := b.switchKinds(ctx, b.kinds, b.kindRecords)
	if err == nil {
		b.figure("kinds.switch", took, "%s", how)
		b.figure("kinds.held", held, "%s Held is from the beginning of SWITCHING until the record has a place to write for every kind again.", how)
	}
	return err
}

// thousandKinds shows that a thousand kinds work, and their cost: ten times the kinds with a tenth
// of the records each.
func thousandKinds(ctx context.Context, b *bench, _ int) error {
	took, held, how, err := b.switchKinds(ctx, 10*b.kinds, b.kindRecords/10)
	if err == nil {
		b.figure("kinds.thousand", took, "%s Held for %.0f ms.", how, held)
	}
	return err
}

// switchKinds returns the seconds from the start of an upgrade to its switch, the milliseconds for
// which writes were held, and a description.
func (b *bench) switchKinds(ctx context.Context, kinds, records int) (took, held float64, how string, err error) {
	d := b.small("", 0)
	sp := spec{from: b.from, to: b.to, database: scratch("kinds"), kinds: map[string]bool{}, lens: d.lens, auto: true}
	defer b.from.drop(ctx, sp.database)
	for i := range kinds {
		name := fmt.Sprintf("kind%04d", i)
		sp.kinds[name] = true
		if err := d.insertInto(ctx, b.from.client.Database(sp.database).Collection(name), records); err != nil {
			return 0, 0, "", err
		}
	}
	begun := time.Now()
	s, err := b.deploy(ctx, sp)
	if err != nil {
		return 0, 0, "", err
	}
	defer s.close(ctx)
	if err := s.awaitReady(ctx, false); err != nil {
		return 0, 0, "", err
	}
	// The bar concerns the switch alone: its data are copied before.
	ready := time.Since(begun)
	begun = time.Now()
	ended, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan window, 1)
	go func() { seen <- s.window(ended, "v2") }()
	if err := s.begin(ctx, false); err != nil {
		return 0, 0, "", err
	}
	var w window
	if err := s.poll(ctx, 5*time.Millisecond, func() (bool, error) {
		select {
		case w = <-seen:
			return true, nil
		default:
			return false, nil
		}
	}); err != nil {
		return 0, 0, "", err
	}
	took, held = w.ended.Sub(begun).Seconds(), w.millis()
	how = fmt.Sprintf("%d fixed-name kinds of %d records of %d B, one controller, copied and compared before (ready %.1f s after its start); nobody writes. Phases of the last run in ms: %v.",
		kinds, records, b.size, ready.Seconds(), s.now().LastSwitch.Millis)
	return took, held, how, nil
}
