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
	// Shape is what a new collection of the kind is made with. For a managed kind it
	// is declared; for a fixed one it is carried over from the source or declared.
	Shape Shape
	// Indexed are the fields of a managed kind by which its records are read (IndexReader), as
	// dotted paths. Their indexes are built by those who keep the collections, where the database
	// has such indexes. They are no part of Shape, and no record is refused for their sake.
	Indexed []string
}

// Shape is the part of a collection that is not its documents.
type Shape struct {
	Options bson.Raw   // of the create command (collation, validator ...); nil for none
	Indexes []bson.Raw // specs as listIndexes returns them, without the one of _id
}

// FenceClass is how strongly a database keeps late writers out of a kind.
type FenceClass string

const (
	// FenceUUID: rename and collection UUID; stale inserts, updates, deletes and reads
	// fail. Managed kinds.
	FenceUUID FenceClass = "uuid"
	// FenceView: atomic rename and view; all foreign writes fail. Fixed-name kinds.
	FenceView FenceClass = "view"
	// FenceWriteBlock: the whole cluster refuses user writes. Fixed-name kinds on a
	// cluster of their own, only when configured.
	FenceWriteBlock FenceClass = "writeBlock"
	// FenceValidator: inserts and updates fail, deletes pass, are detected and reported.
	// For managed kinds deletes are transactions that meet it on the tombstones too.
	FenceValidator FenceClass = "validator"
	// FenceRole: the application's roles may only read; all that it sends later fails. Fixed-name
	// kinds in etcd.
	FenceRole FenceClass = "role"
)

// Fence is one announced operation on one kind. For uuid, view and role it renames Token.Name to
// To. For validator and writeBlock it marks the collection with To, and the
// collection keeps its name.
type Fence struct {
	Class FenceClass
	Token Token
	To    string
	// Restore is what Unfence needs to give back what the fence replaced (the
	// application's own validator), as Prepare returned it. Opaque.
	Restore string
	// Ends is the To of the fence that this operation ends, if it ends one: the opening of a
	// hidden kind under its application's name, and a fence that takes the place of another.
	// From before the operation on, that fence is no longer upheld, and where the class allows
	// that (FenceView) can no longer be set, by a caller that still takes it for the present one.
	Ends string
}

// Renames reports whether the fence leaves the collection under the name To.
func (f Fence) Renames() bool {
	return f.Class == FenceUUID || f.Class == FenceView || f.Class == FenceRole || f.Class == ""
}

// Breach is what was found wrong with a fence that must be in force.
type Breach struct {
	What  string // for people
	Aside string // the collection that holds what was accepted; empty: none was made
	Count int64  // documents in it
}

// KeptError is what Unfence, and a Fence with Ends, return when all is done but this: another
// collection was made under the kind's name while that was free, and holds documents that
// the kind has otherwise or does not take. The kind has its name, clients can write, and the
// rest of that collection is kept for a person. Asked again, they return it again.
type KeptError struct{ Kept []Breach }

func (e *KeptError) Error() string {
	said := make([]string, len(e.Kept))
	for i, b := range e.Kept {
		said[i] = b.What
	}
	return strings.Join(said, "; ")
}

// Info describes a kind as it is found.
type Info struct {
	Exists bool
	Token  Token
	Shape  Shape
	// Indexes reports that the database builds the indexes of declared fields (KindSpec.Indexed),
	// and that its clients read by them.
	Indexes bool
}

// Size is how much a kind holds, estimated.
type Size struct {
	Records int64
	Bytes   int64 // uncompressed
}

// Hindrance is something in a database that would hold up an operation on a kind.
type Hindrance struct {
	Kind string
	What string // for people: what it is, and what to do
}

