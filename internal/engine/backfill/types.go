package backfill

import (
	"context"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Plan is the division of a run's records into ranges. It is made once for a run and never changes.
type Plan struct {
	// Start is the source's time when the run began. Reads must not be older.
	Start record.Version `json:"start"`
	// Ranges cuts the kind without gaps. Range i belongs to shard i; higher shards have no work.
	Ranges []record.Range `json:"ranges"`
	Total  int64          `json:"total"` // estimated number of records
}

// Checkpoint is the progress of a shard. The engine stores it after the work that it covers.
type Checkpoint struct {
	Rest     record.Range             `json:"rest"` // remaining range, unless Done
	Done     bool                     `json:"done,omitempty"`
	Count    upgradestate.UpdateCount `json:"count"`
	Examples []Failure                `json:"examples,omitempty"` // a few of the failures
}

// Failure describes a record that the run left unchanged.
type Failure struct {
	Key   string `json:"key"` // readable form
	Error string `json:"error"`
}

// String returns the failure on one line.
func (f Failure) String() string { return f.Key + ": " + f.Error }

// Progress is a controller's published part of a run.
type Progress struct {
	Owner   string          `json:"owner"`
	ID      string          `json:"id"`              // of the run
	Total   int64           `json:"total,omitempty"` // of the plan
	Shards  []ShardProgress `json:"shards,omitempty"`
	Waits   string          `json:"waits,omitempty"` // missing task, pace, or closed collections; empty: nothing
	Problem string          `json:"problem,omitempty"`
}

// ShardProgress is the progress of an owned shard.
type ShardProgress struct {
	Shard   int                      `json:"shard"`
	Count   upgradestate.UpdateCount `json:"count"`
	Example string                   `json:"example,omitempty"` // one of the failures
}

// Deployments is the engine's access to the Deployment; see package syncer.
type Deployments interface {
	Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error)
	// Watch delivers the present record and then the newest one after each change.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
}

// Journal stores runs. Conditions must hold in the same transaction; a failed one is
// coord.ErrConflict.
type Journal interface {
	// CreateUpdatePlan stores the plan unless one exists, and returns the stored one. It deletes
	// the data of other runs, provided that d is the present record.
	CreateUpdatePlan(ctx context.Context, d upgradestate.Deployment, p Plan) (Plan, error)
	LoadUpdatePlan(ctx context.Context, id string) (p Plan, found bool, err error)
	LoadUpdateCheckpoint(ctx context.Context, id string, shard int) (c Checkpoint, found bool, err error)
	SaveUpdateCheckpoint(ctx context.Context, id string, shard int, c Checkpoint, conditions ...coord.Condition) error
	PublishUpdateProgress(ctx context.Context, p Progress, lease coord.LeaseID) error
}

// Ownership tells which shards this controller owns; shards.Pool implements it.
type Ownership interface {
	Owned() map[int]shards.Lock
	// Changes signals, with signals merged, that Owned may have changed.
	Changes() <-chan struct{}
}

// Namespace is the engine's access to a version's database.
type Namespace interface {
	record.Reader
	record.Swapper
	Position(ctx context.Context) (record.Position, error)
	Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error)
	Size(ctx context.Context, tok record.Token) (record.Size, error)
}

// Rotation encrypts records under a new key of their namespace; package controller implements it.
type Rotation interface {
	// Begin returns the change for each record and the namespace in its stored form. If planned is
	// false, the run has no plan yet. Begin then returns waits, the missing condition, as long as
	// any process still writes under another key. The engine must not read a record before that.
	Begin(ctx context.Context, u upgradestate.Update, planned bool) (task transform.Task, ns Namespace, waits string, err error)
}

// Tasks finds the tasks of this binary; transform.Registry implements it.
type Tasks interface {
	// Task returns a task by name. An error means that this binary lacks it.
	Task(name string) (transform.Task, error)
}

// Pacer limits bulk work; throttle.Pacer implements it.
type Pacer interface {
	// Set takes the pace from the record, and the share of the ring that this controller owns.
	Set(said upgradestate.Pace, share float64)
	// Wait blocks until a page may be read. records is the number read since the previous call.
	Wait(ctx context.Context, records int) error
	// Reason returns why Wait blocks now; empty if it does not.
	Reason() (why string, standstill bool)
}

var _ Pacer = (*throttle.Pacer)(nil)
