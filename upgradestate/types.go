package upgradestate

import "encoding/json"

// Format is the version of the persisted record. A binary refuses a newer one.
const Format = 1

// Phase is the published state of an upgrade. A deployment without an upgrade has no phase.
type Phase string

const (
	// InitialSyncing means that controllers copy and follow the source, and clients write to it.
	InitialSyncing Phase = "INITIAL_SYNCING"
	// Switching means that clients may write to no namespace.
	Switching Phase = "SWITCHING"
)

// Step is the stage within SWITCHING. One compare-and-swap enters a step and announces all its
// operations.
type Step string

const (
	StepNone Step = ""
	// StepHold: servers hold writes and acknowledge. No operation has been sent to a database yet.
	StepHold Step = "HOLD"
	// StepFence: a fence is announced (Kind.Pending) for every source kind.
	StepFence Step = "FENCE"
	// StepDrain: all source fences are confirmed. Shards apply changes up to them and report.
	StepDrain Step = "DRAIN"
	// StepSealTarget: a rename is announced for every target kind.
	StepSealTarget Step = "SEAL_TARGET"
	// StepSealSource: the target renames are confirmed. The last source renames are announced.
	// Their names are never published as tokens. Reads of the old namespace wait.
	StepSealSource Step = "SEAL_SOURCE"
	// StepAbort: the operations announced on the source are completed, prevented or removed.
	StepAbort Step = "ABORT"
)

// Deployment is the single record on which all decisions are made. Revision is the revision in the
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
	Following      []Following `json:"following,omitempty"` // updates that began by themselves, the latest last
	Retire         *Retire     `json:"retire,omitempty"`
	Retired        []string    `json:"retired,omitempty"`        // versions that no switch leads back to
	Kept           []Kept      `json:"kept,omitempty"`           // retired namespaces that are not dropped yet
	History        []Entry     `json:"history,omitempty"`        // oldest first, at most maxHistory
	HistoryDropped int         `json:"historyDropped,omitempty"` // older entries that were removed from History
	Breaches       []Breach    `json:"breaches,omitempty"`       // broken fences, at most maxBreaches
	Restored       []Restored  `json:"restored,omitempty"`       // of the current version, at most one
	Different      *Different  `json:"different,omitempty"`      // findings of a comparison, see OpenDifferent
	Anew           *Anew       `json:"anew,omitempty"`           // copy after replacements, see OpenAnew
	LastUpgradeID  string      `json:"lastUpgradeId,omitempty"`  // of the latest Begin; must not be used again
	Revision       int64       `json:"-"`
}

// Namespace is the database of one version.
type Namespace struct {
	Version  string `json:"version"`
	Location string `json:"location"` // backend and database, without secrets
	// Hosts are the addresses of the database, without secrets. They are for people only, since one
	// database has several names.
	Hosts string `json:"hosts,omitempty"`
	// Identity is recorded once: with the first collections, or later if an older binary wrote the
	// record.
	Identity Identity `json:"identity,omitzero"`
	Kinds    []Kind   `json:"kinds"`
	// Images describes how the records are made while the namespace is a target.
	Images Images `json:"images,omitzero"`
	// DeclinedKey is the encryption key that an operator declined for the records, or under which
	// some records could not be written. Only an operator starts an update to this key again.
	DeclinedKey string `json:"declinedKey,omitempty"`
	// Answered is the latest finding of a restored database that a new epoch or generation answers
	// (FoundRestored, Rebuild). Several controllers may report one finding.
	Answered string `json:"answered,omitempty"`
	// Served says that a switch has led to the version or away from it, so its records are not only
	// copies.
	Served bool `json:"served,omitempty"`
}

// Identity identifies the database of a namespace (record.Identity). An empty field is unknown and
// is not compared.
type Identity struct {
	Cluster  string `json:"cluster,omitempty"`
	Database string `json:"database,omitempty"`
}

// Differs reports whether the two are certainly different databases.
func (i Identity) Differs(other Identity) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(i.Cluster, other.Cluster) || differ(i.Database, other.Database)
}

// fill sets unknown fields from another identity.
func (i *Identity) fill(from Identity) {
	if i.Database == "" {
		i.Database = from.Database
	}
	if i.Cluster == "" {
		i.Cluster = from.Cluster
	}
}

// Kind is the physical place of a kind. Physical and ID are the last confirmed name and identity.
// NextSeq numbers names and marks ("<kind>.n<seq>"), which are never reused. Pending is an
// announced operation that is not confirmed yet. A pending operation of a target survives an abort.
// An opening of the new namespace survives the flip.
type Kind struct {
	Kind     string `json:"kind"`
	Fixed    bool   `json:"fixed,omitempty"`
	Physical string `json:"physical"`
	ID       string `json:"id,omitempty"`
	NextSeq  uint64 `json:"nextSeq"`
	Fence    string `json:"fence"`             // class: uuid, view, role, writeBlock, validator
	Restore  string `json:"restore,omitempty"` // data for lifting the fence
	Fenced   string `json:"fenced,omitempty"`  // name or mark of the confirmed fence in force, see StepDrain
	Hidden   bool   `json:"hidden,omitempty"`  // a fixed-name kind under another name than its own
	Sealed   bool   `json:"sealed,omitempty"`  // the last rename is confirmed; Physical is no token for clients
	// Expiry has, by name, the seconds after which each TTL index of the kind must delete. They
	// apply while its version is current and no switch is near. At other times the indexes must
	// delete nothing.
	Expiry map[string]int64 `json:"expiry,omitempty"`
	// Carried has the names of the indexes that controllers built on the kind because its source
	// has them. When the source drops one, they drop it, too. They leave other indexes alone.
	Carried []string `json:"carried,omitempty"`
	Pending *Pending `json:"pending,omitempty"`
	// Replaced is the number of times that an application replaced the collection (Replace).
	Replaced uint64 `json:"replaced,omitempty"`
}