// Fencer moves kinds so that earlier tokens can write no more.
type Fencer interface {
	// Prepare chooses the class of a kind, the strongest that cluster and privileges
	// allow (want narrows it; empty lets the backend choose), and returns what Unfence
	// will need. It changes nothing but scratch collections of its own.
	Prepare(ctx context.Context, tok Token, want FenceClass) (class FenceClass, restore string, err error)
	// Ready does ahead what Fence would do first, before writes are held for it. It changes nothing
	// for applications. A Fence that finds nothing done does it itself, and may be called without.
	Ready(ctx context.Context, fs []Fence) error
	// Unready takes back what Ready did for fences that no Fence was called with. Those may be
	// made ready again.
	Unready(ctx context.Context, fs []Fence) error
	// Fence executes the announced operation and returns nil only once it is confirmed: the
	// identity is listed under To and a majority write went through after it. It may
	// be called again, by anyone, whatever became of earlier calls; a rename that
	// happened already only confirms. Open transactions that hold it up are killed.
	Fence(ctx context.Context, f Fence) error
	// Prevent resolves an announced rename by identity (FenceUUID) that may have been sent or
	// not, without waiting for it: either it has happened (moved), confirmed as by Fence, or
	// it can no longer happen, no matter who sends it and how late, and the kind is still
	// called Token.Name. It needs no lock on the kind itself, so that what holds up the rename
	// (an index build, a transaction) does not hold up Prevent. What the backend leaves for
	// it under To goes once the kind has another name than Token.Name.
	Prevent(ctx context.Context, f Fence) (moved bool, err error)
	// Hindrances returns what is known that would hold up an operation on the kinds now, or lose
	// a record meanwhile. Empty: nothing is known.
	Hindrances(ctx context.Context, toks []Token) ([]Hindrance, error)
	// Unfence gives a fixed-name kind back to its application: its name, its validator.
	// A no-op for FenceUUID and for a kind that is not fenced. After it the fence f can no
	// longer be set where the class allows that (FenceView). An index build that began
	// under the fence is ended: writes are not held for as long as it takes. What was
	// written meanwhile to another collection under the name is moved into the kind, once clients
	// can write; a KeptError says what could not be.
	Unfence(ctx context.Context, f Fence) error
	// Uphold checks whether a fence of a fixed-name kind, which is in force by the record,
	// still is, and puts it back at once. A collection that somebody made under the kind's
	// own name is set aside under a name of ours, never dropped. It returns what was found
	// now, and every collection that was ever set aside for the kind. One whose identity is
	// among known is a kind itself, and left alone. A fence that is over by now (Unfence,
	// Fence.Ends) is not put back, and nothing is found: the caller's record may be an old one,
	// and the kind its application's again. A no-op for FenceUUID. With f.To empty none is in force
	// by the record, and with FenceRole the application gets what a fence that is over has taken
	// from it late.
	Uphold(ctx context.Context, f Fence, known []string) ([]Breach, error)
	// Locate returns the present physical name of a collection by its identity.
	Locate(ctx context.Context, id string) (name string, err error)
}

// Provisioner makes and describes the collections of a namespace.
type Provisioner interface {
	// Check refuses a server or namespace that cannot be served, with the reason:
	// standalone, no change streams, missing privileges. It needs no kinds.
	Check(ctx context.Context) error
	// Describe returns what a physical collection is. Indexes that are being built are not
	// part of its shape yet. One that cannot be a source or target (view, time series,
	// capped, encrypted) is an UnsupportedError.
	Describe(ctx context.Context, kind KindSpec, name string) (Info, error)
	// Size estimates how much a collection holds. It asks for statistics, which costs more than
	// to describe it.
	Size(ctx context.Context, tok Token) (Size, error)
	// Provision makes the collection with its shape where it is missing, builds what
	// indexes are missing (as Indexer.BuildIndexes does), and returns its token when all is
	// complete. Idempotent.
	Provision(ctx context.Context, kind KindSpec, name string) (Token, error)
	// Split cuts a kind into at most n ranges of about equal size that cover the key
	// order without gaps, n = 1 being always possible. They meet at keys of MaxCut bytes at most.
	Split(ctx context.Context, tok Token, n int) ([]Range, error)
	// Purge removes the tombstones of a kind whose direction has ended.
	Purge(ctx context.Context, tok Token) error
	// Drop removes a collection by token and what the backend keeps next to it.
	Drop(ctx context.Context, tok Token) error
}

// Namespace is a backend's whole face towards the controller.
type Namespace interface {
	Store
	Swapper
	Fencer
	Provisioner
	Indexer
	Labeler
	Marker
}

// PhysicalName is the name of a managed kind's collection, or of the hidden one of a
// fixed-name target, at its seq-th name. Names are never used twice.
func PhysicalName(kind string, seq uint64) string { return fmt.Sprintf("%s.n%d", kind, seq) }

