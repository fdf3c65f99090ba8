package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// copying describes one copy.
type copying struct {
	data dataset
	spec spec // the fields that do not follow from data
	// managed: the records belong to a managed kind, in a database of its own.
	managed bool
	limit   bool          // also measure the limit
	ready   bool          // also wait until ready
	rest    time.Duration // at rest after the copy, to count etcd requests; 0: none
	// meanwhile runs during the copy. Its context ends with the copy.
	meanwhile func(ctx context.Context)
}

// copied holds the results of one copy.
type copied struct {
	speed, limit float64 // records per second
	copy, ready  float64 // seconds
	memory       float64 // MB, peak until the end
	asked        float64 // etcd requests per second during the copy
	rest         float64 // the same at rest
	// processors is the processor time of the copy, limits of the limit, and until of everything
	// until ready.
	processors, limits, until spent
}

// copyOnce makes one copy. It measures the limit before the copy in odd rounds and after it in even
// ones, so that neither always finds the warmer cache.
func (b *bench) copyOnce(ctx context.Context, c copying, round int) (out copied, err error) {
	sp := c.spec
	if sp.from == nil {
		sp.from = b.from
	}
	if sp.to == nil {
		sp.to = b.to
	}
	names := c.data.collections()
	if c.managed {
		sp.database = scratch("old")
	} else {
		if sp.database, sp.lens, sp.kinds = c.data.name, c.data.lens, map[string]bool{}; sp.from == b.from {
			// A source in another cluster is filled by its scenario.
			if err := b.fill(ctx, c.data); err != nil {
				return out, err
			}
		}
		for _, name := range names {
			sp.kinds[name] = true
		}
	}
	records := c.data.records()
	limit := func() (err error) {
		if c.limit {
			before := b.spentNow(sp.from, sp.to, 0)
			out.limit, err = b.limit(ctx, sp.from, sp.to, sp.database, records, names)
			out.limits = b.spentNow(sp.from, sp.to, 0).since(before)
		}
		return err
	}
	if round%2 == 1 && !c.managed {
		if err := limit(); err != nil {
			return out, err
		}
	}
	s, err := b.deploy(ctx, sp)
	if err != nil {
		return out, err
	}
	defer s.close(ctx)
	if c.managed {
		// Only the deployment knows the name of a managed collection, so it is filled after the
		// start.
		ns, _ := s.latest.Load().Namespace("v1")
		kind, _ := ns.Kind(kindName)
		names = []string{kind.Physical}
		if err := c.data.insertInto(ctx, sp.from.client.Database(sp.database).Collection(kind.Physical), records); err != nil {
			return out, err
		}
	}
	if err := s.copy(ctx, c, records, &out); err != nil {
		return out, err
	}
	// The limit must not share the machine with a controller that compares.
	s.halt()
	s.to.drop(ctx, s.target) // frees the memory of the copy for the limit
	if round%2 == 0 || c.managed {
		err = limit()
	}
	return out, err
}

func (s *system) copy(ctx context.Context, c copying, records int, out *copied) error {
	beside, stop := context.WithCancel(ctx)
	defer stop()
	// It runs before the copy begins, so that the copy meets clients at full rate.
	if c.meanwhile != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.meanwhile(beside)
		}()
		defer func() { stop(); <-done }()
	}
	before, asked, begun := s.spentNow(), etcdRequests(), time.Now()
	if err := s.begin(ctx, true); err != nil {
		return err
	}
	if err := s.awaitCopied(ctx, records); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	// Up to the last record. Indexes and comparison count for ready only.
	took := time.Since(begun).Seconds()
	out.copy, out.speed = took, float64(records)/took
	out.processors, out.asked = s.spentNow().since(before), (etcdRequests()-asked)/took
	// The clients write during the copy alone.
	stop()
	if c.ready {
		if err := s.awaitReady(ctx, true); err != nil {
			return fmt.Errorf("await ready: %w", err)
		}
		out.ready, out.until = time.Since(begun).Seconds(), s.spentNow().since(before)
	}
	if c.rest > 0 {
		// The upgrade is ready now and has no work, so these requests are its cost at rest.
		asked = etcdRequests()
		rest(ctx, c.rest)
		out.rest = (etcdRequests() - asked) / c.rest.Seconds()
	}
	out.memory = s.peakMemory()
	return nil
}

