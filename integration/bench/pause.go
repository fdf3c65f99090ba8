package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"dbcontroller.dev/integration/bench/figures"
	"dbcontroller.dev/integration/subprocess"
)

// felt is what clients of a demo felt of its switches, in milliseconds.
type felt struct{ p50, p99, most, held []float64 }

// demo runs one and returns what it says of its switches.
func (b *bench) demo(ctx context.Context, records, switches, seed int) (f felt, err error) {
	cmd := exec.Command(filepath.Join(b.programs, "demo"), "--json", "--records", fmt.Sprint(records), "--rate", fmt.Sprint(b.pauseRate), //nolint:noctx // it is stopped in order
		"--switches", fmt.Sprint(switches), "--seed", fmt.Sprint(seed))
	var out bytes.Buffer
	log, err := os.Create(filepath.Join(b.dir, "demo.log"))
	if err != nil {
		return f, err
	}
	defer log.Close() //nolint:errcheck // nobody reads it if the demo is fine
	cmd.Stdout, cmd.Stderr = &out, log
	p, err := subprocess.Start(cmd)
	if err != nil {
		return f, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop(grace / 2)
		return f, ctx.Err()
	}
	if _, err := p.Wait(); err != nil {
		return f, fmt.Errorf("demo: %w: %s", err, subprocess.Tail(log.Name(), 1))
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	var d struct {
		Switches []struct {
			Pause struct {
				P50 float64 `json:"p50"`
				P99 float64 `json:"p99"`
				Max float64 `json:"max"`
			} `json:"write_pause_ms"`
			Phases map[string]float64 `json:"phases_ms"`
		} `json:"switches"`
	}
	if err := json.Unmarshal(lines[len(lines)-1], &d); err != nil {
		return f, fmt.Errorf("demo: %w", err)
	}
	for _, s := range d.Switches {
		held := 0.0
		for _, ms := range s.Phases {
			held += ms
		}
		f.p50, f.p99, f.most, f.held = append(f.p50, s.Pause.P50), append(f.p99, s.Pause.P99), append(f.most, s.Pause.Max), append(f.held, held)
	}
	return f, nil
}

func pauses(ctx context.Context, b *bench, round int) error {
	f, err := b.demo(ctx, b.pauseRecords, b.switches, round+1)
	if err != nil {
		return err
	}
	how := "Latency, from when it was due, of the writes under way between the beginning of SWITCHING and the first write on the new version, in %s; 16 shards, 2 controllers, 2 servers, %d writes and as many reads a second, %d records of the application. Each run is the median of %d switches of one demo; nothing failed or was lost, or the run would have."
	args := []any{"`bin/demo`", b.pauseRate, b.pauseRecords, len(f.p50)}
	b.figure("pause.p50", figures.Median(f.p50), how+" The phases together took %.0f ms.", append(args, figures.Median(f.held))...)
	b.figure("pause.p99", figures.Median(f.p99), how+" Median of the maxima %.0f ms.", append(args, figures.Median(f.most))...)
	const asked = 2000
	if b.pauseRate < asked {
		for _, row := range []string{"pause.p50", "pause.p99"} {
			b.short(row, fmt.Sprintf("It does not count: %d writes/s, not %d, because the demo's servers, clients and databases share the cores of this machine and more would measure their queues. On a larger one: `make bench ARGS=\"-only '^pause' -pause-rate %d -switches 50\"`.", b.pauseRate, asked, asked))
		}
	}
	b.held = figures.Median(f.held)
	return nil
}

// pauseOfMore: how long writes are held must not depend on how much there is.
func pauseOfMore(ctx context.Context, b *bench, round int) error {
	const more, switches = 10, 2
	if b.held == 0 {
		f, err := b.demo(ctx, b.pauseRecords, switches, round+1)
		if err != nil {
			return err
		}
		b.held = figures.Median(f.held)
	}
	f, err := b.demo(ctx, more*b.pauseRecords, switches, round+1)
	if err != nil {
		return err
	}
	b.figure("pause.data", figures.Median(f.held)/b.held, "How long the phases of a switch take over %d and over %d records of the application; in the last run %.0f and %.0f ms, medians of %d and %d switches.",
		more*b.pauseRecords, b.pauseRecords, figures.Median(f.held), b.held, switches, b.switches)
	return nil
}

// manyKinds switches many collections of an application, once all are copied and compared.
func manyKinds(ctx context.Context, b *bench, _ int) error {
	took, held, how, err := b.switchKinds(ctx, b.kinds, b.kindRecords)
	if err == nil {
		b.figure("kinds.switch", took, "%s", how)
		b.figure("kinds.held", held, "%s Held is their sum.", how)
	}
	return err
}

// thousandKinds shows that they work, and what they take: ten times the kinds with a tenth of
// the records each.
func thousandKinds(ctx context.Context, b *bench, _ int) error {
	took, held, how, err := b.switchKinds(ctx, 10*b.kinds, b.kindRecords/10)
	if err == nil {
		b.figure("kinds.thousand", took, "%s Held is their sum: %.0f ms.", how, held)
	}
	return err
}

// switchKinds returns the seconds from the beginning of an upgrade to its switch, the
// milliseconds for which writes were held, and how it was done.
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
	ready := time.Since(begun)
	begun = time.Now()
	if err := s.begin(ctx, false); err != nil {
		return 0, 0, "", err
	}
	if err := s.poll(ctx, 5*time.Millisecond, func() (bool, error) { return s.now().CurrentVersion == "v2", nil }); err != nil {
		return 0, 0, "", err
	}
	took = time.Since(begun).Seconds()
	last := s.now().LastSwitch
	for _, ms := range last.Millis {
		held += float64(ms)
	}
	how = fmt.Sprintf("%d fixed-name kinds of %d records of %d B, one controller, copied and compared before (ready %.1f s after its start); nobody writes. Phases of the last run in ms: %v.",
		kinds, records, b.size, ready.Seconds(), last.Millis)
	return took, held, how, nil
}
