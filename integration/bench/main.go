// Command bench measures what matters to users, against the bars (targets) of this project. It
// writes docs/benchmarks.json, and from it the page and its charts (package figures). With -scale
// it instead measures how the cost of a record grows, which takes large copies, and writes
// docs/scale.json.
//
// # What runs
//
// Controllers are processes of bin/dbcontroller, so that their processor time and memory can be
// measured separately. This process hosts their etcd. The databases are two MongoDB servers of one
// member each. A scenario sets up one deployment, measures one or several related rows, and removes
// it. In some scenarios the controllers run in this process, and their rows say so. These put
// something between a controller and its database (a slow store, a blocked stream), or they use
// managed kinds, whose transformers are written in Go.
//
// # Guarantees
//
// Each scenario runs once in each round, so that runs of different rows are interleaved. A row and
// its limit, the speed of a bare copy, come from the same run. Each scenario has a deadline. If one
// fails or does not end, its rows say so, and the others go on. When the total time is nearly over,
// the rest does not run, and its rows have fewer runs. The figures are written after each round.
//
// The command does not own bars and rows: see figures.Rows and figures.ScaleRows. Begin to read at
// scenarios.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"dbcontroller.dev/integration/bench/figures"
)

// settings are the flags. Sizes are in records.
type settings struct {
	records, others, large, hot, changes int
	size, workers, calls                 int // bytes per record; workers per copy; calls of each kind by one client
	runs, seconds                        int
	switches, pauseRate, pauseRecords    int
	kinds, kindRecords, lists            int
	programs                             string
	peers                                string
	only                                 string
	scale                                int
	out                                  string
	remark                               string
	budget, deadline                     time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Before the flags: in this role all arguments belong to the controller.
	if len(os.Args) > 1 && os.Args[1] == controllerCommand {
		if err := controllerOfManaged(ctx, os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 4 && os.Args[1] == relayCommand {
		late, err := time.ParseDuration(os.Args[3])
		if err == nil {
			err = relay(ctx, os.Args[2], late)
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	var o settings
	flag.IntVar(&o.records, "records", 1_000_000, "records of the main copy")
	flag.IntVar(&o.others, "others", 200_000, "records of each other copy; managed kinds are copied with half as many again, workloads with half as many")
	flag.IntVar(&o.large, "large", 40_000, "records of 10 KiB")
	flag.IntVar(&o.hot, "hot", 50_000, "records that updates fall on")
	flag.IntVar(&o.changes, "changes", 60_000, "changes to catch up on, of distinct records; three times as many of hot ones")
	flag.IntVar(&o.calls, "calls", 1000, "reads, and writes, of one client at a time")
	flag.IntVar(&o.size, "size", 500, "bytes of a record, about")
	flag.IntVar(&o.workers, "workers", 4, "copy workers, also of the limit")
	flag.IntVar(&o.runs, "runs", 3, "interleaved runs; their median counts")
	flag.IntVar(&o.seconds, "seconds", 5, "how long a lag or a backlog is measured")
	flag.IntVar(&o.switches, "switches", 10, "switches of each run, for the pause")
	flag.IntVar(&o.pauseRate, "pause-rate", 2000, "writes a second, for the pause")
	flag.IntVar(&o.pauseRecords, "pause-records", 5000, "records, for the pause; pause.data has ten times as many")
	flag.IntVar(&o.kinds, "kinds", 100, "collections of the switch of many kinds")
	flag.IntVar(&o.kindRecords, "kind-records", 1000, "records of each of them")
	flag.IntVar(&o.lists, "lists", 100_000, "records of a list of the old version")
	flag.IntVar(&o.scale, "scale", 0, "measure how the cost of a record grows instead, up to a copy of so many records, and write scale.*; 0: do not")
	flag.StringVar(&o.programs, "programs", "bin", "folder of dbcontroller")
	flag.StringVar(&o.peers, "peers", os.Getenv("PEERS_DIR"), "folder with programs of peers, looked at before the PATH")
	flag.StringVar(&o.only, "only", "", "pattern of names of rows; with it figures are printed, and written only where -out says")
	flag.StringVar(&o.out, "out", "", "folder for benchmarks.json, benchmarks.md and charts; docs unless -only is given")
	flag.StringVar(&o.remark, "note", "", "what readers must know before any figure")
	flag.DurationVar(&o.budget, "budget", 24*time.Minute+30*time.Second, "when to begin nothing more")
	flag.DurationVar(&o.deadline, "deadline", 2*time.Minute, "of one run of a scenario")
	render := flag.String("render", "", "measure nothing: write the pages and the charts of benchmarks.json and scale.json in this folder anew")
	gobench := flag.String("gobench", "", "measure nothing: print the runs of this file as Go benchmarks")
	flag.Parse()
	err := func() error {
		switch {
		case *render != "":
			return renderAgain(*render)
		case *gobench != "":
			return printGoBench(*gobench)
		default:
			return measure(ctx, o)
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func renderAgain(folder string) error {
	for _, name := range []string{figures.Benchmarks, figures.Scale} {
		f, err := figures.Read(filepath.Join(folder, name+".json"))
		if err != nil {
			return err
		}
		if err := f.Write(folder); err != nil {
			return err
		}
	}
	return nil
}

func printGoBench(path string) error {
	f, err := figures.Read(path)
	if err != nil {
		return err
	}
	_, err = fmt.Print(f.GoBench())
	return err
}

func measure(ctx context.Context, o settings) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	// A partial run must not overwrite the committed figures.
	if o.out == "" && o.only == "" {
		o.out = "docs"
	}
	b, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { // all figures are written by then
		// Clean-up may hang on a server that does not respond, and the figures are safe.
		closed := make(chan struct{})
		go func() {
			b.close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(grace):
			b.say("what was started does not stop, and ends with this process")
		}
	}()
	all := scenarios()
	if o.scale > 0 {
		all = scaleScenarios(o.scale)
	}
	b.wanted = only
	b.run(ctx, all, only)
	f := b.file()
	if o.out != "" {
		if err := f.Write(o.out); err != nil {
			return err
		}
	}
	for _, r := range f.Rows {
		if only.MatchString(r.Name) {
			fmt.Println(r.String())
		}
	}
	// An interrupted run has printed its figures, but must not count as complete.
	return ctx.Err()
}
