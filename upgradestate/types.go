package upgradestate

// Format is the version of the persisted record. A binary refuses a newer one.
const Format = 1

// Phase is the published state of an upgrade. No upgrade is the steady state.
type Phase string

const (
	// InitialSyncing: shards copy and follow; clients write to the old namespace.
	InitialSyncing Phase = "INITIAL_SYNCING"
	// Switching: no namespace can be written.
	Switching Phase = "SWITCHING"
)

// Step is the place within SWITCHING. Each step is entered by one compare-and-swap
// that announces everything the step is going to do.
type Step string

const (
	StepNone Step = ""
	// StepHold: servers hold writes and acknowledge. Nothing physical happened yet.
	StepHold Step = "HOLD"
	// StepFence: a fence is announced (Kind.Pending) for every source kind.
	StepFence Step = "FENCE"
	// StepDrain: all source fences are confirmed; shards drain to them and report.
	StepDrain Step = "DRAIN"
	// StepSealTarget: a rename is announced for every target kind.
	StepSealTarget Step = "SEAL_TARGET"
	// StepSealSource: target renames are confirmed; the last source renames, whose names
	// are never published as tokens, are announced. Reads of the old namespace wait.
	StepSealSource Step = "SEAL_SOURCE"
	// StepAbort: an abort completes, prevents or removes what was announced on the source.
	StepAbort Step = "ABORT"
)

// Deployment is the one record that everything is decided on. Revision is that of the
// coordination store and not part of the stored value.
type Deployment struct {
	Format         int         `json:"format"`
	Name           string      `json:"name"`
	CurrentVersion string      `json:"currentVersion"`
	Epoch          uint64      `json:"epoch"` // direction epoch: 1 at creation, +1 at each flip
	RingSize       int         `json:"ringSize"`
	Namespaces     []Namespace `json:"namespaces"`
	Available      []Available `json:"availableUpgrades,omitempty"`
	Upgrade        *Upgrade    `json:"upgradeState,omitempty"`
	LastSwitch     *Switch     `json:"lastSwitch,omitempty"`
	Pace           Pace        `json:"pace,omitzero"`
	Update         *Update     `json:"update,omitempty"`
	Retire         *Retire     `json:"retire,omitempty"`
	Retired        []string    `json:"retired,omitempty"`        // versions that nothing leads back to
	Kept           []Kept      `json:"kept,omitempty"`           // of these, what is not dropped yet
	History        []Entry     `json:"history,omitempty"`        // oldest first, at most maxHistory
	HistoryDropped int         `json:"historyDropped,omitempty"` // entries that History no longer had room for
	Breaches       []Breach    `json:"breaches,omitempty"`       // of fences, at most maxBreaches
	Restored       []Restored  `json:"restored,omitempty"`       // of the version that is served, one at most
	Different      *Different  `json:"different,omitempty"`      // what a comparison found, see OpenDifferent
	Anew           *Anew       `json:"anew,omitempty"`           // what is copied again after replacements, see OpenAnew
	LastUpgradeID  string      `json:"lastUpgradeId,omitempty"`  // of the latest Begin; not to be used again
	Revision       int64       `json:"-"`
}

// Namespace is one version's database.
type Namespace struct {
	Version  string `json:"version"`
	Location string `json:"location"` // backend and database, without secrets
	// Hosts are where the database is reached, without secrets, for people alone: one
	// database has several names.
	Hosts string `json:"hosts,omitempty"`
	// Identity is noted once, with the first collections, or where a record of an older
	// binary has none.
	Identity Identity `json:"identity,omitzero"`
	Kinds    []Kind   `json:"kinds"`
	// Images says how the records are made while the namespace is a target.
	Images Images `json:"images,omitzero"`
	// DeclinedKey is the key that a person did not want the records brought under, or under which
	// some could not be brought: only a person begins that again.
	DeclinedKey string `json:"declinedKey,omitempty"`
}

// Identity says which database a namespace is in (record.Identity). What is empty is not
// known, and not compared.
type Identity struct {
	Cluster  string `json:"cluster,omitempty"`
	Database string `json:"database,omitempty"`
}

