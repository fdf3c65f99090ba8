package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"dbcontroller.dev/examples/bbs/cell"
	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
	"dbcontroller.dev/integration/workload"
)

const (
	cellCount = 3
	// scheduled is the number of processes with instances on cells, one to three each.
	scheduled = 8
)

// cells run the instances of some processes. They use the v1 API like other clients. One of them
// crashes in each switch.
type cells struct {
	all  []*cell.Cell
	want map[string]string // expected log guid, by name of the instance
	stop []func()          // of each cell
	// crashes is the number of switches during which a cell crashed.
	crashes int
}

// startCells creates the processes and starts the cells. The writer w does not change these
// processes afterwards.
func startCells(ctx context.Context, w *bbsWriter, h *http.Client, servers []string) (*cells, error) {
	c := &cells{want: map[string]string{}}
	for i := range scheduled {
		p := created(w.newGUID(), w.ops.Add(1))
		p.running = int32(1 + i%3)
		if err := w.make(ctx, p); err != nil {
			return nil, err
		}
		for index := range int(p.running) {
			c.want[converge.IndexName(p.guid, index)] = p.v1().GetDefinition().GetLogGuid()
		}
	}
	// Spread the cells over the servers, so that each server has some during the switch.
	instances, processes := clientsOf(h, servers, bbsv1connect.NewActualLRPServiceClient), clientsOf(h, servers, bbsv1connect.NewDesiredLRPServiceClient)
	for i := range cellCount {
		c.all = append(c.all, cell.New(cell.Config{
			ID: fmt.Sprint("cell-", i+1), Instances: instances[i%len(servers)], Processes: processes[i%len(servers)],
			Every: 250 * time.Millisecond, Room: 2 * scheduled,
		}))
		c.stop = append(c.stop, nil)
		c.run(ctx, i)
	}
	return c, nil
}

func (c *cells) run(ctx context.Context, i int) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { c.all[i].Run(ctx) })
	c.stop[i] = func() { cancel(); running.Wait() }
}

// stopAll stops the cells. A nil receiver has none.
func (c *cells) stopAll() {
	if c == nil {
		return
	}
	for _, stop := range c.stop {
		stop()
	}
}

// crash stops a cell when a switch begins, and restarts it when ctx ends, after the switch.
func (c *cells) crash(ctx context.Context, line *timeline, before int, say func(string, ...any)) error {
	const first = 0
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, switches, _ := line.window(); switches > before {
			break
		}
		select {
		case <-ctx.Done():
			return nil // the switch was faster, or there is none
		case <-tick.C:
		}
	}
	lost := len(c.all[first].Runs())
	c.stop[first]()
	c.crashes++
	say("cell-1 crashes, and with it %d instances", lost)
	<-ctx.Done()
	// The restarted cell must outlive ctx, which ended with the switch.
	c.run(context.WithoutCancel(ctx), first)
	return nil
}

// settlePatience limits the time until the reconciler runs every desired instance once.
const settlePatience = 30 * time.Second

// settle waits until each desired instance runs once, and stops the cells. Instances that still
// differ after settlePatience become findings.
func (c *cells) settle(ctx context.Context, f *findings, say func(string, ...any)) error {
	defer c.stopAll()
	start := time.Now()
	for {
		found, err := c.check()
		if len(found) == 0 {
			say("%d instances run, each once", len(c.want))
			return nil
		}
		if time.Since(start) > settlePatience {
			if err != nil {
				say("a cell is in trouble: %v", err)
			}
			f.add(found)
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (c *cells) check() (found workload.Findings, err error) {
	census := cell.Census(c.all...)
	for name, log := range c.want {
		switch on := census[name]; {
		case len(on) == 0:
			found = append(found, workload.Finding{Kind: workload.Lost, Record: name, Detail: "it runs on no cell"})
		case len(on) > 1:
			found = append(found, workload.Finding{Kind: workload.Duplicated, Record: name, Detail: fmt.Sprintf("it runs on %d cells", len(on))})
		case on[0].LogGUID != log:
			found = append(found, workload.Finding{Kind: workload.Lost, Record: name, Detail: "it runs another definition"})
		}
	}
	// An instance without a desired process means that a delete was undone.
	for name := range census {
		if c.want[name] == "" {
			found = append(found, workload.Finding{Kind: workload.Resurrected, Record: name, Detail: "nobody wants it to run"})
		}
	}
	for _, one := range c.all {
		err = errors.Join(err, one.Trouble())
	}
	return found, err
}
