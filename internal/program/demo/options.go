package app

import (
	"fmt"
	"io"
	"os"
	"time"

	"dbcontroller.dev/config"
	"dbcontroller.dev/transform"
)

// Defaults of the options. There are enough writers to keep the schedule even if each write takes a
// while. Otherwise the figures would measure the queues of clients and not the database.
const (
	DefaultRecords = 20000
	DefaultWriters = 24
	DefaultRate    = 300
)

// Commands of the program that the demo starts as processes.
const (
	ControllerCommand = "controller"
	HostCommand       = "host"
)

// Options configure a demo. A zero value means the default that a field names.
type Options struct {
	JSON    bool   // result as one JSON object on Stdout, all other output on Stderr
	Records int    // documents of the application's collection; 20,000
	Writers int    // on each path: the API, and the plain driver; 24
	Rate    int    // writes a second over all writers, and as many reads; 300
	Seed    uint64 // of the clients' random choices
	// Switches is the number of switches: to v2, back to v1, and so on; 1.
	Switches int
	Keep     bool // leave everything running
	Hold     bool // wait for an interrupt before the clean-up, for people with a browser

	Binary       string // this program, with ControllerCommand and HostCommand
	ServerBinary string // the sample server
	// Transformers returns the controllers' transformers, for the comparison.
	Transformers func(config.Config) (*transform.Registry, error)
	// Warm and Cool are the times that clients run before the upgrade and after the switch; 2 s and
	// 3 s. Cool extends until every path has written to the new version.
	Warm, Cool time.Duration
	// Patience limits the time without progress before the demo gives up; 60 s.
	Patience time.Duration

	Stdout, Stderr io.Writer // default: the process's own
}

func (o Options) withDefaults() Options {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Records, DefaultRecords)
	set(&o.Writers, DefaultWriters)
	set(&o.Rate, DefaultRate)
	set(&o.Switches, 1)
	span := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	// A person opens the page before the upgrade begins.
	if o.Hold {
		span(&o.Warm, 20*time.Second)
	}
	span(&o.Warm, 2*time.Second)
	span(&o.Cool, 3*time.Second)
	span(&o.Patience, time.Minute)
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	return o
}

func (o Options) validate() error {
	for _, n := range []struct {
		flag             string
		value, low, high int
	}{
		{"--records", o.Records, 100, 5_000_000},
		{"--writers", o.Writers, 1, 256},
		{"--rate", o.Rate, 10, 100_000},
		{"--switches", o.Switches, 1, 100},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("%s %d: give a number from %d to %d", n.flag, n.value, n.low, n.high)
		}
	}
	// Check the binaries first: a missing one would fail after minutes of loading.
	for _, b := range []struct{ what, path, help string }{
		{"demo", o.Binary, "build it with 'make build'"},
		{"sample server", o.ServerBinary, "build it with 'make build', or name it with --server-binary"},
	} {
		info, err := os.Stat(b.path)
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("no %s binary at %q: %s", b.what, b.path, b.help)
		}
	}
	return nil
}