// Differs reports whether the two are surely not one database.
func (i Identity) Differs(other Identity) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(i.Cluster, other.Cluster) || differ(i.Database, other.Database)
}

// fill takes what is not known yet from another.
func (i *Identity) fill(from Identity) {
	if i.Database == "" {
		i.Database = from.Database
	}
	if i.Cluster == "" {
		i.Cluster = from.Cluster
	}
}

// Kind is a kind's physical place. Physical and ID are those last confirmed. NextSeq
// numbers names and marks ("<kind>.n<seq>"), which are never used twice. Pending is an
// announced operation that is not yet confirmed; one of the target survives an abort, one that
// opens the new namespace survives the flip, until somebody confirms it.
type Kind struct {
	Kind     string `json:"kind"`
	Fixed    bool   `json:"fixed,omitempty"`
	Physical string `json:"physical"`
	ID       string `json:"id,omitempty"`
	NextSeq  uint64 `json:"nextSeq"`
	Fence    string `json:"fence"`             // class: uuid, view, writeBlock, validator
	Restore  string `json:"restore,omitempty"` // what lifting the fence needs
	Fenced   string `json:"fenced,omitempty"`  // name or mark of the confirmed fence in force, see StepDrain
	Hidden   bool   `json:"hidden,omitempty"`  // a fixed-name kind that does not bear its own name now
	Sealed   bool   `json:"sealed,omitempty"`  // the last rename is confirmed: Physical is no token for clients
	// Expiry is, by name, the seconds after which each TTL index of the kind must delete
	// while its version is the current one and no switch is near. Otherwise the index is kept
	// from deleting anything.
	Expiry map[string]int64 `json:"expiry,omitempty"`
	// Carried are the names of the indexes that controllers have given the kind from its source.
	// When the source drops one, they drop it too. Indexes of others stay.
	Carried []string `json:"carried,omitempty"`
	Pending *Pending `json:"pending,omitempty"`
	// Replaced counts how often an application replaced the collection (Replace).
	Replaced uint64 `json:"replaced,omitempty"`
}

// PendingReason says why an operation was announced.
type PendingReason string

const (
	PendingFence PendingReason = "fence" // of a source kind, StepFence
	// PendingSeal: of a target kind, in StepSealTarget, or when another transformation begins
	// to write there (Images); to a name that no client knows.
	PendingSeal PendingReason = "seal"
	PendingLast PendingReason = "last" // of a source kind, StepSealSource; never a token
	// PendingOpen: of a kind that clients write under its own name (every class but
	// uuid), when its namespace is the current one after a flip or an abort. It ends the
	// fence and gives a hidden kind its own name. No target ever bears an application's
	// name before the flip, so nothing that an abort throws away can have been written
	// there, and no writes are possible in both namespaces at once.
	PendingOpen PendingReason = "open"
)

// Pending is an announced rename (or mark, for classes that do not rename). From is the
// present name; for PendingOpen of a kind that kept its name it is the mark that ends.
type Pending struct {
	Reason PendingReason `json:"reason"`
	From   string        `json:"from"`
	To     string        `json:"to"`
}

// Available is an upgrade that controllers have found to be possible: both sides have their
// collections. Which of them they write to is a matter of Followed.
type Available struct {
	TargetVersion string `json:"targetVersion"`
	TransformHash string `json:"transformHash"`
	// Precopied: it is copied to before anybody asks for the upgrade. One at most has it.
	Precopied bool `json:"ahead,omitempty"`
}

