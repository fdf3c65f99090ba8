package record

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// KindSpec declares a kind of one version.
type KindSpec struct {
	Name  string
	Fixed bool // an application reaches the collection directly, under this name
	// Shape describes new collections of the kind. A managed kind declares it. A fixed-name kind
	// declares it or takes it over from the source.
	Shape Shape
	// Indexed holds the fields by which clients read the records of a managed kind (IndexReader),
	// as dotted paths. Controllers build their indexes, if the database has such indexes. The
	// indexes are not part of Shape, and no record is refused because of them.
	Indexed []string
}

// Shape holds the properties of a collection apart from its documents.
type Shape struct {
	Options bson.Raw   // of the create command (collation, validator ...); nil: none
	Indexes []bson.Raw // specs as listIndexes returns them, without the index of _id
}

// FenceClass is the strength with which a database keeps late writers out of a kind.
type FenceClass string

// The fence classes. Deployments and configurations contain these values, so they never change.
const (
	// FenceUUID renames the collection and checks its UUID. Stale inserts, updates, deletes and
	// reads fail. It serves managed kinds.
	FenceUUID FenceClass = "uuid"
	// FenceView renames the collection and leaves a view, atomically. All foreign writes fail. It
	// serves fixed-name kinds.
	FenceView FenceClass = "view"
	// FenceWriteBlock makes the whole cluster refuse user writes. It serves fixed-name kinds on a
	// cluster of their own, and only if configured.
	FenceWriteBlock FenceClass = "writeBlock"
	// FenceValidator makes inserts and updates fail. Deletes pass, and are detected and reported.
	// For managed kinds deletes are transactions that also meet the validator on the tombstones.
	FenceValidator FenceClass = "validator"
	// FenceRole leaves the application's roles only read permission. All its later writes fail. It
	// serves fixed-name kinds in etcd.
	FenceRole FenceClass = "role"
)

// Fence is one announced operation on one kind. For the classes uuid, view and role it renames
// Token.Name to To. For validator and writeBlock it marks the collection with To, and the
// collection keeps its name.
type Fence struct {
	Class FenceClass
	Token Token
	To    string
	// Restore holds what Unfence needs to put back, such as the application's own validator. It is
	// opaque, as Prepare returned it.
	Restore string
	// Ends is the To of the fence that this operation ends, if any. It is set when a hidden kind
	// opens under its application's name, and when a fence replaces another. Already before the
	// operation takes effect, Uphold no longer restores that earlier fence. Where the class allows
	// it (FenceView), callers with an old record can no longer set that fence either.
	//
	// Where the kind keeps its name, Fence also ends the tokens with that Mark, and with the marks
	// of all fences that have ended before: once it has returned nil, an Apply with such a token
	// fails with ErrFenced and has no effect. In a call of Unfence, a non-empty Ends asks for the
	// same, and also for To. It serves a kind that opens without a seal.
	Ends string
	// Standing says that the fence was confirmed before. Fence then only confirms it again, and
	// returns ErrLapsed if it is no longer in force.
	Standing bool
	// Look makes Uphold return a breach and not repair it, if nothing else would show the breach
	// after the repair. The caller stores the breach and calls Uphold again without Look.
	Look bool
}

// Renames reports whether the fence gives the collection the name To.
func (f Fence) Renames() bool {
	return f.Class == FenceUUID || f.Class == FenceView || f.Class == FenceRole || f.Class == ""
}

// Breach is a problem found with a fence that must be in force.
type Breach struct {
	What  string // description for people
	Aside string // collection that holds the accepted writes; empty: none was made
	Count int64  // number of documents in Aside
}

// KeptError reports that Unfence, or a Fence with Ends, did everything except move some documents.
// While the kind's name was free, another collection was made under it. That collection holds
// documents that the kind has with other content, or does not accept. The kind has its name back
// and clients can write. The remaining documents are kept for an operator. Repeated calls return
// the error again.
type KeptError struct{ Kept []Breach }

