// Command bench measures what users pay for and prints it as a table and, with -json, as
// JSON: how fast a namespace is copied with all guards in place, as a ratio to a bare
// reader that inserts raw BSON in the same run; how far the sync lags behind at a given
// rate of writes; and how long clients wait at a switch.
//
// Copy and lag are those of a controller that is started as the program starts it, in this
// process, over a coordination store in memory. So the copy counts from the beginning of the
// upgrade, the planning of its ranges included, to the last record; it does not yield to clients,
// of which there are none. The lag is that of an upgrade that is held ready to switch: copied,
// compared, with its rollback proved. The pause is that of the demo, whose controllers and
// servers are processes of their own.
//
// Runs are interleaved and their median is printed, because machines are shared and
// noisy: prefer the ratios. It does not own the figures: docs/benchmarks.md has them, with the
// machine that they were measured on.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"dbcontroller/integration/localmongo"
)

// figures is everything that was measured; absent parts were not asked for.
type figures struct {
	Backend string       `json:"backend"`
	Copy    *copyFigures `json:"copy,omitempty"`
	Lag     *lagFigures  `json:"lag,omitempty"`
	Pause   *pause       `json:"pause,omitempty"`
}

type settings struct {
	records, size, runs, workers int
	rate, seconds                int
	switches                     int
	demo                         string
	only                         string
	json                         bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o settings
	flag.IntVar(&o.records, "records", 1_000_000, "records to copy")
	flag.IntVar(&o.size, "size", 500, "bytes of a record, about")
	flag.IntVar(&o.runs, "runs", 3, "interleaved runs; the median counts")
	flag.IntVar(&o.workers, "workers", 4, "copy workers")
	flag.IntVar(&o.rate, "rate", 1000, "writes a second for the lag")
	flag.IntVar(&o.seconds, "seconds", 10, "how long to write for the lag")
	flag.IntVar(&o.switches, "switches", 10, "switches for the pause")
	flag.StringVar(&o.demo, "demo", "bin/demo", "program that makes the switches")
	flag.StringVar(&o.only, "only", "", "copy, lag or pause; empty is all")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o settings) error {
	mongo, err := localmongo.Start(ctx, localmongo.Options{CacheGB: 1, OplogMB: 4096, Dir: os.TempDir()})
	if err != nil {
		return err
	}
	defer mongo.Stop(context.WithoutCancel(ctx)) //nolint:errcheck // the process ends
	f := figures{Backend: "mongodb " + mongo.Version()}
	if o.only == "" || o.only == "copy" {
		if f.Copy, err = measureCopy(ctx, mongo.URI(), o); err != nil {
			return fmt.Errorf("copy: %w", err)
		}
	}
	if o.only == "" || o.only == "lag" {
		if f.Lag, err = measureLag(ctx, mongo.URI(), o); err != nil {
			return fmt.Errorf("lag: %w", err)
		}
	}
	if o.only == "" || o.only == "pause" {
		if f.Pause, err = measurePause(ctx, o); err != nil {
			return fmt.Errorf("pause: %w", err)
		}
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(f)
	}
	for _, line := range f.lines() {
		fmt.Println(line)
	}
	return nil
}

// lines is what people read.
func (f figures) lines() []string {
	out := []string{f.Backend}
	if f.Copy != nil {
		out = append(out, f.Copy.String())
	}
	if f.Lag != nil {
		out = append(out, f.Lag.String())
	}
	if f.Pause != nil {
		out = append(out, f.Pause.String())
	}
	return out
}