// Upgrade is an upgrade that runs. ID is unique to the attempt. ReadyShards are the
// shards whose report counts for this ID, Phase and Attempt; all others are pending.
type Upgrade struct {
	ID            string `json:"id"`
	TargetVersion string `json:"targetVersion"`
	TransformHash string `json:"transformHash"`
	State         Phase  `json:"state"`
	Step          Step   `json:"step,omitempty"`
	// Attempt counts entries into SWITCHING and every return from it, so that a report
	// for an earlier attempt cannot count. It starts at 1 in INITIAL_SYNCING.
	Attempt     uint64 `json:"attempt"`
	ReadyShards []int  `json:"readyShards"`
	AbortReason string `json:"abortReason,omitempty"` // in StepAbort
	// Again: the abort that is being completed ends this attempt only.
	Again bool `json:"again,omitempty"`
	// Failures counts the attempts at the switch that were given up, LastFailure is why the
	// latest was.
	Failures    int    `json:"failures,omitempty"`
	LastFailure string `json:"lastFailure,omitempty"`
	Policy      Policy `json:"policy,omitzero"`
	SwitchAsked bool   `json:"switchAsked,omitempty"` // by AskSwitch
	// TargetSince is, in SWITCHING, a place in the changes of the target's database from before it:
	// what others changed there since is looked for before the flip. Opaque here; empty: it is not
	// known, as in an attempt that an earlier binary began.
	TargetSince string `json:"targetSince,omitempty"`
	// Snapshot: a rollback to the old data as they are. Nothing is synced; what was written
	// since the latest switch is left behind.
	Snapshot bool `json:"snapshot,omitempty"`
}

// Switch is the record of the latest flip. Durations are milliseconds as the driver
// measured them (0 for a step that another driver had begun); Revision order is in the
// coordination store, wall times are for people.
type Switch struct {
	ID     string           `json:"id"`
	From   string           `json:"from"`
	To     string           `json:"to"`
	Millis map[string]int64 `json:"millis,omitempty"` // by lower-case step: hold, fence, drain, seal, flip
	At     string           `json:"at,omitempty"`     // RFC 3339
	// Back: it went back to where the switch before it came from. The one after it is no
	// rollback, so that going back twice does not go forward.
	Back bool `json:"back,omitempty"`
	// Position is a place in the changes of To's database from between its seal and the
	// flip: the reverse sync starts there. Opaque here; empty if it was not to be had.
	Position string `json:"position,omitempty"`
	// TransformHash is that of the upgrade. Before is that of the switch before this one,
	// if it went from To to From: by it the records of From were made. Empty: of none.
	TransformHash string `json:"transformHash,omitempty"`
	Before        string `json:"before,omitempty"`
	// Generation and BeforeGeneration are those of Images, in the directions of the two.
	Generation       uint64 `json:"generation,omitempty"`
	BeforeGeneration uint64 `json:"beforeGeneration,omitempty"`
	// Snapshot: it went back without what was written since the switch before it. The two
	// namespaces are not in sync, and the one that was left stays as it is until somebody
	// begins an upgrade to it.
	Snapshot bool `json:"snapshot,omitempty"`
}

// ServerState is what a server process (or an application of fixed-name kinds) says of
// itself, under its lease. An acknowledgement {AckID, AckAttempt} says: for that attempt
// I hold writes and those in flight are finished.
type ServerState struct {
	ID         string   `json:"id"`
	Protocol   int      `json:"protocol"` // see MinProtocol
	Versions   []string `json:"versions,omitempty"`
	Active     string   `json:"active,omitempty"` // version served now
	Client     bool     `json:"client,omitempty"` // an application of fixed-name kinds
	AckID      string   `json:"ackId,omitempty"`
	AckAttempt uint64   `json:"ackAttempt,omitempty"`
	Held       int      `json:"held,omitempty"`
	// RestartMillis is how long the latest swap of stacks took, from seeing the flip to
	// letting held writes go.
	RestartMillis int64 `json:"restartMillis,omitempty"`
	// Since is when the process began to count what Used holds; RFC 3339.
	Since string `json:"since,omitempty"`
	// Used is, by API version, how much its API was called.
	Used map[string]Usage `json:"used,omitempty"`
	// Warnings are what is insecure about the process, for people.
	Warnings []string `json:"warnings,omitempty"`
	// Keys are, by namespace version, the keys that the process has: name:check, see sealed.Keys.
	Keys map[string][]string `json:"keys,omitempty"`
}

// Usage is how much an API version was called at one server.
type Usage struct {
	Calls int64  `json:"calls"`
	Last  string `json:"last,omitempty"` // RFC 3339, to the minute or finer
}

// MinProtocol is the least ServerState.Protocol that an upgrade can begin with.
const MinProtocol = 1