// LongestName is a name as long as the longest that is ever given to a kind's collection or kept
// next to it: set aside, hidden in scratch collections, or with guards.
func LongestName(kind string) string { return "dbc_0123456789012345." + PhysicalName(kind, 1e12) }

// KindOfPhysical is the inverse of PhysicalName.
func KindOfPhysical(name string) (kind string, seq uint64, ok bool) {
	for i := len(name) - 1; i > 1; i-- {
		if c := name[i]; c < '0' || c > '9' {
			if c != 'n' || name[i-1] != '.' || i == len(name)-1 {
				return "", 0, false
			}
			if name[i+1] == '0' && i+2 < len(name) {
				return "", 0, false // PhysicalName writes no leading zero: this is not ours
			}
			if _, err := fmt.Sscanf(name[i+1:], "%d", &seq); err != nil {
				return "", 0, false
			}
			return name[:i-1], seq, true
		}
	}
	return "", 0, false
}

// Mutation is one record that a service writes. Exactly one condition applies:
// Absent (create), Match (the record is there and the field has the value), Exists
// (it is there), or none (whatever is there is replaced; a delete of an absent
// record is fine).
//
// A Mutation whose Doc is the very document that its Match compares is a check: readers
// see no difference, and of two writes at a time that check or change the record one
// comes after the other, so that what was decided by the record holds.
type Mutation struct {
	Kind   string
	Key    Key
	Doc    bson.Raw // with the _id of Key; nil deletes
	Absent bool
	Exists bool
	Match  *Match
}

// ListRequest asks for live records of one kind with string names, in name order.
type ListRequest struct {
	Token  Token
	Prefix string // of the name
	After  string // exclusive; empty for the start
	Limit  int    // 0: 1000
	// Bytes ends the list with the record that reaches so many bytes of documents. 0: no bound. A
	// list that ended so sets Cut, which must be there: it may be shorter than Limit, and is not the
	// last one. ListNames does not look at either.
	Bytes int
	Cut   *bool
}

// Full counts one more record of a list, and reports whether the list ends with it because of its
// Bytes. Backends call it with the bytes that the list had before.
func (r ListRequest) Full(had *int, doc bson.Raw) bool {
	*had += len(doc)
	if r.Bytes <= 0 || *had < r.Bytes {
		return false
	}
	*r.Cut = true
	return true
}

// SelectRequest asks for the live records that are selected, of any kinds in Tokens.
type SelectRequest struct {
	Tokens Tokens
	Select []Selector
	// AsList: it is enough that the answer is as recent as that of a List (Client), which spares
	// the wait that a linearizable read takes.
	AsList bool
	// Bytes is how many bytes of documents are wanted at most; more are ErrTooLarge. A single record
	// may come whatever it has. 0: any number.
	Bytes int
}

// Client is what a service reads and writes its managed kinds with. Tombstones and
// guards are invisible through it; a create over a tombstone succeeds.
//
// A read is linearizable, or as recent as a list. The latter shows what a majority has, and so
// never what is rolled back. It shows all that was acknowledged or refused to the clients of this
// process by then, and nothing older than what their reads have shown. It may miss what others
// were acknowledged while a server that was deposed, and answers, has not noticed: for seconds,
// and no fence that was set meanwhile ends it. So nothing may rest on it but what is shown.
type Client interface {
	// Get returns a live record or ErrNotFound. Majority-committed and linearizable
	// with respect to writes acknowledged through a Client of the same token.
	Get(ctx context.Context, tok Token, key Key) (Record, error)
	// Select returns live records, each at most once and in no particular order, all as they
	// were at one moment. It is as recent as Get, unless AsList asks for less.
	Select(ctx context.Context, req SelectRequest) ([]Record, error)
	// List returns live records.
	List(ctx context.Context, req ListRequest) ([]Record, error)
	// ListNames returns the names of what List would return, without looking at the records, so
	// that it costs little more than the names do. Some may be of records that were deleted:
	// look before one counts. Fewer than the limit mean that there are no more.
	ListNames(ctx context.Context, req ListRequest) ([]string, error)
	// Write makes all mutations or none, acknowledged by a majority. ErrFenced is
	// returned only when it is certain that nothing was written.
	Write(ctx context.Context, toks Tokens, ms []Mutation) error
}
