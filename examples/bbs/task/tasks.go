package task

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource"
	"dbcontroller.dev/vrunner"
)

// tasks gives access to one version's tasks. M is the message of a task.
type tasks[M proto.Message] struct {
	store vrunner.Store
	table *resource.Table[M]
	forms forms[M]
}

// forms converts between a version's messages and Task.
type forms[M proto.Message] struct {
	get     func(M) Task
	set     func(M, Task)
	request func(guid string) proto.Message // any request that names a task
	payload func(M) payload
}

func newTasks[M proto.Message](store vrunner.Store, f forms[M], sparse ...string) tasks[M] {
	return tasks[M]{store: store, forms: f, table: resource.New(store, resource.Config[M]{
		Kind: Kind, Pattern: "{task_guid}", NameField: "task_guid", MaxID: maxName, Within: within, Sparse: sparse,
	})}
}

// clock returns the time as records hold it.
func clock() time.Time { return time.UnixMilli(time.Now().UnixMilli()).UTC() }

// insert creates a pending task of a message with a definition.
func (ts tasks[M]) insert(ctx context.Context, m M, domain string, d definition) (M, error) {
	if err := checkNew(domain, d); err != nil {
		return m, err
	}
	now := clock()
	ts.forms.set(m, Task{State: Pending, Created: now, Updated: now, URL: d.GetCompletionCallbackUrl()})
	return ts.table.Insert(ctx, m)
}

// ofTask is a request about a task.
type ofTask interface {
	proto.Message
	GetTaskGuid() string
}

// change applies a call to a task. If another call comes first, it is applied to the newest state.
func (ts tasks[M]) change(ctx context.Context, req ofTask, call func(t *Task, now time.Time) error) (M, error) {
	return ts.table.Change(ctx, ts.forms.request(req.GetTaskGuid()), func(m M) error {
		t := ts.forms.get(m)
		if err := call(&t, clock()); err != nil {
			if errors.Is(err, ErrRefused) {
				return connect.NewError(connect.CodeFailedPrecondition, err)
			}
			return err
		}
		ts.forms.set(m, t)
		return nil
	})
}

// ofCell is a request of a cell about a task.
type ofCell interface {
	ofTask
	GetCellId() string
}

func (ts tasks[M]) start(ctx context.Context, req ofCell) (m M, started bool, err error) {
	if err := checkName("cell_id", req.GetCellId()); err != nil {
		return m, false, err
	}
	m, err = ts.change(ctx, req, func(t *Task, now time.Time) (err error) {
		started, err = t.Start(req.GetCellId(), now)
		return err
	})
	return m, started, err
}

func (ts tasks[M]) complete(ctx context.Context, req interface {
	ofCell
	GetFailed() bool
	GetFailureReason() string
	GetResult() string
}) (m M, err error) {
	if err := checkName("cell_id", req.GetCellId()); err != nil {
		return m, err
	}
	if n := len(req.GetResult()); n > maxResult {
		return m, listing.Invalid("result", "has %d bytes, at most %d are allowed", n, maxResult)
	}
	o := Outcome{Failed: req.GetFailed(), Reason: bounded(req.GetFailureReason()), Result: req.GetResult()}
	return ts.change(ctx, req, func(t *Task, now time.Time) error { return t.Complete(req.GetCellId(), o, now) })
}

func (ts tasks[M]) fail(ctx context.Context, req interface {
	ofTask
	GetFailureReason() string
}) (M, error) {
	return ts.change(ctx, req, func(t *Task, now time.Time) error { return t.Fail(bounded(req.GetFailureReason()), now) })
}

func (ts tasks[M]) cancel(ctx context.Context, req ofTask) (M, error) {
	return ts.change(ctx, req, (*Task).Cancel)
}

func (ts tasks[M]) resolving(ctx context.Context, req ofTask) (M, error) {
	return ts.change(ctx, req, (*Task).Resolve)
}

// delete deletes a task if it is resolving.
func (ts tasks[M]) delete(ctx context.Context, req ofTask) error {
	if err := checkName("task_guid", req.GetTaskGuid()); err != nil {
		return err
	}
	var err error
	for range resource.Attempts {
		err = ts.remove(ctx, req.GetTaskGuid(), func(t Task) error {
			if err := t.deletable(); err != nil {
				return connect.NewError(connect.CodeFailedPrecondition, err)
			}
			return nil
		})
		if !errors.Is(err, record.ErrMismatch) {
			break
		}
	}
	return apiversion.Known(err)
}

// remove deletes a task if allowed returns nil for it, and it stays as allowed has seen it.
func (ts tasks[M]) remove(ctx context.Context, guid string, allowed func(Task) error) error {
	rec, err := ts.store.Get(ctx, Kind, guid)
	if err != nil {
		return err
	}
	m, err := ts.table.Decode(rec)
	if err != nil {
		return err
	}
	if err := allowed(ts.forms.get(m)); err != nil {
		return err
	}
	return ts.store.Write(ctx, []record.Mutation{{Kind: Kind, Key: rec.Key, Match: record.MatchDoc(rec.Doc)}})
}
