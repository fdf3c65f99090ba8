package syncer

import (
	"context"
	"slices"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/shards"
	"dbcontroller.dev/throttle"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// DirectionKey names everything that is persisted for one direction of copying:
// "<epoch>-<from>-<to>-<transform hash>", and ".g<generation>" from the second one on.
type DirectionKey string

// Plan is made once for a direction, before its copy starts, and never changes.
type Plan struct {
	// Start is the source's position from before the first record was copied.
	Start record.Position `json:"start"`
	// Ranges cuts each source kind. Range i of a kind is copied by the shard that is i behind
	// the kind's first one, which is 0 unless Dealt.
	Ranges map[string][]record.Range `json:"ranges"`
	// Dealt: kinds begin at the shard that their name hashes to. Plans of earlier binaries are
	// not.
	Dealt bool `json:"-"`
	// Totals is the estimated number of records of each kind.
	Totals map[string]int64 `json:"totals"`
	// InSync means that the target was in sync with the source at Start, as a switch leaves
	// it: nothing is copied, and nothing compared but what changes.
	InSync bool `json:"level,omitempty"`
	// Target, of a plan InSync, is a place in the changes of the target from before anybody but
	// its application can have changed it. Zero: it is compared as a whole.
	Target record.Position `json:"target,omitzero"`
}

// Checkpoint is the resumable place of one shard. It is written after what it holds was
// done, so that work after it is done again, never skipped.
type Checkpoint struct {
	Position record.Position   `json:"position"`          // changes before it are applied and compared
	Markers  map[string]string `json:"markers,omitempty"` // the latest fence seen before Position, by kind
	// Copied is, by "<kind>/<range index>", what remains of the ranges that were begun. While
	// there are others it holds one at least, for binaries that take none for the end.
	Copied map[string]record.Range `json:"copied"`
	// DoneBits has a bit for each range of the shard, in the order of kinds and indices, that
	// is copied whole. Done names them; only earlier binaries wrote it.
	DoneBits []byte   `json:"doneBits,omitempty"`
	Done     []string `json:"done,omitempty"`
	Count    int64    `json:"count"`    // records copied, for people
	Verified bool     `json:"verified"` // the shard's ranges were compared once, and what differed agrees now
	// Rescan: the changes before Position were lost. The shard's groups are still to be
	// compared from both sides, as they are after Position, and what differs to be repaired.
	Rescan bool `json:"rescan,omitempty"`
	// Fences, for a Rescan, is the number of fences of loaders at the new beginning
	// (upgradestate.Images): the comparison waits for another one.
	Fences uint64 `json:"fences,omitempty"`
	// LateDeletes counts, up to Position, what passed a fence of the validator class.
	LateDeletes int64 `json:"lateDeletes,omitempty"`
	// Repair is the latest request (upgradestate.Repair) that the shard is, or was, compared for.
	Repair string `json:"repair,omitempty"`
	// Target is a place in the target's changes: what others changed there before it agrees with
	// the source. Zero: nobody has looked, and Verified does not count.
	Target record.Position `json:"target,omitzero"`
}

// Parked is a group that could not be transformed or stored.
type Parked struct {
	Direction DirectionKey `json:"direction"`
	Shard     int          `json:"shard"`
	Kind      string       `json:"kind"`
	Key       string       `json:"key"`   // as people read it
	Group     string       `json:"group"` // base64 of the group name
	Spec      int          `json:"spec"`
	Version   string       `json:"version"`
	Error     string       `json:"error"`
	Waived    bool         `json:"waived,omitempty"`
	// Kept: the latest switch left it behind by a waiver. It is in the target alone, and that
	// is not taken for a delete. Waived with it; what becomes of it in the source is not.
	Kept bool `json:"kept,omitempty"`
	// Differs: the group was written as it is made, and the target holds something else even so.
	// That it is written again does not help; only a comparison that agrees ends it.
	Differs bool `json:"differs,omitempty"`
}

// Progress is what a shard's owner publishes about once a second while it changes.
type Progress struct {
	Shard  int     `json:"shard"`
	Owner  string  `json:"owner"`
	State  string  `json:"state"` // copying, comparing, rescan, following, ready, draining, drained, switched, stopped
	Copied int64   `json:"copied"`
	Total  int64   `json:"total"`
	Rate   float64 `json:"rate"` // records a second, recent
	// LagMillis is the age of the newest change when it was applied; 0 when caught up, nil
	// while it is not known: the shard has not followed yet, or has heard nothing for a
	// while.
	LagMillis *int64 `json:"lagMillis,omitempty"`
	Applied   int64  `json:"applied"`
	Parked    int64  `json:"parked"` // not waived
	Retries   int64  `json:"retries"`
	Verified  int64  `json:"verified"`
	// Mismatched is how many groups differ now, and have differed for longer than a change
	// takes. It falls when they agree.
	Mismatched  int64  `json:"mismatched"`
	LateDeletes int64  `json:"lateDeletes,omitempty"` // passed a validator fence; never applied after the flip
	WaitsFor    string `json:"waitsFor,omitempty"`
	// Code is the kind of WaitsFor, and Version the one whose database it is about, if any. A
	// controller from before codes reports WaitsFor alone.
	Code    upgradestate.BlockCode `json:"code,omitempty"`
	Version string                 `json:"version,omitempty"`
	Pace    string                 `json:"pace,omitempty"` // why bulk work of the owner is held back now
	// PaceCause is Pace in one word.
	PaceCause throttle.Cause `json:"paceCause,omitempty"`
	LastError string         `json:"lastError,omitempty"`
	// Epoch and Generation are those of the direction that the counts are of. A controller from
	// before them leaves both out.
	Epoch      uint64 `json:"epoch,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
}

// Agreed reports whether the shard has copied and compared everything, by its state.
func (p Progress) Agreed() bool { return slices.Contains(agreedStates, p.State) }

// ForSwitch is what a shard waits for in the steps of a switch before it has something to do.
const ForSwitch = "the switch"

// Deployments is what the engine needs of the Deployment. Apply makes one transition
// by compare-and-swap (reading and trying again on a conflict of the record itself);
// every condition must hold in the same transaction.
type Deployments interface {
	Get(ctx context.Context) (upgradestate.Deployment, error)
	Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error)
	// Watch delivers the newest record whenever it changed, beginning with the present
	// one; intermediate ones may be skipped. The channel is closed when ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
}

// Journal is where the engine keeps its plan, checkpoints, parked groups and progress.
// Conditions (the owner's lock) must hold in the same transaction.
type Journal interface {
	// CreatePlan stores the plan unless there is one, and returns the one that stands.
	CreatePlan(ctx context.Context, dir DirectionKey, p Plan) (Plan, error)
	LoadPlan(ctx context.Context, dir DirectionKey) (p Plan, found bool, err error)
	LoadCheckpoint(ctx context.Context, dir DirectionKey, shard int) (c Checkpoint, found bool, err error)
	SaveCheckpoints(ctx context.Context, dir DirectionKey, cs map[int]Checkpoint, conditions ...coord.Condition) error
	Park(ctx context.Context, p Parked, conditions ...coord.Condition) error
	// Park keeps the entry of the later version when there is one. Unpark removes an entry
	// unless it is of a later version than p.
	Unpark(ctx context.Context, p Parked) error
	Parked(ctx context.Context, dir DirectionKey, shard int) ([]Parked, error) // shard -1: all
	PublishProgress(ctx context.Context, owner string, ps []Progress, lease coord.LeaseID) error
}

// Ownership is who works on which shard; shards.Pool is it.
type Ownership interface {
	// Owned returns the shards owned now. A lock that is lost or retaken fails its
	// Condition, so what is committed under it is safe without asking again.
	Owned() map[int]shards.Lock
	// Leaving lists owned shards that are to be given up: stop, checkpoint, Release.
	Leaving() []int
	Release(ctx context.Context, shard int) error
	// Changes is signalled (conflated) whenever Owned or Leaving may have changed.
	Changes() <-chan struct{}
}

// Comparer finds which of the groups differ between source and target: putting the
// source's group into what the target holds would change something. A group that cannot
// be transformed differs: it is applied again, and parked.
type Comparer interface {
	// Groups compares groups as read now.
	Groups(ctx context.Context, src, dst transform.View, ids []transform.GroupID) (differ []transform.Difference, err error)
	// SourcePage compares the groups of the next page of a range of a source kind, and of a
	// kind with a twin finds what the target alone holds there.
	SourcePage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error)
	// TargetPage finds, on a page of a range of a target kind, groups that the source does
	// not have. The others are SourcePage's, and whatever is in a twin.
	TargetPage(ctx context.Context, src, dst transform.View, kind string, r record.Range, limit int) (transform.Comparison, error)
}
