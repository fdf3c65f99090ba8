package record

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Token names a kind physically. Every data command carries it; after a fence the
// earlier ones are refused. Tokens are published in the Deployment.
type Token struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`         // physical collection name
	ID    string `json:"id,omitempty"` // collection UUID, 32 hexadecimal digits; survives renames
	Fixed bool   `json:"fixed,omitempty"`
}

// Tokens holds one token for each kind, by kind name.
type Tokens map[string]Token

// ReservedField is the top-level field of a managed kind's documents that backends may
// keep for themselves. Writes of managed documents that have it are refused with
// ErrReserved. In a fixed-name kind it belongs to the application, whatever it holds.
const ReservedField = "_dbc"

// CheckReserved refuses a document that has the field which a managed kind keeps.
// Backends call it.
func CheckReserved(tok Token, doc bson.Raw) error {
	if tok.Fixed || doc == nil {
		return nil
	}
	if _, err := doc.LookupErr(ReservedField); err != nil {
		return nil //nolint:nilerr // it is not there; whether the rest is valid is checked elsewhere
	}
	return ErrReserved
}

// Record is one record as read. Doc is the document without the guard, nil for a
// tombstone or an absent record; it is valid until the caller lets go of the batch
// and must not be modified.
type Record struct {
	Kind      string
	Key       Key
	Doc       bson.Raw
	Guard     Guard // zero where absent; set only by reads that ask for guards
	Tombstone bool  // only from reads that ask for guards
	// Err is why what is stored is none that a document can be made of: an application has
	// written it, or it is ErrUnreadable. Doc has the _id alone then. Nothing is made of such a
	// record: its group is parked. Clients get no such records, but the error.
	Err error
}

// Selector names records of one kind: the one with Key, or, with Prefix, all whose
// string name begins with that of Key.
type Selector struct {
	Kind   string
	Key    Key
	Prefix bool
}

// Cursor is a place in the key order of a kind: in front of a key, which need not be there.
// It is laid out as that key, with numbers in any form that they have. All backends have the
// same order, CompareValues, and understand each other's cursors. Empty means the start of
// the order (as From) or its end (as To).
type Cursor []byte

// Compare is the order of cursors that are not empty.
func (c Cursor) Compare(d Cursor) int { return CompareValues(Key(c).Value(), Key(d).Value()) }

// Range is the half-open interval [From, To) in the key order of a kind.
type Range struct {
	From Cursor `json:"from,omitempty"`
	To   Cursor `json:"to,omitempty"`
}

// ScanRequest asks for the next page of a range.
type ScanRequest struct {
	Token    Token
	Range    Range
	Limit    int  // records at most; backends may return fewer to bound a page's bytes (16 MiB)
	Guards   bool // return guards, and tombstones as records
	KeysOnly bool // Doc holds the _id alone
	// NotBefore is the version that the page's snapshot is not older than. A server that was
	// the primary and does not know yet that it is not answers without it from the past, and
	// a copy or comparison of such a page misses what was acknowledged since. What changes
	// before a Position made is in every read that is not before its At.
	NotBefore Version
}

// Page is the result of a scan. All records were read at one snapshot, Version.
type Page struct {
	Records []Record
	Version Version
	Next    Cursor // From of the next request
	Done    bool   // nothing remains in the range
}

// ReadRequest asks for the records selected, all at one snapshot that is not older
// than NotBefore (see ScanRequest).
type ReadRequest struct {
	Tokens    Tokens
	Select    []Selector
	NotBefore Version
	Guards    bool
	KeysOnly  bool // Doc holds the _id alone
	// Bytes is how many bytes of documents are wanted at most; more are ErrTooLarge, found out
	// without holding much more than that. 0: no bound.
	Bytes int
}

// Snapshot is the result of a read. What was selected and is not in Records was
// absent at Version. Records are in no particular order, each at most once.
type Snapshot struct {
	Version Version
	Records []Record
}

// Reader reads what a namespace holds, majority-committed, at snapshots. A snapshot that is
// not older than NotBefore and cannot be had yet is waited for, or is an error that asking
// again may cure; an older one is never returned instead.
type Reader interface {
	// Scan returns the next page of a range in key order, across all key types.
	Scan(ctx context.Context, req ScanRequest) (Page, error)
	// Read returns the records selected at one snapshot.
	Read(ctx context.Context, req ReadRequest) (Snapshot, error)
}

// Write is one record of a group as the target must hold it.
type Write struct {
	Kind string
	Key  Key
	Doc  bson.Raw // nil writes a tombstone
	// Expect, if not nil, is the exact guard that the record must still have (zero: it is
	// absent or has none). What the write was made of was read at that guard.
	Expect *Guard
}

// GroupWrite is applied whole or not at all. Every group has an anchor: one record
// that each write of that group includes, live or as a tombstone, so that the guards
// of two writes of one group always meet. A record stands in Writes at most once.
type GroupWrite struct {
	Group   string  // for messages
	Version Version // of the source snapshot, or a Next of it
	Anchor  int     // index into Writes
	Writes  []Write
}

// Batch is what one call applies. A group stands in it at most once.
type Batch struct {
	Tokens Tokens
	Epoch  uint64
	Groups []GroupWrite
	// Repair has Apply write a group also over guards of its own version. What a Load has put
	// there since has no guard, and the source may stand still: without it what was deleted at
	// this version, and loaded late, could never be deleted again. Equal versions mean equal
	// content, so that it makes nothing older.
	Repair bool
	// Together has Apply try all groups in one transaction where a single group of their size
	// could be written: they exchange unique values. Each has an outcome of its own all the same.
	Together bool
}

// Outcome is what became of one group.
type Outcome int

const (
	// Applied: the target holds the group as written.
	Applied Outcome = iota + 1
	// Stale: the target holds an equal or newer state of the group. A no-op.
	Stale
	// Changed: an Expect no longer holds. Read source and target again.
	Changed
	// Refused: this group cannot be stored as it is (unique index, size, validator);
	// Result.Err holds the reason. Nothing of the group was written. Park it.
	Refused
)

func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Stale:
		return "stale"
	case Changed:
		return "changed"
	case Refused:
		return "refused"
	default:
		return "invalid outcome"
	}
}

// Result is the answer for one group.
type Result struct {
	Outcome Outcome
	Err     error // only for Refused
}

// Applier writes groups into a target. Results stand in the order of the groups.
// With an error (ErrFenced, ErrUnknown, a lost server) nothing is known of the
// groups; applying the same batch again is always safe.
type Applier interface {
	// Apply writes each group whose guards are all lower, atomically for each group.
	Apply(ctx context.Context, b Batch) ([]Result, error)
	// Load inserts the documents of groups that are probably absent, each for itself. It looks
	// at no guard, and writes none next to the documents of a fixed-name kind: theirs are the
	// lowest. Whatever is there already, a managed kind's tombstone included, is left alone;
	// its group is Changed, or Refused if something of it cannot be stored, and the caller
	// applies it. Tombstones are not written, and Expect is not looked at.
	//
	// So a Load can leave a group by halves, and bring back what was deleted after its image
	// was read. The caller must keep late loads out by a Fence, and compare everything
	// after it, before the target counts as equal to the source.
	Load(ctx context.Context, b Batch) ([]Result, error)
}

// Change is one hint. Either Key is dirty, or the kind was fenced to Marker.
type Change struct {
	Kind   string
	Key    Key
	Marker string // physical name (or mark) of the fence; Key is empty then
	Delete bool   // the hint was a delete; for late-writer reports only
	// Origin and Guard say, in a stream of Follow alone, what shows who made the change.
	Origin Origin
	Guard  Guard
}

// Origin is what a change of a target shows about its writer.
type Origin int

const (
	// ForeignChange: the change left no guard, so that no Apply has made it.
	ForeignChange Origin = iota
	// GuardedChange: the record bears Change.Guard. An Apply has put it there, or somebody who wrote
	// back what he had read. Of those that bear one guard at one key, one is the Apply's.
	GuardedChange
	// AppliedChange: only an Apply commits what this change was committed with.
	AppliedChange
)

func (o Origin) String() string {
	switch o {
	case ForeignChange:
		return "foreign"
	case GuardedChange:
		return "guarded"
	case AppliedChange:
		return "applied"
	default:
		return "invalid origin"
	}
}

// ChangeBatch is a run of changes in order. Pos is the place after the last of them
// (with no changes, a later place than before); Wall is the source's wall clock at
// the last change in Unix milliseconds, 0 with no changes, for lag figures only.
//
// A batch never ends within a commit: what one transaction, or one command that has one
// time, has changed is in one batch, so that a reader of what is dirty at a snapshot not
// before Pos gets all that became dirty together. There are two exceptions, and for their
// sake what looks incomplete is checked again before it counts as a failure: a
// commit of more than CommitBytes, and a transaction over several logs (the shards of a
// cluster), of which each log's part comes whole, but the parts may come apart.
type ChangeBatch struct {
	Changes []Change
	Pos     Position
	Wall    int64
}

// CommitBytes is how much one commit may make a batch grow to, in bytes as Change.Size
// counts them: more comes in several batches, so that memory is bounded whatever a
// transaction deletes. It is enough for some hundred thousand changes.
const CommitBytes = 32 << 20

// Size is about what a change takes in memory.
func (c Change) Size() int {
	const header = 80 // with the place in a slice that grows
	return header + len(c.Key) + len(c.Marker)
}

// Stream delivers changes in order, at least once, none missing, in batches as ChangeBatch
// describes.
type Stream interface {
	// Next blocks until changes arrive, or at most about a second, and returns an
	// empty batch then. ErrHistoryLost, ErrBroken end a stream for good; other errors
	// leave it to the caller to open it again at the last position.
	Next(ctx context.Context) (ChangeBatch, error)
	Close(ctx context.Context) error
}

// Watcher follows the changes of a namespace.
type Watcher interface {
	// Position returns the present place: changes acknowledged before the call are
	// before it, those made after its return are after it.
	Position(ctx context.Context) (Position, error)
	// Watch opens the changes of the given kinds after a position. It follows managed
	// kinds through renames by their epoch names, and fixed ones by their own name.
	Watch(ctx context.Context, from Position, kinds []KindSpec) (Stream, error)
	// Follow opens the changes of a target's collections after a position, to find those that no
	// Apply has made. It follows collections by their identity, whatever names they get, and fixed
	// and managed ones alike; each new name, and each mark of a fence, is a Marker. Changes have
	// their Origin. The loss of a guard next to a document counts as a change of the record.
	// It need not tell an Apply of a guard that was there already from a foreign change.
	Follow(ctx context.Context, from Position, toks Tokens) (Stream, error)
	// Nudge has streams of Follow deliver soon how far they have come: without any change that
	// takes up to a second. It writes nothing that anybody else looks at.
	Nudge(ctx context.Context) error
}

// Store is what the engine needs of a source or target.
type Store interface {
	Reader
	Applier
	Watcher
}