// etcdRequests returns the number of messages that this process's etcd has received: requests, and
// messages on streams, such as lease renewals.
func etcdRequests() (n float64) {
	// etcd's gRPC server registers its counters in this process's default registry.
	families, _ := prometheus.DefaultGatherer.Gather() // partial results suffice
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "grpc_server_msg_received_total") {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// rest sleeps for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

const limitIs = "The limit: the same records by a bare reader in the same run."

func copyFixed(ctx context.Context, b *bench, round int) error {
	c, err := b.copyOnce(ctx, copying{data: b.small("main", b.records), limit: true, ready: true, rest: 4 * time.Second}, round)
	if err != nil {
		return err
	}
	b.mainCopy = append(b.mainCopy, c)
	b.against("copy.fixed", c.speed, c.limit, "%d records of %d B, one controller with %d workers, between two clusters. %s", b.records, b.size, b.workers, limitIs)
	b.figure("cpu.record", c.processors.client*1e6/float64(b.records), "Processor time of the controller's process (without etcd) from the beginning of the upgrade to the last record of copy.fixed.")
	b.spent("cpu.all.copy", c.processors, b.records, "Of the copy of copy.fixed")
	b.spent("cpu.all.ready", c.until, b.records, "Of copy.fixed until ready")
	b.spent("cpu.all.limit", c.limits, b.records, "Of the limit of copy.fixed, whose client is in the benchmark itself")
	b.figure("ready.multiple", c.ready/c.copy, "The runs of copy.fixed: copied, indexes built, compared both ways, the rollback proved; here after %.1f s.", c.ready)
	b.figure("memory.small", c.memory, "Peak resident memory of the controller's process in copy.fixed, until ready and 4 s of rest; %d records.", b.records)
	b.figure("etcd.copying", c.asked, "Messages that etcd received in copy.fixed, renewals of leases among them.")
	b.figure("etcd.rest", c.rest, "The same in the 4 s after the upgrade was ready; nobody writes.")
	return nil
}

func copyManaged(ctx context.Context, b *bench, round int) error {
	records := b.others * 3 / 2
	c, err := b.copyOnce(ctx, copying{data: b.small("", records), managed: true, spec: spec{inside: true}, limit: true}, round)
	if err == nil {
		b.against("copy.managed", c.speed, c.limit, "%d records of %d B between two clusters; the controller is in the benchmark's process, over a coordination store in memory. %s", records, b.size, limitIs)
		b.spent("cpu.all.managed", c.processors, records, "Of the copy of copy.managed, whose controller is in the benchmark itself")
	}
	return err
}

// copyOf returns a scenario that measures a copy for a single row.
func copyOf(row, how string, data func(*bench) (dataset, error)) func(context.Context, *bench, int) error {
	return func(ctx context.Context, b *bench, round int) error {
		d, err := data(b)
		if err != nil {
			return err
		}
		c, err := b.copyOnce(ctx, copying{data: d, limit: true}, round)
		if err == nil {
			b.against(row, c.speed, c.limit, "%d records, %s, between two clusters. %s", d.records(), how, limitIs)
		}
		return err
	}
}

func copyLarge(ctx context.Context, b *bench, round int) error {
	// 10 KiB is far above the usual size, so a buffer counted in records would show up in memory.
	d := one("large", b.large, func(i int) any { return document(i, 10<<10) })
	c, err := b.copyOnce(ctx, copying{data: d, limit: true, ready: true}, round)
	if err == nil {
		b.against("workload.large", c.speed, c.limit, "%d records of 10 KiB between two clusters. %s", b.large, limitIs)
		b.figure("memory.large", c.memory, "Peak resident memory of the controller's process in workload.large, until ready.")
	}
	return err
}

func copyInOne(ctx context.Context, b *bench, round int) error {
	d := b.small("other", b.others/2)
	c, err := b.copyOnce(ctx, copying{data: d, spec: spec{to: b.from}, limit: true}, round)
	if err == nil {
		b.against("workload.onecluster", c.speed, c.limit, "%d records of %d B, from a database to another one of the same server. %s", d.records(), b.size, limitIs)
	}
	return err
}
