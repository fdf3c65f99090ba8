package syncer

import (
	"context"
	"slices"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// DirectionKey names the persisted state of one direction: "<epoch>-<from>-<to>-<transform hash>",
// followed by ".g<generation>" from the second generation on.
type DirectionKey string

// Plan is made once for a direction, before its copy starts, and never changes.
type Plan struct {
	// Start is the source's position before the first record was copied.
	Start record.Position `json:"start"`
	// Ranges divides each source kind. Range i of a kind belongs to the shard that is i behind the
	// kind's first shard, which is 0 unless Dealt.
	Ranges map[string][]record.Range `json:"ranges"`
	// Dealt means that the first shard of a kind follows from a hash of its name. It is false in
	// plans of earlier binaries.
	Dealt bool `json:"-"`
	// Totals is the estimated number of records of each kind.
	Totals map[string]int64 `json:"totals"`
	// InSync means that the target was in sync with the source at Start, as a switch leaves it.
	// Nothing is copied, and only changes are compared.
	InSync bool `json:"level,omitempty"`
	// Target, in a plan InSync, is a place in the target's changes before any foreign change other
	// than the application's. Zero means that the target needs a whole comparison.
	Target record.Position `json:"target,omitzero"`
	// Fences has, by kind, the latest switch's fence, for kinds whose fence follows Target. The
	// application made the changes of such a kind between Target and its fence.
	Fences map[string]SeenFence `json:"fences,omitempty"`
}

// SeenFence is a fence in the changes of a target.
type SeenFence struct {
	Marker string          `json:"marker"`
	After  record.Position `json:"after"` // the last known position before the first such marker
}

// Checkpoint is the resumable state of one shard. It is written after the work it describes is
// done. A new owner may repeat work but skips none.
type Checkpoint struct {
	Position record.Position   `json:"position"`          // changes before it are applied and compared
	Markers  map[string]string `json:"markers,omitempty"` // latest fence before Position, by kind
	// Copied is the rest of each range that was begun, by "<kind>/<range index>". It has at least
	// one entry while ranges remain, since earlier binaries take an empty map for the end.
	Copied map[string]record.Range `json:"copied"`
	// DoneBits has one bit for each range of the shard, ordered by kind and index, set for
	// completely copied ranges. Done has their names. Only earlier binaries wrote it.
	DoneBits []byte   `json:"doneBits,omitempty"`
	Done     []string `json:"done,omitempty"`
	Count    int64    `json:"count"`    // records copied, for people
	Verified bool     `json:"verified"` // all ranges are compared and no difference remains
	// Rescan means that the changes before Position were lost. The shard's groups are still to be
	// compared from both sides, no older than Position, and repaired.
	Rescan bool `json:"rescan,omitempty"`
	// Fences, with Rescan, is the number of loader fences at Position (upgradestate.Images). The
	// comparison waits for a later one.
	Fences uint64 `json:"fences,omitempty"`
	// LateDeletes is the number of deletes up to Position that passed a fence of the validator
	// class.
	LateDeletes int64 `json:"lateDeletes,omitempty"`
	// Repair is the latest repair request (upgradestate.Repair) that the shard is or was compared
	// for.
	Repair string `json:"repair,omitempty"`
	// Target is a place in the target's changes: foreign changes before it are repaired. Zero means
	// that the target's changes were not checked, and Verified does not count.
	Target record.Position `json:"target,omitzero"`
	// Left is Position as the end of the direction found it. The watch for late deletes then moves
	// Position further, but the target has no later change of the source. Zero before the end.
	Left record.Position `json:"left,omitzero"`
	// LeftMarkers are the Markers at Left. They are nil before the end, and in checkpoints of earlier
	// binaries.
	LeftMarkers map[string]string `json:"leftMarkers,omitzero"`
}

// Parked is the stored entry of a group that could not be transformed or stored.
type Parked struct {
	Direction DirectionKey `json:"direction"`
	Shard     int          `json:"shard"`
	Kind      string       `json:"kind"`
	Key       string       `json:"key"`   // for people
	Group     string       `json:"group"` // group name in base64
	Spec      int          `json:"spec"`
	Version   string       `json:"version"`          // record.Version of the source state that failed
	Error     string       `json:"error"`            // without values of records, unless Config.ShowValues
	Waived    bool         `json:"waived,omitempty"` // by an operator: it does not block the switch
	// Kept means that the latest switch left the group behind by a waiver. It exists in the target
	// alone, and its absence from the source is no delete. Waived is set, too. Later changes of the
	// group in the source are not waived.
	Kept bool `json:"kept,omitempty"`
	// Differs means that the group was written and still differs from its source. Another write
	// does not help. Only a comparison that finds it equal removes the entry.
	Differs bool `json:"differs,omitempty"`
}

// Progress is the state of a shard, published by its owner about once a second while it changes.
type Progress struct {
	Shard  int     `json:"shard"`
	Owner  string  `json:"owner"`
	State  string  `json:"state"`  // one of States
	Copied int64   `json:"copied"` // records
	Total  int64   `json:"total"`  // records to copy, estimated
	Rate   float64 `json:"rate"`   // records per second, recent
	// LagMillis is the age of the newest change when it was applied; 0 if the shard is caught up.
	// It is nil while unknown: the shard has not followed yet, or the stream is silent.
	LagMillis *int64 `json:"lagMillis,omitempty"`
	Applied   int64  `json:"applied"`  // groups of changes
	Parked    int64  `json:"parked"`   // without waived ones
	Retries   int64  `json:"retries"`  // failed attempts of its engine, for any shard
	Verified  int64  `json:"verified"` // groups compared
	// Mismatched is the number of groups that differ now for longer than a change takes to arrive.
	// It falls when they become equal.
	Mismatched  int64  `json:"mismatched"`
	LateDeletes int64  `json:"lateDeletes,omitempty"` // passed a validator fence; never applied after the flip
	WaitsFor    string `json:"waitsFor,omitempty"`
	// Code classifies WaitsFor, and Version is the version whose database it concerns, if any.
	// Earlier controllers report WaitsFor alone.
	Code    upgradestate.BlockCode `json:"code,omitempty"`
	Version string                 `json:"version,omitempty"`
	Pace    string                 `json:"pace,omitempty"` // why the owner's bulk work is throttled now
	// PaceCause is Pace in one word.
	PaceCause throttle.Cause `json:"paceCause,omitempty"`
	LastError string         `json:"lastError,omitempty"`
	// Epoch and Generation identify the direction of the counts. Earlier controllers leave both
	// out.
	Epoch      uint64 `json:"epoch,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
}

// Agreed reports whether the shard has copied and compared everything, according to State.
func (p Progress) Agreed() bool { return slices.Contains(agreedStates, p.State) }

// ForSwitch is the Progress.WaitsFor of a shard during the steps of a switch that need no work of
// shards.
const ForSwitch = "the switch"

// Deployments is the engine's access to the Deployment.
type Deployments interface {
	// Get returns the present record.
	Get(ctx context.Context) (upgradestate.Deployment, error)
	// Apply makes one transition by compare-and-swap, and retries on a conflict of the record
	// itself. All conditions must hold in the same transaction. Otherwise it returns
	// coord.ErrConflict.
	Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error)
	// Watch delivers the present record and then the newest one after each change. It may skip
	// intermediate ones. It closes the channel when ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
}

// Journal stores the engine's plan, checkpoints, parked entries and progress. Each commit of a call
// with conditions, such as the owner's lock, takes effect only if they hold in the same
// transaction.
type Journal interface {
	// CreatePlan stores a plan unless there is one, and returns the stored one.
	CreatePlan(ctx context.Context, dir DirectionKey, p Plan) (Plan, error)
	LoadPlan(ctx context.Context, dir DirectionKey) (p Plan, found bool, err error)
	LoadCheckpoint(ctx context.Context, dir DirectionKey, shard int) (c Checkpoint, found bool, err error)
	SaveCheckpoints(ctx context.Context, dir DirectionKey, cs map[int]Checkpoint, conditions ...coord.Condition) error
	// Park stores an entry. An existing entry of a later version stays.
	Park(ctx context.Context, p Parked, conditions ...coord.Condition) error
	// Unpark removes an entry unless its version is later than p's.
	Unpark(ctx context.Context, p Parked) error
	Parked(ctx context.Context, dir DirectionKey, shard int) ([]Parked, error) // shard -1: all
	PublishProgress(ctx context.Context, owner string, ps []Progress, lease coord.LeaseID) error
}

// ParkedWatcher is an optional ability of a Journal. Without it, an engine lists the parked entries
// twice a second.
type ParkedWatcher interface {
	// WatchParked signals that the parked entries of a direction may have changed, at first and after
	// each change, until ctx ends. It also signals when it may have missed changes. It closes the
	// channel at the end. Signals are combined.
	WatchParked(ctx context.Context, dir DirectionKey) <-chan struct{}
}

// Ownership assigns shards to this controller. shards.Pool implements it.
type Ownership interface {
	// Owned returns the shards owned now. The Condition of a lost or retaken lock fails, so a
	// commit under it is safe without another check.
	Owned() map[int]shards.Lock
	// Leaving returns the owned shards that the engine must give up: it stops their work, stores a
	// checkpoint and calls Release.
	Leaving() []int
	Release(ctx context.Context, shard int) error
	// Changes receives a value after Owned or Leaving may have changed. Several changes may share
	// one value.
	Changes() <-chan struct{}
}

// Comparer finds groups that differ between source and target: applying the source's group to the
// target's present records would change something. A group that cannot be transformed differs. It
// is applied again and then parked.
type Comparer interface {
	// Groups compares groups at fresh reads and returns the different ones.
	Groups(ctx context.Context, src, dst transform.View, ids []transform.GroupID) (differ []transform.Difference, err error)
	// SourcePage compares the groups on the next page of a range of a source kind. If the kind has
	// a twin (a target kind with the same keys), it also finds the records that only the twin has
	// there.
	SourcePage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error)
	// TargetPage finds, on the next page of a range of a target kind, groups that the source does
	// not have. SourcePage covers the other groups and all records of twins.
	TargetPage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error)
}
