package upgradestate

import (
	"errors"
	"slices"
)

// BlockCode classifies a reason that prevents a switch from starting or continuing. Programs and
// alerts compare codes, so a code never changes its meaning.
type BlockCode string

// The codes of all reasons. A new reason needs a code here and an entry in BlockCodes.
const (
	// From the record.
	BlockDifferent BlockCode = "different"         // a comparison found differences
	BlockPaused    BlockCode = "paused"            // an operator paused the deployment
	BlockHeld      BlockCode = "held"              // the upgrade holds at ready
	BlockUpdate    BlockCode = "data_update"       // a data update runs
	BlockRestored  BlockCode = "restored"          // a database was restored
	BlockPending   BlockCode = "pending_operation" // an announced rename is not confirmed

	// From the driver.
	BlockUndriven   BlockCode = "driver"            // no controller has looked at the switch yet
	BlockParked     BlockCode = "parked"            // parked groups are not waived
	BlockUncounted  BlockCode = "parked_unknown"    // parked groups cannot be counted
	BlockWindow     BlockCode = "window"            // no switch, or no bulk work, at this time of day
	BlockPause      BlockCode = "pause_too_long"    // the predicted pause is over the limit, or unknown
	BlockRetry      BlockCode = "retry"             // an attempt failed, and the next one waits
	BlockHindrance  BlockCode = "hindrance"         // something in a database would hold up the fence
	BlockUnanswered BlockCode = "database_unknown"  // a database does not answer
	BlockServers    BlockCode = "servers"           // servers or applications cannot follow
	BlockPreparing  BlockCode = "preparing"         // servers prepare to serve the target, such as search indexes
	BlockHolding    BlockCode = "holding"           // servers or applications do not hold their writes yet
	BlockIndexes    BlockCode = "indexes"           // indexes or options of the target differ
	BlockNames      BlockCode = "names"             // names of the target's collections are taken
	BlockProof      BlockCode = "rollback_unproved" // the rollback is not proved
	BlockIdentity   BlockCode = "database_identity" // a database is older than known, or another one
	BlockPrepare    BlockCode = "prepare"           // the target cannot be prepared, such as TTL indexes stopped
	BlockFence      BlockCode = "fence_preparation" // the source's fences cannot be prepared
	BlockPosition   BlockCode = "position"          // the target gives no place in its changes
	BlockStep       BlockCode = "step"              // a step of the switch fails and is retried

	// From controllers.
	BlockController BlockCode = "controller"     // a controller cannot work yet, for example without a database
	BlockUnowned    BlockCode = "no_controller"  // no controller owns the shard
	BlockReplaced   BlockCode = "replaced"       // an application's collection was replaced and is not followed
	BlockTransform  BlockCode = "transform"      // the owner has another transform than the upgrade
	BlockReport     BlockCode = "report"         // the owner is done and has not reported yet
	BlockUncoded    BlockCode = "older_reporter" // an older controller gives the reason only as text

	// From shards.
	BlockShards      BlockCode = "shards"            // not all shards are ready
	BlockCopy        BlockCode = "copying"           // ranges are still to be copied
	BlockThrottled   BlockCode = "throttled"         // bulk work stands still
	BlockRescan      BlockCode = "rescan"            // everything is compared after a lost history or a repair
	BlockFailing     BlockCode = "failing"           // groups cannot be migrated, and are tried again
	BlockCompare     BlockCode = "comparing"         // ranges are still to be compared
	BlockFound       BlockCode = "correcting"        // the comparison found groups that are being corrected
	BlockTargetPlace BlockCode = "target_position"   // there is no place in the target's changes yet
	BlockForeign     BlockCode = "foreign_writes"    // others may have changed groups in the target
	BlockCheckpoint  BlockCode = "checkpoint"        // a checkpoint is not stored
	BlockLag         BlockCode = "lag"               // changes are not applied, or too slowly
	BlockStream      BlockCode = "stream"            // the source's changes do not arrive
	BlockTargetLook  BlockCode = "target_stream"     // the target's changes are not read
	BlockSettling    BlockCode = "settling"          // the shard must stay in sync for a while first
	BlockLate        BlockCode = "second_comparison" // groups that changed late are compared again
	BlockDrain       BlockCode = "draining"          // changes up to the fence are applied
)

// Resolution tells a reader of a code how to proceed.
type Resolution struct {
	// Act is the command, in quotes, or the action that resolves the reason.
	Act string
	// Work marks work in progress or an operator's own request. It ends by itself or at the
	// operator's wish, and needs no alert.
	Work bool
}

