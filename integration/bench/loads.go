package main

import (
	"context"
	"sync"

	"dbcontroller/record"
)

// loads counts the records that a controller copies. What its journal says of its progress
// comes twice a second, which is too seldom to measure with.
type loads struct {
	mu      sync.Mutex
	goal, n int
	reached chan struct{}
}

// expect returns a channel that is closed when so many more were copied.
func (l *loads) expect(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goal, l.n, l.reached = n, 0, make(chan struct{})
	return l.reached
}

// add counts the groups of a batch that are in the target now, each of which is one record.
func (l *loads) add(rs []record.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.n
	for _, r := range rs {
		if r.Outcome == record.Applied {
			l.n++
		}
	}
	if before < l.goal && l.n >= l.goal {
		close(l.reached)
	}
}

// wrap is controller.Options.Wrap.
func (l *loads) wrap(_ string, ns record.Namespace) record.Namespace { return counting{ns, l} }

type counting struct {
	record.Namespace
	loads *loads
}

func (c counting) Load(ctx context.Context, b record.Batch) ([]record.Result, error) {
	rs, err := c.Namespace.Load(ctx, b)
	if err == nil {
		c.loads.add(rs)
	}
	return rs, err
}