func (e *KeptError) Error() string {
	said := make([]string, len(e.Kept))
	for i, b := range e.Kept {
		said[i] = b.What
	}
	return strings.Join(said, "; ")
}

// Info describes a kind as the backend found it.
type Info struct {
	Exists bool
	Token  Token
	Shape  Shape
	// Indexes reports that the database builds the indexes of declared fields (KindSpec.Indexed)
	// and that its clients read by them.
	Indexes bool
}

// Size is the estimated size of a kind.
type Size struct {
	Records int64
	Bytes   int64 // uncompressed
}

// Hindrance is something in a database that would delay an operation on a kind.
type Hindrance struct {
	Kind string
	What string // for people: the cause and the remedy
}

// Fencer moves kinds so that earlier tokens can no longer write.
type Fencer interface {
	// Prepare chooses the strongest fence class of a kind that cluster and privileges allow. want
	// narrows the choice; empty lets the backend choose. Prepare also returns the restore value for
	// Unfence. It changes only scratch collections of its own.
	Prepare(ctx context.Context, tok Token, want FenceClass) (class FenceClass, restore string, err error)
	// Ready does the first steps of Fence in advance, before writes are held. It changes nothing
	// for applications. Without a call of Ready, Fence does these steps itself.
	Ready(ctx context.Context, fs []Fence) error
	// Unready reverts Ready for fences that no Fence call followed. The caller may make these
	// fences ready again.
	Unready(ctx context.Context, fs []Fence) error
	// Fence executes the announced operation and returns nil only once the operation is confirmed:
	// the identity is listed under To, and a majority write succeeded after that. Any process may
	// call it again, whatever the outcome of earlier calls. If the rename has happened already,
	// Fence only confirms it. Fence kills open transactions that block it.
	Fence(ctx context.Context, f Fence) error
	// Prevent resolves an announced rename by identity (FenceUUID), sent or not, without waiting
	// for it. moved reports that the rename has happened, confirmed as by Fence. Otherwise the
	// rename can no longer happen, whoever sends it and however late, and the kind keeps the name
	// Token.Name. Prevent needs no lock on the kind itself. An index build or a transaction that
	// blocks the rename therefore does not block Prevent. Once the kind has another name than
	// Token.Name, the backend removes its placeholder under To.
	// Prevent returns ErrNotFound if no collection has the identity. Nothing can then be renamed.
	Prevent(ctx context.Context, f Fence) (moved bool, err error)
	// Hindrances returns known conditions that would now delay an operation on the kinds, or lose a
	// record meanwhile. Empty: none is known.
	Hindrances(ctx context.Context, toks []Token) ([]Hindrance, error)
	// Unfence gives a fixed-name kind back to its application, with its name and its validator. It
	// does nothing for FenceUUID or for a kind that is not fenced. Where the class allows it
	// (FenceView), no process can set the fence f again afterwards. Unfence aborts an index build
	// that began under the fence, because clients cannot write until the build ends. Once clients
	// can write, it moves documents from another collection under the name into the kind. A
	// KeptError names the documents that it could not move.
	Unfence(ctx context.Context, f Fence) error
	// Uphold checks that a fence of a fixed-name kind is still in force, and restores it at once.
	// The caller's record says that the fence is in force. If a client made a collection under the
	// kind's own name, Uphold renames that collection and never drops it. It returns the present
	// breaches and every collection that was ever set aside for the kind. A collection whose
	// identity is among known is a kind itself, and Uphold ignores it. See Fence.Look.
	//
	// Uphold does not restore a fence that has ended (Unfence, Fence.Ends), and then returns
	// nothing: the caller's record may be old, and the application may own the kind again. It does
	// nothing for FenceUUID. An empty f.To means that no fence is in force by the record. With
	// FenceRole, Uphold then gives the application back the permissions that a late fence took
	// away. With FenceValidator, it lifts the validator of a late fence.
	Uphold(ctx context.Context, f Fence, known []string) ([]Breach, error)
	// Locate returns the present physical name of the collection with an identity, or ErrNotFound.
	Locate(ctx context.Context, id string) (name string, err error)
}