// PendingReason is the reason for an announced operation.
type PendingReason string

const (
	PendingFence PendingReason = "fence" // of a source kind, StepFence
	// PendingSeal is for a target kind: in StepSealTarget, or when another transformation starts to
	// write there (Images). It moves the kind to a name that no client knows.
	PendingSeal PendingReason = "seal"
	PendingLast PendingReason = "last" // of a source kind, StepSealSource; never a token
	// PendingOpen is for a kind that clients write under its own name (every class but uuid). It
	// applies when the namespace is current after a flip or an abort. It ends the fence and gives a
	// hidden kind its own name. No target has an application's name before the flip. So an abort
	// never discards an application's write, and no writes are possible in both namespaces at once.
	PendingOpen PendingReason = "open"
)

// Pending is an announced rename, or a mark for classes that do not rename. From is the present
// name. For PendingOpen of a kind that kept its name, From is the mark that ends.
type Pending struct {
	Reason PendingReason `json:"reason"`
	From   string        `json:"from"`
	To     string        `json:"to"`
}

// Available is an upgrade that controllers have found possible: both sides have their collections.
// Followed decides which of them controllers write to.
type Available struct {
	TargetVersion string `json:"targetVersion"`
	TransformHash string `json:"transformHash"`
	// Precopied means that controllers copy to the version before an upgrade is requested. At most
	// one available upgrade is Precopied.
	Precopied bool `json:"ahead,omitempty"`
}

// Upgrade is a running upgrade. ID is unique to the request. ReadyShards are the shards with a
// valid report for this ID, State and Attempt. The other shards are pending.
type Upgrade struct {
	ID            string `json:"id"`
	TargetVersion string `json:"targetVersion"`
	TransformHash string `json:"transformHash"`
	State         Phase  `json:"state"`
	Step          Step   `json:"step,omitempty"`
	// Attempt counts entries into SWITCHING and returns from it, so that a report for an earlier
	// attempt does not count. It starts at 1 in INITIAL_SYNCING.
	Attempt     uint64 `json:"attempt"`
	ReadyShards []int  `json:"readyShards"`
	AbortReason string `json:"abortReason,omitempty"` // in StepAbort
	// Again means that the abort in progress ends only this attempt.
	Again bool `json:"again,omitempty"`
	// Failures is the number of failed attempts at the switch. LastFailure is the reason for the
	// latest.
	Failures    int    `json:"failures,omitempty"`
	LastFailure string `json:"lastFailure,omitempty"`
	Policy      Policy `json:"policy,omitzero"`
	SwitchAsked bool   `json:"switchAsked,omitempty"` // set by AskSwitch
	// TargetSince is, in SWITCHING, a position in the changes of the target's database from before
	// the switch. Foreign changes since then are looked for before the flip. It is opaque here.
	// Empty means unknown, as in an attempt started by an earlier binary.
	TargetSince string `json:"targetSince,omitempty"`
	// Snapshot marks a rollback to the old data as they are. Controllers sync nothing, and all
	// writes since the latest switch are given up.
	Snapshot bool `json:"snapshot,omitempty"`
}

// Switch is the record of the latest flip. Durations are milliseconds as the driver measured them,
// 0 for a step that another driver started. Wall times are for people only.
type Switch struct {
	ID     string           `json:"id"`
	From   string           `json:"from"`
	To     string           `json:"to"`
	Millis map[string]int64 `json:"millis,omitempty"` // by lower-case step: hold, fence, drain, seal, flip
	At     string           `json:"at,omitempty"`     // RFC 3339
	// Back means that the switch returned to the origin of the switch before it. The next switch is
	// then no rollback, so that going back twice does not go forward.
	Back bool `json:"back,omitempty"`
	// Position is a position in the changes of To's database between its seal and the flip. The
	// reverse sync starts there. It is opaque here, and empty if it could not be read.
	Position string `json:"position,omitempty"`
	// TransformHash is the hash of the upgrade's transformation. Before is the hash of the previous
	// switch if that went from To to From: it made the records of From. Empty means that there was
	// no such switch.
	TransformHash string `json:"transformHash,omitempty"`
	Before        string `json:"before,omitempty"`
	// Generation and BeforeGeneration are Images.Generation in the directions of the two switches.
	Generation       uint64 `json:"generation,omitempty"`
	BeforeGeneration uint64 `json:"beforeGeneration,omitempty"`
	// Epoch and BeforeEpoch are the direction epochs that the two switches ended. The entries that
	// were waived at a switch are stored under its epoch. 0 means unknown, or no such switch.
	Epoch       uint64 `json:"epoch,omitempty"`
	BeforeEpoch uint64 `json:"beforeEpoch,omitempty"`
	// Snapshot means that the switch gave up all writes since the switch before it. The two
	// namespaces are not in sync, and the old one stays as it is until an upgrade to it begins.
	Snapshot bool `json:"snapshot,omitempty"`
	// Outdated means that an epoch without a switch began since, as after Adopt. The old namespace
	// stays as it is until an upgrade to it begins, which compares everything. Unlike after a
	// Snapshot, the records that were waived at the switch are still kept.
	Outdated bool `json:"outdated,omitempty"`
}

