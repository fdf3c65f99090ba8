package main

import (
	"syscall"
	"time"
)

// spent is processor time in seconds by who used it. Wall times of a machine that others use say
// little, and what all processes together use for a record says how fast it can be.
type spent struct {
	source, target float64 // servers; in one cluster source has all
	client         float64 // controllers, or a peer
	here           float64 // this process: etcd, what waits for the end, and the client of the limit
}

// spentNow is the account so far, of which differences count; client is what the caller knows.
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

// usage is the processor time of this process, or of the children that it has waited for.
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

// spent makes a figure of what was spent: µs for each of so many records.
func (b *bench) spent(row string, s spent, records int, what string) {
	each := 1e6 / float64(records)
	b.figure(row, (s.source+s.target+s.client+s.here)*each, "%s: source %.2f, target %.2f, client %.2f, etcd and the benchmark itself %.2f µs.",
		what, s.source*each, s.target*each, s.client*each, s.here*each)
}