// Provisioner creates and describes the collections of a namespace.
type Provisioner interface {
	// Check returns the reason why a server or namespace cannot be served: standalone, no change
	// streams, missing privileges. It needs no kinds. nil: it can be served.
	Check(ctx context.Context) error
	// Describe returns the properties of a physical collection. Unfinished indexes are not part of
	// its shape yet. A collection that can be neither source nor target (view, time series, capped,
	// encrypted) is an UnsupportedError.
	Describe(ctx context.Context, kind KindSpec, name string) (Info, error)
	// Size estimates the size of a collection. It asks the server for statistics, which costs more
	// than Describe.
	Size(ctx context.Context, tok Token) (Size, error)
	// Provision creates the collection with its shape if it is missing, and builds missing indexes
	// (as Indexer.BuildIndexes does). It returns the token when all of that is complete.
	// Idempotent.
	Provision(ctx context.Context, kind KindSpec, name string) (Token, error)
	// Split cuts a kind into at most n ranges of similar size that cover the key order without
	// gaps. A result of one range is always possible. The keys between ranges have at most MaxCut
	// bytes.
	Split(ctx context.Context, tok Token, n int) ([]Range, error)
	// Purge removes the tombstones of a kind after its direction has ended. With an old token it
	// changes nothing, whatever it returns.
	Purge(ctx context.Context, tok Token) error
	// Drop removes a collection by token, with the backend's own data next to it. With an old token
	// the collection stays, whatever Drop returns. If the collection is gone, Drop returns nil or
	// ErrFenced.
	Drop(ctx context.Context, tok Token) error
	// Forget removes the backend's own data about a kind, and its claim, while the collection and its
	// records stay. It serves a kind whose deployment no longer exists, or no longer has it. A late
	// command of the deployment could take effect afterwards, so call it only after all processes
	// have ended. While a fence stands, Forget returns ErrFenced. It may be repeated, also after the
	// collection is gone.
	Forget(ctx context.Context, tok Token) error
	// FreeNumber returns the lowest number of a name or mark of a kind (PhysicalName) from which on
	// no earlier collection of the kind has left data of the backend. A fence with a lower number
	// may count as ended already. Without such data it is 1.
	FreeNumber(ctx context.Context, kind string) (uint64, error)
}

// Namespace is the complete interface of a backend for controllers.
type Namespace interface {
	Store
	Connector
	Swapper
	Fencer
	Provisioner
	Indexer
	Labeler
	Marker
}

// PhysicalName returns the seq-th name of a managed kind's collection, or of the hidden collection
// of a fixed-name target. A name is never used twice.
func PhysicalName(kind string, seq uint64) string { return fmt.Sprintf("%s.n%d", kind, seq) }

// FreeNumber returns the lowest number that is greater than those of a kind's names or marks, at
// least 1. It ignores names of other kinds.
func FreeNumber(kind string, marks []string) (uint64, error) {
	free := uint64(1)
	for _, mark := range marks {
		of, seq, ok := KindOfPhysical(mark)
		if !ok || of != kind {
			continue
		}
		// A name with a higher number could be too long, or the number could overflow.
		if seq >= maxNumber {
			return 0, fmt.Errorf("kind %s has data of a fence with the number %d, which no controller assigned: remove them", kind, seq)
		}
		free = max(free, seq+1)
	}
	return free, nil
}

// maxNumber is the first number that LongestName has no room for.
const maxNumber = 1e12

// LongestName returns a name that is as long as the longest name of a kind's collection or of the
// backend's data next to it: collections set aside, scratch collections and guards. Callers check
// this name against the database's limit.
func LongestName(kind string) string { return "dbc_0123456789012345." + PhysicalName(kind, 1e12) }

