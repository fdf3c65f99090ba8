package cell

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
)

// SleepingPath is the path of an action of a task that runs until it is stopped. A task with any
// other path ends at once: its result is its arguments, and FailingPath fails.
const SleepingPath = "/bin/sleep"

// work is a task on this cell. It stays until the service knows its outcome.
type work struct {
	done   bool
	failed bool
	reason string
	result string
}

// Tasks returns the number of tasks that run on the cell.
func (c *Cell) Tasks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, w := range c.tasks {
		if !w.done {
			n++
		}
	}
	return n
}

// lookAtTasks does all outstanding work of tasks once.
func (c *Cell) lookAtTasks(ctx context.Context) error {
	filter := fmt.Sprintf(`state == "PENDING" || state == "RUNNING" && cell_id == %q`, c.cfg.ID)
	listed := map[string]bool{}
	var errs []error
	for page := ""; ; {
		res, err := c.cfg.Tasks.ListTasks(ctx, connect.NewRequest(&bbsv1.ListTasksRequest{Filter: filter, PageSize: 500, PageToken: page}))
		if err != nil {
			return fmt.Errorf("list tasks: %w", err)
		}
		for _, t := range res.Msg.GetTasks() {
			listed[t.TaskGuid] = true
			if t.State == "PENDING" {
				errs = append(errs, c.takeTask(ctx, t))
			} else {
				errs = append(errs, c.report(ctx, t.TaskGuid))
			}
		}
		if page = res.Msg.GetNextPageToken(); page == "" {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The service has given up the others: a client cancelled them, or they count as lost.
	for guid := range c.tasks {
		if !listed[guid] {
			delete(c.tasks, guid)
		}
	}
	return errors.Join(errs...)
}

// takeTask starts a pending task, if there is room.
func (c *Cell) takeTask(ctx context.Context, t *bbsv1.Task) error {
	c.mu.Lock()
	full := c.evacuating || len(c.tasks) >= c.cfg.Room
	c.mu.Unlock()
	if full {
		return nil
	}
	res, err := c.cfg.Tasks.StartTask(ctx, connect.NewRequest(&bbsv1.StartTaskRequest{TaskGuid: t.TaskGuid, CellId: c.cfg.ID}))
	if err != nil {
		return notLate(err)
	}
	if !res.Msg.GetShouldStart() {
		return nil // the next poll reports it
	}
	w := &work{}
	switch action := t.GetDefinition().GetAction(); action.GetPath() {
	case SleepingPath:
	case FailingPath:
		w.done, w.failed, w.reason = true, true, "exit status 1"
	default:
		w.done, w.result = true, strings.Join(action.GetArgs(), " ")
	}
	c.mu.Lock()
	// A crash clears tasks. A start that was under way must not add to them afterwards.
	if ctx.Err() == nil {
		c.tasks[t.TaskGuid] = w
	}
	c.mu.Unlock()
	return c.report(ctx, t.TaskGuid)
}

// report reports the outcome of a task, if it has one. A task that the cell does not know was lost
// with a crash of the cell, or the answer to its start was.
func (c *Cell) report(ctx context.Context, guid string) error {
	c.mu.Lock()
	req := &bbsv1.CompleteTaskRequest{TaskGuid: guid, CellId: c.cfg.ID, Failed: true, FailureReason: "the cell does not run it"}
	if w := c.tasks[guid]; w != nil {
		if !w.done {
			c.mu.Unlock()
			return nil
		}
		req.Failed, req.FailureReason, req.Result = w.failed, w.reason, w.result
	}
	c.mu.Unlock()
	// If the answer is lost, the task is listed again, and the outcome reported again.
	_, err := c.cfg.Tasks.CompleteTask(ctx, connect.NewRequest(req))
	return notLate(err)
}
