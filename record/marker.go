package record

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Identity is the database that a namespace is in, however it is addressed.
type Identity struct {
	// Cluster is what the cluster calls itself; empty where it is not known, or the
	// privileges at hand do not suffice.
	Cluster string
	// Database was made at random, once, and is kept in the database. A copy of the database
	// in another cluster has the same.
	Database string
}

// Owner is whose a namespace or a collection is.
type Owner struct {
	Deployment string
	Version    string // the namespace's name in the Deployment
}

func (o Owner) String() string { return o.Version + " of " + o.Deployment }

// Mark is what a namespace's database records about it, next to the kinds. The content is
// the caller's.
type Mark struct {
	Owner Owner
	Rev   int64 // counts the writes of the mark; 0: there is none yet
	Body  bson.Raw
}

// Claim is whose a collection is.
type Claim struct {
	Owner Owner
	Kind  string
	ID    string // of the collection; empty where it has none
	Name  string // physical name now; empty: the collection is gone
	Fence string // mark of the validator fence that it bears now
	// Instead is the identity of the collection that bears a name of the kind, InsteadName,
	// while the claimed one is gone: what is left when a sharded cluster makes a collection
	// anew somewhere else. Empty: there is none, or more than one.
	Instead, InsteadName string
	// Bearer is the identity of the collection that bears the kind's own name now, which an
	// application reaches: the claimed one or another. Empty: there is none, or a view.
	Bearer string
}

// OwnedError refuses a collection, or the name of a kind, that is somebody else's, or that
// another collection of the same owner has. Nothing was changed.
type OwnedError struct {
	Kind  string
	ID    string // that was to be claimed
	Owner Owner  // that has it
	Has   string // the collection that the owner has under the kind, if that is another one
}

func (e *OwnedError) Error() string {
	if e.Has != "" {
		return fmt.Sprintf("kind %s is collection %s of %s, not %s", e.Kind, e.Has, e.Owner, e.ID)
	}
	return fmt.Sprintf("kind %s is taken by %s: give each deployment and version a database of its own, or kinds of other names", e.Kind, e.Owner)
}

// Marker keeps, in the database itself, whose it is and what happened to it. What it
// writes survives a failover, and of several who write at a time one wins.
type Marker interface {
	// Identity returns what is known; Database is empty where Identify was never called.
	Identity(ctx context.Context) (Identity, error)
	// Identify is Identity and makes what is missing. Every caller gets the same.
	Identify(ctx context.Context) (Identity, error)
	// Marks returns the marks of all namespaces in the database.
	Marks(ctx context.Context) ([]Mark, error)
	// PutMark writes a mark over the one with the revision Rev, or, for 0, where there is
	// none; ErrMismatch if it is another by now. After ErrUnknown, read.
	PutMark(ctx context.Context, m Mark) error
	// Claim notes whose a collection is, and the name of its kind in this database. What is
	// noted already for this owner is a no-op; anybody else's is an *OwnedError. So is
	// another collection of that kind, unless it is gone, or the new one is a fixed-name kind's
	// under its own name: the application decides which collection bears that. The claim of the
	// other one ends then.
	Claim(ctx context.Context, tok Token, owner Owner) error
	// Claims returns all that is claimed. Drop ends the claim of what it drops.
	Claims(ctx context.Context) ([]Claim, error)
	// Release removes the mark of an owner and what it still claims.
	Release(ctx context.Context, owner Owner) error
}
