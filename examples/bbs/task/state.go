package task

import (
	"errors"
	"fmt"
	"time"
)

// State of a task.
type State string

// States of a task, in their order.
const (
	Pending   State = "PENDING"   // no cell has started it
	Running   State = "RUNNING"   // its cell runs it
	Completed State = "COMPLETED" // it has a result, or has failed
	Resolving State = "RESOLVING" // a client or the callback handles the result
)

// Task is a task in either version, without its definition. Its methods are the calls of clients and
// cells. They change the task only if they return nil.
type Task struct {
	State   State
	Cell    string // that runs it or did
	Outcome Outcome
	// Created is the time of its creation, Updated of the last change of State, and Done of the first
	// completion. They have whole milliseconds, and the zero time means never.
	Created, Updated, Done time.Time
	Attempts               int32 // posts to the callback that have begun
	Rejections             int32 // v2 only
	RejectionReason        string
	URL                    string // of the callback; empty: none
}

// Outcome is what becomes of a task.
type Outcome struct {
	Failed bool
	Reason string // of the failure
	Result string
}

// Texts of failures.
const (
	Cancelled   = "the task was cancelled"
	cellLost    = "the cell disappeared before completion"
	notStarted  = "no cell has started the task in time"
	maxRejected = 10 // rejections that fail a task
)

// ErrRefused is returned for a call that does not fit the state of the task.
var ErrRefused = errors.New("the task is not in a state for it")

func (t *Task) refuse(what string) error {
	return fmt.Errorf("%s: it is %s: %w", what, t.State, ErrRefused)
}

// Start assigns a pending task to a cell. started is false if it runs on that cell already: the
// answer to the cell's first call was lost, or a second process of the cell asks.
func (t *Task) Start(cell string, now time.Time) (started bool, err error) {
	switch {
	case t.State == Running && t.Cell == cell:
		return false, nil
	case t.State != Pending:
		return false, t.refuse("start")
	}
	t.State, t.Cell, t.Updated = Running, cell, now
	return true, nil
}

// Complete records the outcome that the task's cell reports.
func (t *Task) Complete(cell string, o Outcome, now time.Time) error {
	o = o.plain()
	switch {
	// A retry, after its response was lost.
	case t.State == Completed && t.Cell == cell && t.Outcome == o:
		return nil
	case t.State != Running:
		return t.refuse("complete")
	case t.Cell != cell:
		return fmt.Errorf("complete: it runs on another cell: %w", ErrRefused)
	}
	t.complete(o, now)
	return nil
}

// Fail completes a task that has no outcome yet as failed.
func (t *Task) Fail(reason string, now time.Time) error {
	if t.State != Pending && t.State != Running {
		return t.refuse("fail")
	}
	t.complete(Outcome{Failed: true, Reason: reason}, now)
	return nil
}

// Cancel is Fail for a client. The cell stays in the task: it must be asked to stop it.
func (t *Task) Cancel(now time.Time) error {
	if t.State != Pending && t.State != Running {
		return t.refuse("cancel")
	}
	t.complete(Outcome{Failed: true, Reason: Cancelled}, now)
	return nil
}

// Reject counts that no cell has taken the task.
func (t *Task) Reject(reason string, now time.Time) error {
	if t.State != Pending {
		return t.refuse("reject")
	}
	t.Rejections++
	t.RejectionReason = reason
	if t.Rejections >= maxRejected {
		t.complete(Outcome{Failed: true, Reason: reason}, now)
	}
	return nil
}

func (t *Task) complete(o Outcome, now time.Time) {
	t.State, t.Outcome, t.Updated, t.Done = Completed, o.plain(), now, now
}

// plain returns the outcome without the fields that have no meaning in it.
func (o Outcome) plain() Outcome {
	if o.Failed {
		o.Result = ""
	} else {
		o.Reason = ""
	}
	return o
}

// Resolve takes a completed task for a client that handles its result.
func (t *Task) Resolve(now time.Time) error {
	if t.State != Completed {
		return t.refuse("resolve")
	}
	t.State, t.Updated = Resolving, now
	return nil
}

// post is Resolve for the callback.
func (t *Task) post(now time.Time) error {
	err := t.Resolve(now)
	if err == nil {
		t.Attempts++
	}
	return err
}

// release gives a resolving task back, so that its result is handled again.
func (t *Task) release(now time.Time) error {
	if t.State != Resolving {
		return t.refuse("release")
	}
	t.State, t.Updated = Completed, now
	return nil
}

// deletable refuses the deletion of a task whose result nobody has taken.
func (t *Task) deletable() error {
	if t.State != Resolving {
		return t.refuse("delete")
	}
	return nil
}
