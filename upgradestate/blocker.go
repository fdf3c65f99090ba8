package upgradestate

import "errors"

// BlockCode is the kind of a reason that keeps a switch from beginning. Programs and alerts
// compare it, so a code never changes its meaning.
type BlockCode string

// The codes of all reasons. A new reason gets a code here and a row in BlockCodes.
const (
	BlockDifferent  BlockCode = "different"         // a comparison found differences
	BlockPaused     BlockCode = "paused"            // an operator paused the deployment
	BlockHeld       BlockCode = "held"              // the upgrade holds at ready
	BlockUpdate     BlockCode = "data_update"       // a data update runs
	BlockRestored   BlockCode = "restored"          // a database was restored
	BlockPending    BlockCode = "pending_operation" // an announced rename is not confirmed
	BlockWatched    BlockCode = "watched"           // a controller found a reason outside of the record
	BlockShards     BlockCode = "shards"            // not all shards are ready
	BlockParked     BlockCode = "parked"            // parked groups are not waived
	BlockUncounted  BlockCode = "parked_unknown"    // parked groups cannot be counted
	BlockWindow     BlockCode = "window"            // no switch may begin at this time
	BlockPause      BlockCode = "pause_too_long"    // the predicted pause is over the limit, or unknown
	BlockRetry      BlockCode = "retry"             // an attempt failed, and the next one waits
	BlockHindrance  BlockCode = "hindrance"         // something in a database would hold up the fence
	BlockUnanswered BlockCode = "database_unknown"  // a database does not answer
	BlockServers    BlockCode = "servers"           // servers or applications cannot follow
	BlockIndexes    BlockCode = "indexes"           // indexes or options of the target differ
	BlockNames      BlockCode = "names"             // names of the target's collections are taken
	BlockProof      BlockCode = "rollback_unproved" // the rollback is not proved
	BlockIdentity   BlockCode = "database_identity" // a database is older than known, or another one
	BlockPrepare    BlockCode = "prepare"           // the target cannot be prepared, such as TTL indexes stopped
	BlockFence      BlockCode = "fence_preparation" // the source's fences cannot be prepared
	BlockPosition   BlockCode = "position"          // the target gives no place in its changes
	BlockStep       BlockCode = "step"              // a step of the switch fails and is retried
)

// BlockCodes are all codes, each with the verb or act that resolves it.
var BlockCodes = map[BlockCode]string{
	BlockDifferent:  "verify --repair",
	BlockPaused:     "resume",
	BlockHeld:       "switch",
	BlockUpdate:     "update cancel, or wait for its end",
	BlockRestored:   "restored",
	BlockPending:    "wait for a controller",
	BlockWatched:    "see the text",
	BlockShards:     "wait; 'get' names each shard's reason",
	BlockParked:     "parked",
	BlockUncounted:  "look at etcd",
	BlockWindow:     "pace --window, or wait",
	BlockPause:      "set-policy --max-pause, or wait",
	BlockRetry:      "wait, or abort",
	BlockHindrance:  "see the text",
	BlockUnanswered: "look at the database",
	BlockServers:    "update or stop the servers",
	BlockIndexes:    "correct the indexes, or wait for their build",
	BlockNames:      "rename the collections in the way",
	BlockProof:      "wait for the proof, or correct what it names",
	BlockIdentity:   "restored, or recover",
	BlockPrepare:    "look at the database of the target",
	BlockFence:      "look at the database of the source",
	BlockPosition:   "look at the database of the target",
	BlockStep:       "wait, or abort",
}

// Blocker is one reason that keeps a switch from beginning.
type Blocker struct {
	Code BlockCode `json:"code"`
	Text string    `json:"text"` // for people, with the place and what to do
}

// Resolve returns the verb or act that resolves the reason.
func (b Blocker) Resolve() string { return BlockCodes[b.Code] }

// blocked is an error that carries the code of a reason.
type blocked struct {
	code BlockCode
	error
}

func (b blocked) Unwrap() error { return b.error }

// Blocked gives the code of a reason to an error; nil stays nil.
func Blocked(code BlockCode, err error) error {
	if err == nil {
		return nil
	}
	return blocked{code, err}
}

// BlockerOf makes a reason of an error, with the code that Blocked gave it, or else with code.
func BlockerOf(code BlockCode, err error) Blocker {
	var b blocked
	if errors.As(err, &b) {
		code = b.code
	}
	return Blocker{Code: code, Text: err.Error()}
}
