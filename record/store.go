package record

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Token names a kind physically. Every data command carries one. After a fence, the database
// refuses earlier tokens. The Deployment publishes the current tokens.
type Token struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`         // physical collection name
	ID    string `json:"id,omitempty"` // collection UUID, 32 hexadecimal digits; survives renames
	Fixed bool   `json:"fixed,omitempty"`
	// Mark is the fence behind which an applier writes, for a fixed-name kind that keeps its name
	// and identity under its fence (FenceValidator, FenceWriteBlock). Once that fence has ended
	// (Fence.Ends), Apply fails with ErrFenced. Empty: Apply makes no such check. Other calls
	// ignore it.
	Mark string `json:"mark,omitempty"`
}

// Tokens holds one token for each kind, by kind name.
type Tokens map[string]Token

// ReservedField is the top-level field that backends use in the documents of managed kinds. Writes
// of managed documents that have this field fail with ErrReserved. In a fixed-name kind the field
// belongs to the application, whatever it holds.
const ReservedField = "_dbc"

// CheckReserved returns ErrReserved if a document of a managed kind has ReservedField. Backends
// call it before each write.
func CheckReserved(tok Token, doc bson.Raw) error {
	if tok.Fixed || doc == nil {
		return nil
	}
	if _, err := doc.LookupErr(ReservedField); err != nil {
		return nil //nolint:nilerr // the field is absent; other checks validate the document
	}
	return ErrReserved
}

// Record is one record as a backend read it. Doc is the document without the guard, and nil for a
// tombstone or an absent record. The caller must not modify Doc. Records of one read may share
// memory, so a single kept Doc can keep the bytes of the whole read.
type Record struct {
	Kind      string
	Key       Key
	Doc       bson.Raw
	Guard     Guard // zero if absent; set only by reads that ask for guards
	Tombstone bool  // only from reads that ask for guards
	// Err reports that the stored bytes are no readable document: an application wrote them, or the
	// error is ErrUnreadable. Doc then has only the _id. The engine parks the group of such a
	// record. Clients get the error instead of the record.
	Err error
}

// Selector names records of one kind: the record with Key or, with Prefix, all records whose string
// name begins with the name in Key.
type Selector struct {
	Kind   string
	Key    Key
	Prefix bool
}

// Cursor is a place in the key order of a kind, in front of a key. The key need not exist. A Cursor
// is encoded like that key, with numbers in any of their BSON types. All backends use the order of
// CompareValues and understand each other's cursors. An empty Cursor means the start of the order
// (as From) or its end (as To).
type Cursor []byte

// Compare returns the order of two cursors. Neither may be empty.
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
	Limit    int  // maximum number of records; backends may return fewer to bound a page's bytes (16 MiB)
	Guards   bool // return guards, and tombstones as records
	KeysOnly bool // Doc has only the _id
	// NotBefore is the oldest version that the page's snapshot may have. Without it, a deposed
	// primary that has not noticed yet answers from the past. A copy or comparison of such a page
	// would miss acknowledged writes. A read that is not before the At of a Position sees all
	// changes before that Position.
	NotBefore Version
}

// Page is the result of a scan. All records were read at one snapshot, Version.
type Page struct {
	Records []Record
	Version Version
	Next    Cursor // pass it as From of the next request
	Done    bool   // true: the range has no more records
}

// ReadRequest asks for the selected records, all at one snapshot that is not older than NotBefore
// (see ScanRequest).
type ReadRequest struct {
	Tokens    Tokens
	Select    []Selector
	NotBefore Version
	Guards    bool // return guards, and tombstones as records
	KeysOnly  bool // Doc has only the _id
	// Bytes is the maximum size of all returned documents. A larger result is ErrTooLarge, and the
	// backend holds little more than Bytes in memory to find out. 0: no limit.
	Bytes int
}

// Snapshot is the result of a read. A selected record that is missing from Records was absent at
// Version. Records come in no particular order, each at most once.
type Snapshot struct {
	Version Version
	Records []Record
}

// Reader reads a namespace at snapshots of majority-committed data. If a snapshot not older than
// NotBefore is not available yet, the backend waits for it or returns an error that a retry may
// cure. It never returns an older snapshot.
type Reader interface {
	// Scan returns the next page of a range in key order, across all key types.
	Scan(ctx context.Context, req ScanRequest) (Page, error)
	// Read returns the selected records at one snapshot.
	Read(ctx context.Context, req ReadRequest) (Snapshot, error)
}

// Write is one record of a group in the form that the target must hold.
type Write struct {
	Kind string
	Key  Key
	Doc  bson.Raw // nil writes a tombstone
	// Expect, if not nil, is the exact guard that the record must still have. Zero: the record is
	// absent or has no guard. The caller made the write from what it read at that guard.
	Expect *Guard
	// Seen, if not nil, is the record as the caller read it with its guard, together with all
	// records of the group. A record without a Key was absent. A backend may use Seen in place of a
	// read, if its write fails when the stored guard is another one by now. The outcome must be the
	// same as without Seen. Seen.Doc serves no comparison.
	Seen *Record
}

// GroupWrite is a group that is applied as a whole or not at all. Every group has an anchor: one
// record that each write of the group includes, live or as a tombstone. So the guards of two writes
// of one group always meet. A record occurs in Writes at most once.
type GroupWrite struct {
	Group   string  // for messages
	Version Version // of the source snapshot, or a Next of that version
	Anchor  int     // index into Writes
	Writes  []Write
}

// Batch is the content of one Apply or Load call. A group occurs in it at most once.
type Batch struct {
	Tokens Tokens
	Epoch  uint64
	Groups []GroupWrite
	// Repair makes Apply also overwrite guards that are equal to its own version. A late Load may
	// have written a record without a guard, while the source stands still. Without Repair, a
	// record that was deleted at this version and then loaded late could never be deleted. Equal
	// versions mean equal content, so Repair makes nothing older.
	Repair bool
	// Together makes Apply try all groups in one transaction, if their total size fits into one
	// group. It serves groups that exchange unique values. Each group still has its own outcome.
	Together bool
}

// Outcome is the result of writing one group.
type Outcome int

const (
	// Applied means that the target holds the group as written.
	Applied Outcome = iota + 1
	// Stale means that the target already holds an equal or newer state of the group. The write had
	// no effect.
	Stale
	// Changed means that an Expect no longer holds. Read source and target again, then retry.
	Changed
	// Refused means that the target cannot store this group as it is (unique index, size,
	// validator). Result.Err holds the reason. No part of the group was written. The caller parks
	// the group.
	Refused
)

// String returns the name in lower case, for people.
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
	Err     error // set only for Refused
}

// Applier writes groups into a target. Results come in the order of the groups. After an error
// (ErrFenced, ErrUnknown, a lost server) the outcome of all groups is unknown. Applying the same
// batch again is always safe.
type Applier interface {
	// Apply writes each group if all stored guards are lower, atomically for each group.
	Apply(ctx context.Context, b Batch) ([]Result, error)
	// Load inserts the documents of groups that are probably absent, each document by itself. It
	// ignores guards, and writes none next to the documents of a fixed-name kind. A record without
	// a guard counts as lower than any guard. Load does not touch existing records, including the
	// tombstones of a managed kind. A group with an existing record is Changed, and a group that
	// the target cannot store is Refused. The caller then applies the group. Load writes no
	// tombstones and ignores Expect.
	//
	// Load can therefore leave a group incomplete, and can restore a record that was deleted after
	// its image was read. The caller must keep late loads out with a Fence, and compare everything
	// after it. Only then may the target count as equal to the source.
	Load(ctx context.Context, b Batch) ([]Result, error)
}

// Change is one hint: either Key is dirty, or the kind was fenced to Marker.
type Change struct {
	Kind   string
	Key    Key
	Marker string // physical name or mark of the fence; Key is then empty. A mark may come again when it is confirmed
	Delete bool   // the hint was a delete; used only to report late writers
	// Origin and Guard show the writer of the change. Only streams of Follow set them.
	Origin Origin
	Guard  Guard
}

// Origin is the evidence in a target's change about its writer.
type Origin int

const (
	// ForeignChange means that the change left no guard, so no Apply made it.
	ForeignChange Origin = iota
	// GuardedChange means that the record has the guard Change.Guard. An Apply wrote it, or another
	// client wrote back a document that it had read. Of several changes with one guard at one key,
	// one is the Apply's.
	GuardedChange
	// AppliedChange means that the change was committed together with data that only an Apply
	// writes.
	AppliedChange
)

// String returns one word for people, such as "foreign".
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

// ChangeBatch is a run of changes in order. Pos is the place after the last change. A batch without
// changes can also advance Pos, which shows the progress of an idle source. Wall is the source's
// wall clock at the last change, in Unix milliseconds, and 0 without changes. It serves lag figures
// only.
//
// A batch never ends within a commit. All changes of one transaction, or of one command that has
// one commit time, come in one batch. A reader of the dirty keys at a snapshot not before Pos
// therefore gets everything that became dirty together. There are two exceptions. A commit of more
// than CommitBytes comes in several batches. In a transaction over several logs (the shards of a
// cluster) each log's part comes as a whole, but the parts may arrive separately. Because of these
// exceptions, an incomplete group is checked again before it counts as a failure.
type ChangeBatch struct {
	Changes []Change
	Pos     Position
	Wall    int64
}

// CommitBytes is the maximum size of one commit in a batch, in bytes as Change.Size counts them. A
// larger commit comes in several batches, so that no transaction can exhaust the memory. The limit
// is enough for some hundred thousand changes.
const CommitBytes = 32 << 20

// Size returns the approximate number of bytes that a change takes in memory.
func (c Change) Size() int {
	const header = 80 // includes the spare room of a growing slice
	return header + len(c.Key) + len(c.Marker)
}

// Stream delivers changes in order, at least once and without gaps, in batches as ChangeBatch
// describes.
type Stream interface {
	// Next blocks until changes arrive, or for about a second, and then returns an empty batch. If ctx
	// has ended before the call, it returns no batch, even if changes are ready.
	// ErrHistoryLost and ErrBroken end a stream for good. After any other error the caller opens
	// the stream again at the last position.
	Next(ctx context.Context) (ChangeBatch, error)
	// Close ends the stream. Next must not be called afterwards.
	Close(ctx context.Context) error
}

// Watcher follows the changes of a namespace.
type Watcher interface {
	// Position returns the present place. Changes acknowledged before the call are before it.
	// Changes made after its return are after it.
	Position(ctx context.Context) (Position, error)
	// Watch opens the changes of the given kinds after a position. It follows managed kinds through
	// renames by their epoch names, and fixed-name kinds by their own name. Writes to a fixed-name
	// kind count under its epoch names too: somebody may write by hand behind a fence.
	Watch(ctx context.Context, from Position, kinds []KindSpec) (Stream, error)
	// Follow opens the changes of a target's collections after a position. It serves to find
	// changes that no Apply made. It follows fixed-name and managed collections by their identity,
	// under all their names. Each new name, and each mark of a fence, is a Marker. Changes have
	// their Origin. The loss of a guard next to a document counts as a change of the record. Follow
	// may report an Apply that writes an already present guard as a foreign change.
	Follow(ctx context.Context, from Position, toks Tokens) (Stream, error)
	// Nudge makes streams of Follow report their progress soon. Without a change that takes up to a
	// second. Nudge writes only data that no other reader uses.
	Nudge(ctx context.Context) error
}

// Connector counts the connections of a backend.
type Connector interface {
	// Connections returns a number that grows with each connection that this process opens to the
	// database. A connection counts before its first command. The servers of a database stop while
	// it is restored from a backup. So as long as the number stays the same, all reads come from one
	// database that was not restored in between.
	Connections() uint64
}

// Store is the interface that the engine needs of a source or target.
type Store interface {
	Reader
	Applier
	Watcher
}