// KindOfPhysical returns the kind and the number of a name made by PhysicalName. ok is false for
// any other name.
func KindOfPhysical(name string) (kind string, seq uint64, ok bool) {
	for i := len(name) - 1; i > 1; i-- {
		if c := name[i]; c < '0' || c > '9' {
			if c != 'n' || name[i-1] != '.' || i == len(name)-1 {
				return "", 0, false
			}
			if name[i+1] == '0' && i+2 < len(name) {
				return "", 0, false // PhysicalName writes no leading zero, so this name is an application's
			}
			if _, err := fmt.Sscanf(name[i+1:], "%d", &seq); err != nil {
				return "", 0, false
			}
			return name[:i-1], seq, true
		}
	}
	return "", 0, false
}

// Mutation is one write of a service. At most one condition applies: Absent (create), Match (the
// record exists and the field has the value), or Exists (the record exists). Without a condition,
// the write replaces any record, and a delete of an absent record succeeds.
//
// A Mutation whose Doc equals the document in its Match is a check. Readers see no difference. Two
// concurrent writes that check or change the same record are ordered, so a decision based on the
// record still holds when the write commits.
type Mutation struct {
	Kind   string
	Key    Key
	Doc    bson.Raw // has the _id of Key; nil deletes the record
	Absent bool
	Exists bool
	Match  *Match
}

// ListRequest asks for the live records of one kind that have string names, in name order.
type ListRequest struct {
	Token  Token
	Prefix string // of the name; empty: all names
	After  string // exclusive; empty for the start
	Limit  int    // 0: 1000
	// Bytes ends the list with the record that reaches this many bytes of documents. 0: no limit.
	// If Bytes is set, Cut must be set too. A list that Bytes ended sets *Cut to true. It may be
	// shorter than Limit although more records follow. ListNames ignores both fields.
	Bytes int
	Cut   *bool
}

// Full adds the size of one more record to *had, the number of bytes in the list so far. It reports
// whether Bytes ends the list with this record, and then sets *Cut. Backends call it.
func (r ListRequest) Full(had *int, doc bson.Raw) bool {
	*had += len(doc)
	if r.Bytes <= 0 || *had < r.Bytes {
		return false
	}
	*r.Cut = true
	return true
}

// SelectRequest asks for the selected live records of any kinds in Tokens.
type SelectRequest struct {
	Tokens Tokens
	Select []Selector
	// AsList accepts an answer as recent as a List (see Client). It saves the wait of a
	// linearizable read.
	AsList bool
	// Bytes is the maximum size of all returned documents. A larger result is ErrTooLarge, even one
	// record. A backend may count its own data too, at most 256 bytes for each record. 0: no limit.
	Bytes int
}

// Client reads and writes the managed kinds of a service. It hides tombstones and guards. A create
// over a tombstone succeeds.
//
// A read is either linearizable or as recent as a list. A list shows majority-committed data, which
// never rolls back. It includes all writes that were acknowledged or refused to clients of this
// process before, and nothing older than their earlier reads. It may miss other processes' writes
// for some seconds, while a deposed server that has not noticed still answers. A fence set
// meanwhile does not end that. A list may therefore serve display only, and not decisions.
type Client interface {
	// Get returns a live record or ErrNotFound. The read is majority-committed, and linearizable
	// with respect to writes acknowledged through a Client of the same token.
	Get(ctx context.Context, tok Token, key Key) (Record, error)
	// Select returns live records of one moment, each at most once and in no particular order. It
	// is as recent as Get, unless AsList asks for less.
	Select(ctx context.Context, req SelectRequest) ([]Record, error)
	// List returns live records in name order.
	List(ctx context.Context, req ListRequest) ([]Record, error)
	// ListNames returns the names that List would return, without reading the records. It costs
	// little more than the names. Some names may belong to deleted records, so check a name that
	// matters. A result shorter than the limit is complete.
	ListNames(ctx context.Context, req ListRequest) ([]string, error)
	// Write applies all mutations or none, acknowledged by a majority. ErrFenced means that
	// certainly nothing was written.
	Write(ctx context.Context, toks Tokens, ms []Mutation) error
}
