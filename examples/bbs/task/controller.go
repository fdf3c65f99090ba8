package task

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/bbs/outbound"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// maxCalls bounds the calls to callbacks and cells at the same time, for each of the two.
const maxCalls = 16

// Cells is what the controller knows of cells.
type Cells interface {
	// Lost returns the cells that stopped reporting.
	Lost(ctx context.Context) (map[string]bool, error)
	// RepURL returns the address of a cell's stop endpoint, or "" if it has none.
	RepURL(ctx context.Context, cell string) (string, error)
}

// ControllerV1 returns the controller of v1's tasks, and ControllerV2 that of v2's. Each works in
// the version that is active.
func ControllerV1(store vrunner.Store, cells Cells, cfg Config) vrunner.Controller {
	return newController(newV1(store), cells, cfg)
}

func ControllerV2(store vrunner.Store, cells Cells, cfg Config) vrunner.Controller {
	return newController(newV2(store), cells, cfg)
}

func newController[M proto.Message](ts tasks[M], cells Cells, cfg Config) vrunner.Controller {
	c := controller[M]{ts, cells, cfg.withDefaults()}
	// With a leader, only one server posts, and its writes seldom conflict.
	return vrunner.Controller{Name: "bbs-tasks", Leader: true, Run: c.run}
}

type controller[M proto.Message] struct {
	tasks[M]
	cells Cells
	cfg   Config
}

// term is one run of the controller.
type term[M proto.Message] struct {
	controller[M]
	posts, stops *outbound.Calls
	lost         map[string]bool // as of the last check of all tasks
}

// run checks all tasks, and then follows changes until the next time at which a task is due.
func (c controller[M]) run(ctx context.Context) error {
	changes, err := c.store.Changes(ctx, Kind)
	if err != nil {
		return err
	}
	defer changes.Close()
	t := &term[M]{controller: c, posts: outbound.NewCalls(ctx, maxCalls), stops: outbound.NewCalls(ctx, maxCalls)}
	// No goroutine outlives the run: the next term's leader may be another server. A switch ends
	// calls with ctx. An error of the run does not: an unreadable task must not end others' posts.
	defer func() { t.posts.Wait(); t.stops.Wait() }()
	for {
		next, unreadable, err := t.all(ctx)
		if err == nil {
			err = t.follow(ctx, changes, next)
		}
		// An unreadable record must not stop the others, so its error waits until they were checked.
		if err = errors.Join(err, unreadable); err != nil {
			return err
		}
	}
}

// all checks all tasks, and returns when the next one is due.
func (t *term[M]) all(ctx context.Context) (next time.Time, unreadable, err error) {
	if t.lost, err = t.cells.Lost(ctx); err != nil {
		return next, nil, err
	}
	next = time.Now().Add(t.cfg.Every)
	const batch = 1000
	for after := ""; ; {
		recs, err := t.store.List(ctx, Kind, "", after, batch)
		if err != nil {
			return next, unreadable, err
		}
		for _, rec := range recs {
			after, _ = rec.Key.Name() // List returns records with names only
			at, err := t.one(ctx, after, rec, false)
			switch {
			case errors.Is(err, apiversion.ErrStored):
				unreadable = errors.Join(unreadable, err)
			case err != nil:
				return next, unreadable, err
			case !at.IsZero() && at.Before(next):
				next = at
			}
		}
		if len(recs) < batch {
			return next, unreadable, nil
		}
	}
}

// follow handles changes until a time, or until one of the changed tasks is due.
func (t *term[M]) follow(ctx context.Context, changes vrunner.Subscription, until time.Time) error {
	for {
		bounded, cancel := context.WithDeadline(ctx, until)
		dirty, err := changes.Next(bounded)
		over := bounded.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil: // also at the deadline: a full check asks no cell to stop a task
		// Lost changes are covered by the full check that follows.
		case over, errors.Is(err, vrunner.ErrLost):
			return nil
		default:
			return err
		}
		for _, d := range dirty {
			rec, err := t.store.Get(ctx, Kind, d.Name)
			if errors.Is(err, record.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			at, err := t.one(ctx, d.Name, rec, true)
			if err != nil && !errors.Is(err, apiversion.ErrStored) {
				return err
			}
			if !at.IsZero() && at.Before(until) {
				until = at
			}
		}
		if over {
			return nil
		}
	}
}
