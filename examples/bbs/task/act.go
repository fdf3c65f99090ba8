package task

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"dbcontroller.dev/examples/bbs/outbound"
	"dbcontroller.dev/record"
)

// errOvertaken means that another writer was faster. Its change brings the task back.
var errOvertaken = errors.New("it has changed since it was decided on")

func overtaken(err error) bool {
	return errors.Is(err, errOvertaken) || errors.Is(err, record.ErrMismatch) || errors.Is(err, record.ErrNotFound)
}

// one does what Decide says of a task, and returns when to look at it again; the zero time means
// when it changes. changed means that the task has just changed.
func (t *term[M]) one(ctx context.Context, guid string, rec record.Record, changed bool) (time.Time, error) {
	m, err := t.table.Decode(rec)
	if err != nil {
		return time.Time{}, err
	}
	was := t.forms.get(m)
	if changed && was.State == Completed && was.Outcome.Reason == Cancelled && was.Cell != "" {
		t.stop(guid, was.Cell)
	}
	op, at := Decide(was, clock(), t.lost, t.cfg)
	switch op {
	case Lose:
		err = t.apply(ctx, guid, was, func(t *Task, now time.Time) error { return t.Fail(cellLost, now) })
	case GiveUp:
		err = t.apply(ctx, guid, was, func(t *Task, now time.Time) error { return t.Fail(notStarted, now) })
	case Release:
		err = t.apply(ctx, guid, was, (*Task).release)
	case Expire:
		err = t.drop(ctx, guid, was)
	case Post:
		if !t.posts.Go(guid, func(ctx context.Context) { t.post(ctx, guid, was, t.forms.payload(m)) }) {
			at = time.Now().Add(t.cfg.FirstPause) // too many run, or the last one just ends
		}
	case Nothing:
	}
	if overtaken(err) {
		err = nil
	}
	return at, err
}

// apply changes a task, if it is still as in was.
func (t *term[M]) apply(ctx context.Context, guid string, was Task, change func(*Task, time.Time) error) error {
	_, err := t.table.Change(ctx, t.forms.request(guid), func(m M) error {
		now := t.forms.get(m)
		if now != was {
			return errOvertaken
		}
		if err := change(&now, clock()); err != nil {
			return err
		}
		t.forms.set(m, now)
		return nil
	})
	return err
}

// drop deletes a task, if it is still as in was.
func (t *term[M]) drop(ctx context.Context, guid string, was Task) error {
	return t.remove(ctx, guid, func(now Task) error {
		if now != was {
			return errOvertaken
		}
		return nil
	})
}

// payload is what a callback gets.
type payload struct {
	TaskGUID      string `json:"task_guid"`
	Domain        string `json:"domain"`
	Failed        bool   `json:"failed"`
	FailureReason string `json:"failure_reason"`
	Result        string `json:"result"`
	Annotation    string `json:"annotation"`
	CreatedMs     int64  `json:"created_at_ms"`
}

// post posts a completed task. Its writes are conditional, and their errors need no report: whatever
// is lost, the task comes back as RESOLVING or COMPLETED, and is released or posted again.
func (t *term[M]) post(ctx context.Context, guid string, was Task, p payload) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, a bool and a number
	}
	// The attempt is stored before the post. So a fenced server posts nothing, and only one of two
	// leaders posts.
	posting := was
	if err := t.apply(ctx, guid, was, func(t *Task, now time.Time) error {
		err := t.post(now)
		posting = *t
		return err
	}); err != nil {
		return
	}
	if err := outbound.Post(ctx, was.URL, body, t.cfg.CallbackTimeout); !delivered(err) {
		_ = t.apply(ctx, guid, posting, (*Task).release)
		return
	}
	_ = t.drop(ctx, guid, posting)
}

// delivered reports whether a callback has got a task. With 4xx it refuses the task, as it would the
// next time.
func delivered(err error) bool {
	var answer *outbound.AnswerError
	return err == nil || errors.As(err, &answer) && answer.Status >= 400 && answer.Status < 500
}

// stop asks a cell once to stop a cancelled task.
func (t *term[M]) stop(guid, cell string) {
	t.stops.Go(guid, func(ctx context.Context) {
		if url, err := t.cells.RepURL(ctx, cell); err == nil && url != "" {
			_ = outbound.CancelTask(ctx, url, guid)
		}
	})
}