// Synced reports whether the switch left the two namespaces in sync, except for waived records, and
// no epoch without a switch began since.
func (s Switch) Synced() bool { return !s.Snapshot && !s.Outdated }

// ServerState is the state that a server process, or an application of fixed-name kinds, publishes
// about itself under its lease. An acknowledgement {AckID, AckAttempt} means that the server holds
// writes for that attempt and has finished those in flight.
type ServerState struct {
	ID         string   `json:"id"`
	Protocol   int      `json:"protocol"` // see MinProtocol
	Versions   []string `json:"versions,omitempty"`
	Active     string   `json:"active,omitempty"` // version served now
	Client     bool     `json:"client,omitempty"` // an application of fixed-name kinds
	AckID      string   `json:"ackId,omitempty"`
	AckAttempt uint64   `json:"ackAttempt,omitempty"`
	Held       int      `json:"held,omitempty"`
	// RestartMillis is the duration of the latest swap of stacks in milliseconds, from seeing the
	// flip to releasing held writes.
	RestartMillis int64 `json:"restartMillis,omitempty"`
	// Since is the start of the counts in Used; RFC 3339.
	Since string `json:"since,omitempty"`
	// Used counts calls by API version.
	Used map[string]Usage `json:"used,omitempty"`
	// Warnings describe insecure settings of the process, for people.
	Warnings []string `json:"warnings,omitempty"`
	// Keys has, by namespace version, the encryption keys of the process as name:check, see
	// sealed.Keys.
	Keys map[string][]string `json:"keys,omitempty"`
	// Prepares has, by namespace version, what the process still prepares before it can serve that
	// version well, such as "search index". A switch to the version waits for it.
	Prepares map[string]string `json:"prepares,omitempty"`
	// Copies is what the process knows about its copies of other regions' records.
	Copies []Copies `json:"copies,omitempty"`
	// Moves are the moves of records between regions that the process drives and that have not ended.
	Moves []Moves `json:"moves,omitempty"`
}

// Copies is the state of the read-only copies of another region's records of one kind, in the
// namespace of one version. The server that makes them reports it.
type Copies struct {
	Version string `json:"version"` // of the namespace that holds them
	Kind    string `json:"kind"`
	Region  string `json:"region"`
	// Whole is set once the copies were complete. Without it, records are missing.
	Whole bool `json:"whole,omitempty"`
	// Away is the time since when the copies may be outdated, RFC 3339. Empty: they follow the owner.
	Away string `json:"away,omitempty"`
	// Problem is the reason why they do not follow, and the number of records that cannot be copied,
	// for people.
	Problem string `json:"problem,omitempty"`
	// Both counts the names that this region owns as well, up to a limit. Only records that were
	// created in both regions under one name, or a move that is under way, can have such names.
	Both int `json:"both,omitempty"`
}

// Moves are the moves of records of one kind to or from one region that have not ended.
type Moves struct {
	Kind   string `json:"kind"`
	Region string `json:"region"`       // the other one
	In     bool   `json:"in,omitempty"` // from there to here
	Count  int    `json:"count"`
	Since  string `json:"since"`  // begin of the oldest one, RFC 3339
	Record string `json:"record"` // name of the oldest one
	Waits  string `json:"waits"`  // what that one waits for, for people
}

// Usage counts the calls of an API version at one server.
type Usage struct {
	Calls int64  `json:"calls"`
	Last  string `json:"last,omitempty"` // RFC 3339, to the minute or finer
}

// MinProtocol is the lowest ServerState.Protocol with which an upgrade can begin.
const MinProtocol = 1

// MarshalJSON adds upgradeState.pendingShards for readers without this package. It follows from the
// ring size and the ready shards. Decoding ignores it.
func (d Deployment) MarshalJSON() ([]byte, error) {
	// Without the method set, or Marshal would call this method again.
	type plain Deployment
	type upgrade struct {
		*Upgrade
		PendingShards []int `json:"pendingShards"`
	}
	out := struct {
		plain
		Upgrade *upgrade `json:"upgradeState,omitempty"`
	}{plain: plain(d)}
	if d.Upgrade != nil {
		out.Upgrade = &upgrade{Upgrade: d.Upgrade, PendingShards: PendingShards(d)}
	}
	return json.Marshal(out)
}
