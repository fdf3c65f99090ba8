package backfill

import (
	"context"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/throttle"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Plan is made once for a run, and never changes.
type Plan struct {
	// Start is the source's time when the run began: what is read is not older.
	Start record.Version `json:"start"`
	// Ranges cuts the kind without gaps; range i is that of shard i, and shards beyond them
	// have none.
	Ranges []record.Range `json:"ranges"`
	Total  int64          `json:"total"` // estimated number of records
}

// Checkpoint is how far a shard is. It is stored after what it records was done.
type Checkpoint struct {
	Rest     record.Range             `json:"rest"` // what remains, unless Done
	Done     bool                     `json:"done,omitempty"`
	Count    upgradestate.UpdateCount `json:"count"`
	Examples []Failure                `json:"examples,omitempty"` // a few of those that failed
}

// Failure is a record that stays as it is.
type Failure struct {
	Key   string `json:"key"` // as people read it
	Error string `json:"error"`
}

// String is the failure on one line.
func (f Failure) String() string { return f.Key + ": " + f.Error }

// Progress is what a controller publishes of its part in a run.
type Progress struct {
	Owner   string          `json:"owner"`
	ID      string          `json:"id"`              // of the run
	Total   int64           `json:"total,omitempty"` // of the plan
	Shards  []ShardProgress `json:"shards,omitempty"`
	Waits   string          `json:"waits,omitempty"` // what it waits for: the task, a pace, places to write
	Problem string          `json:"problem,omitempty"`
}

// ShardProgress is how far an owned shard is.
type ShardProgress struct {
	Shard   int                      `json:"shard"`
	Count   upgradestate.UpdateCount `json:"count"`
	Example string                   `json:"example,omitempty"` // of those that failed
}

// Deployments is what the engine needs of the Deployment; see package syncer.
type Deployments interface {
	Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error)
	// Watch delivers the newest record whenever it changed, beginning with the present one.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
}

// Journal is where runs are kept. Conditions must hold in the same transaction; one that
// does not is coord.ErrConflict.
type Journal interface {
	// CreateUpdatePlan stores the plan unless there is one, and returns the one that stands.
	// What is kept of other runs goes, as long as d is the present record.
	CreateUpdatePlan(ctx context.Context, d upgradestate.Deployment, p Plan) (Plan, error)
	LoadUpdatePlan(ctx context.Context, id string) (p Plan, found bool, err error)
	LoadUpdateCheckpoint(ctx context.Context, id string, shard int) (c Checkpoint, found bool, err error)
	SaveUpdateCheckpoint(ctx context.Context, id string, shard int, c Checkpoint, conditions ...coord.Condition) error
	PublishUpdateProgress(ctx context.Context, p Progress, lease coord.LeaseID) error
}

// Ownership is who works on which shard; shards.Pool is it.
type Ownership interface {
	Owned() map[int]shards.Lock
	// Changes is signalled (conflated) whenever Owned may have changed.
	Changes() <-chan struct{}
}

// Namespace is what the engine needs of the database of a version.
type Namespace interface {
	record.Reader
	record.Swapper
	Position(ctx context.Context) (record.Position, error)
	Split(ctx context.Context, tok record.Token, n int) ([]record.Range, error)
	Size(ctx context.Context, tok record.Token) (record.Size, error)
}

// Rotation brings records under a key of their namespace; package controller is it.
type Rotation interface {
	// Begin returns what is to be done to each record, and the namespace as it is stored. Where
	// planned is false, the run has no plan yet: it returns waits, for what has to be before
	// the first record is read, until nobody writes under another key any more.
	Begin(ctx context.Context, u upgradestate.Update, planned bool) (task transform.Task, ns Namespace, waits string, err error)
}

// Tasks are those that this binary has; transform.Registry is it.
type Tasks interface {
	// Task finds one by its name. An error means that there is none.
	Task(name string) (transform.Task, error)
}

// Pacer holds bulk work back; throttle.Pacer is it.
type Pacer interface {
	// Set takes over the pace of the record, and which share of the ring is owned here.
	Set(said upgradestate.Pace, share float64)
	// Wait returns when a page may be read. records is how many were read since the call
	// before it.
	Wait(ctx context.Context, records int) error
	// Reason returns why Wait holds back now; empty when it does not.
	Reason() (why string, standstill bool)
}

var _ Pacer = (*throttle.Pacer)(nil)
