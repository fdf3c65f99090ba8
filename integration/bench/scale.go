package main

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/integration/bench/figures"
)

// scaleScenarios returns copies of growing numbers of records of one kind. The largest take
// minutes, so the normal benchmark leaves them out.
func scaleScenarios(largest int) (all []scenario) {
	for _, size := range figures.Sizes(largest) {
		sc := scenario{name: fmt.Sprintf("copy of %d records", size), run: func(ctx context.Context, b *bench, round int) error { return copyScaled(ctx, b, size, round) }}
		for _, what := range []string{"copy", "ready", "cpu", "memory"} {
			sc.rows = append(sc.rows, figures.Cost(size, what))
		}
		// The first run also creates the records, and a slow disk must not make it fail.
		const slow = 5_000 // records a second
		sc.deadline = time.Minute + time.Duration(size/slow)*time.Second
		all = append(all, sc)
	}
	return all
}

func copyScaled(ctx context.Context, b *bench, size, round int) error {
	c, err := b.copyOnce(ctx, copying{data: b.small(fmt.Sprintf("scale%d", size), size), limit: true, ready: true}, round)
	if err != nil {
		return err
	}
	b.against(figures.Cost(size, "copy"), c.speed, c.limit, "Records of %d B of a fixed-name kind, identity, one controller with %d workers, between two clusters with caches of %d GB each. %s", b.size, b.workers, cacheGB, limitIs)
	b.figure(figures.Cost(size, "ready"), c.ready, "The same runs: copied, compared both ways, the rollback proved.")
	b.figure(figures.Cost(size, "cpu"), c.processors.client*1e6/float64(size), "The same runs: processor time of the controller's process (without etcd), until the last record was copied.")
	b.figure(figures.Cost(size, "memory"), c.memory, "The same runs: peak resident memory of the controller's process, until ready.")
	return nil
}
