package main

import (
	"context"
	"time"

	"dbcontroller.dev/record"
)

// slowness delays each page read and each batch written. It simulates databases on machines of
// their own that are not saturated.
const slowness = 200 * time.Millisecond

// slow is a namespace with delayed bulk work.
type slow struct{ record.Namespace }

func (s slow) Scan(ctx context.Context, req record.ScanRequest) (record.Page, error) {
	rest(ctx, slowness)
	return s.Namespace.Scan(ctx, req)
}

func (s slow) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	rest(ctx, slowness)
	return s.Namespace.Load(ctx, b)
}

func twoControllers(ctx context.Context, b *bench, round int) error {
	d := b.small("other", b.others/2)
	speeds := [3]float64{}
	for i := range 2 {
		// The order alternates with the round.
		n := 1 + (i+round)%2
		c, err := b.copyOnce(ctx, copying{data: d, spec: spec{
			inside: true, controllers: n, wrap: func(_ string, ns record.Namespace) record.Namespace { return slow{ns} },
		}}, round)
		if err != nil {
			return err
		}
		speeds[n] = c.speed
	}
	b.figure("controllers.two", speeds[2]/speeds[1], "%d records; a slower store is simulated: each page that is read and each batch that is written waits %v more, so that neither database nor processors are saturated. Both controllers are in the benchmark's process, over a coordination store in memory; one copies at %.0f records/s.", d.records(), slowness, speeds[1])
	return nil
}