// BlockCodes has an entry for each code.
var BlockCodes = map[BlockCode]Resolution{
	BlockDifferent: {Act: "'verify --repair'"},
	BlockPaused:    {Act: "'resume'", Work: true},
	BlockHeld:      {Act: "'switch'", Work: true},
	BlockUpdate:    {Act: "wait until the update ends, or run 'update cancel'"},
	BlockRestored:  {Act: "'restored', or 'recover'"},
	BlockPending:   {Act: "wait for a controller that reaches the database"},

	BlockUndriven:   {Act: "start a controller, or find out why none reaches etcd"},
	BlockParked:     {Act: "run 'parked', then fix the records or run 'parked waive'"},
	BlockUncounted:  {Act: "check etcd"},
	BlockWindow:     {Act: "'pace --window', or wait", Work: true},
	BlockPause:      {Act: "'set-policy --max-pause', or wait"},
	BlockRetry:      {Act: "wait, or 'abort'"},
	BlockHindrance:  {Act: "remove the obstacle from the database, or wait until it ends"},
	BlockUnanswered: {Act: "check the database"},
	BlockServers:    {Act: "update or stop the servers"},
	BlockPreparing:  {Act: "wait, or check the servers", Work: true},
	BlockHolding:    {Act: "wait, or check the servers"},
	BlockIndexes:    {Act: "fix the indexes, or wait until they are built"},
	BlockNames:      {Act: "rename the collections in the way"},
	BlockProof:      {Act: "wait for the proof, or fix the problem that it names"},
	BlockIdentity:   {Act: "'restored', or 'recover'"},
	BlockPrepare:    {Act: "check the target's database"},
	BlockFence:      {Act: "check the source's database"},
	BlockPosition:   {Act: "check the target's database"},
	BlockStep:       {Act: "wait, or 'abort'"},

	BlockController: {Act: "check the database or etcd that the reason names"},
	BlockUnowned:    {Act: "start a controller, or find out why none reaches etcd"},
	BlockReplaced:   {Act: "give a collection the name, or wait until controllers follow it"},
	BlockTransform:  {Act: "give every controller the configuration of the upgrade, or 'abort'"},
	BlockReport:     {Act: "wait, or find out why the controller does not reach etcd"},
	BlockUncoded:    {Act: "update the controllers; the text of the reason has the details"},

	BlockShards:      {Act: "wait", Work: true},
	BlockCopy:        {Act: "wait, or 'pace'", Work: true},
	BlockThrottled:   {Act: "'pace', or wait for the databases"},
	BlockRescan:      {Act: "wait", Work: true},
	BlockFailing:     {Act: "see the last error in 'get'"},
	BlockCompare:     {Act: "wait", Work: true},
	BlockFound:       {Act: "wait: controllers correct the groups", Work: true},
	BlockTargetPlace: {Act: "wait, or check the target's database"},
	BlockForeign:     {Act: "wait: controllers compare the groups; if it does not end, stop the other writers of the target or take away their rights"},
	BlockCheckpoint:  {Act: "wait, or check etcd"},
	BlockLag:         {Act: "wait, or check the load of the databases"},
	BlockStream:      {Act: "see the last error in 'get', and check the source's database"},
	BlockTargetLook:  {Act: "see the last error in 'get', and check the target's database"},
	BlockSettling:    {Act: "wait", Work: true},
	BlockLate:        {Act: "wait", Work: true},
	BlockDrain:       {Act: "wait", Work: true},
}

// BlockPlace is the location of a reason. Zero fields do not apply.
type BlockPlace struct {
	Version    string `json:"version,omitempty"` // of the database
	Kind       string `json:"kind,omitempty"`
	Shards     []int  `json:"shards,omitempty"` // in order
	Controller string `json:"controller,omitempty"`
	Server     string `json:"server,omitempty"` // server or application
}

// Equal reports whether two places are equal.
func (p BlockPlace) Equal(q BlockPlace) bool {
	return p.Version == q.Version && p.Kind == q.Kind && p.Controller == q.Controller && p.Server == q.Server && slices.Equal(p.Shards, q.Shards)
}

// Blocker is one reason that prevents a switch. The zero value is no reason.
type Blocker struct {
	Code  BlockCode  `json:"code"`
	Text  string     `json:"text"` // for people
	Place BlockPlace `json:"place,omitzero"`
}

// Equal reports whether two reasons are equal.
func (b Blocker) Equal(c Blocker) bool {
	return b.Code == c.Code && b.Text == c.Text && b.Place.Equal(c.Place)
}

// Resolve returns the command or action that resolves the reason.
func (b Blocker) Resolve() string { return BlockCodes[b.Code].Act }

// blocked is an error with the code and place of a reason.
type blocked struct {
	code  BlockCode
	place BlockPlace
	error
}

func (b blocked) Unwrap() error { return b.error }

// Blocked adds the code and place of a reason to an error. A nil error stays nil.
func Blocked(code BlockCode, place BlockPlace, err error) error {
	if err == nil {
		return nil
	}
	return blocked{code, place, err}
}

// BlockerOf makes a reason from an error. It uses the code of the outermost Blocked in the chain,
// or code if there is none. It joins the places of the whole chain. An inner place wins over an
// outer one.
func BlockerOf(code BlockCode, err error) Blocker {
	b := Blocker{Code: code, Text: err.Error()}
	var found blocked
	for rest, first := err, true; errors.As(rest, &found); rest, first = found.error, false {
		if first {
			b.Code = found.code
		}
		b.Place = found.place.with(b.Place)
	}
	return b
}

// with returns the place with its empty fields set from q.
func (p BlockPlace) with(q BlockPlace) BlockPlace {
	for _, f := range []struct{ own, other *string }{{&p.Version, &q.Version}, {&p.Kind, &q.Kind}, {&p.Controller, &q.Controller}, {&p.Server, &q.Server}} {
		if *f.own == "" {
			*f.own = *f.other
		}
	}
	if len(p.Shards) == 0 {
		p.Shards = q.Shards
	}
	return p
}
