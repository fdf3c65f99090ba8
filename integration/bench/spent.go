package main

import (
	"syscall"
	"time"
)

// spent is processor time in seconds, by user of the time. On a shared machine wall time means
// little. The processor time of all processes for a record shows how fast a copy can be.
type spent struct {
	source, target float64 // servers; within one cluster, source holds all
	client         float64 // controllers or a peer
	here           float64 // this process: etcd, the wait for the end, and the client of the limit
}

// spentNow returns the processor time so far; only differences are meaningful. The caller measures
// client.
func (b *bench) spentNow(from, to *cluster, client float64) spent {
	now := spent{source: from.processorTime(), client: client, here: usage(syscall.RUSAGE_SELF)}
	if from != to {
		now.target = to.processorTime()
	}
	return now
}

func (c *cluster) processorTime() (seconds float64) {
	for _, n := range c.server.Nodes() {
		seconds += processorTime(n.Pid())
	}
	return seconds
}

// usage returns the processor time of this process, or of its children that have been waited for.
func usage(who int) float64 {
	var r syscall.Rusage
	if syscall.Getrusage(who, &r) != nil {
		return 0
	}
	return (time.Duration(r.Utime.Nano()) + time.Duration(r.Stime.Nano())).Seconds()
}

func (s spent) since(before spent) spent {
	return spent{source: s.source - before.source, target: s.target - before.target, client: s.client - before.client, here: s.here - before.here}
}

// spent adds a figure of processor time: µs per record.
func (b *bench) spent(row string, s spent, records int, what string) {
	each := 1e6 / float64(records)
	b.figure(row, (s.source+s.target+s.client+s.here)*each, "%s: source %.2f, target %.2f, client %.2f, etcd and the benchmark itself %.2f µs.",
		what, s.source*each, s.target*each, s.client*each, s.here*each)
}
