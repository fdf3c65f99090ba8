package record

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Identity identifies the database of a namespace independently of its address.
type Identity struct {
	// Cluster is the name that the cluster reports. It is empty if unknown, or if the available
	// privileges do not suffice.
	Cluster string
	// Database is a random id that was made once and is stored in the database. A copy of the
	// database in another cluster has the same id.
	Database string
}

// Owner identifies the deployment and version that own a namespace or a collection.
type Owner struct {
	Deployment string
	Version    string // the namespace's name in the Deployment
}

// String returns "VERSION of DEPLOYMENT", for messages.
func (o Owner) String() string { return o.Version + " of " + o.Deployment }

// Mark is a namespace's own entry in its database, stored next to the kinds. The caller defines its
// content.
type Mark struct {
	Owner Owner
	Rev   int64 // counts the writes of the mark; 0: no mark yet
	Body  bson.Raw
	// Was, unless it is nil, must also be the stored body for PutMark to replace it. A database that
	// was restored from a backup counts Rev again, so Rev alone does not name one body. Marks leaves
	// it out.
	Was bson.Raw
}

// Claim records the owner of a collection.
type Claim struct {
	Owner Owner
	Kind  string
	ID    string // identity of the collection; empty: it has none
	Name  string // present physical name; empty: the collection is gone
	Fence string // mark of its present validator fence; empty: none
	// Instead and InsteadName describe the collection that now has a name of the kind while the
	// claimed one is gone. A sharded cluster leaves this state when it makes a collection anew on
	// another shard. Empty: there is no such collection, or more than one.
	Instead, InsteadName string
	// Bearer is the identity of the collection under the kind's own name, which applications use.
	// It may be the claimed one or another. Empty: there is none, or it is a view.
	Bearer string
}

// OwnedError reports that a Claim was refused: another owner has the collection or the kind's name,
// or the same owner has another collection for the kind. The call changed nothing.
type OwnedError struct {
	Kind  string
	ID    string // of the collection to claim
	Owner Owner  // present owner
	Has   string // collection that the owner already has for the kind; empty: the collection itself is taken
}

func (e *OwnedError) Error() string {
	if e.Has != "" {
		return fmt.Sprintf("kind %s is collection %s of %s, not %s", e.Kind, e.Has, e.Owner, e.ID)
	}
	return fmt.Sprintf("kind %s is taken by %s: give each deployment and version a database of its own, or kinds of other names", e.Kind, e.Owner)
}

// Marker stores the ownership and the history of a database in the database itself. Its writes
// survive a failover. Of several concurrent writers one wins.
type Marker interface {
	// Identity returns the known identity. Database is empty if Identify was never called.
	Identity(ctx context.Context) (Identity, error)
	// Identify returns the identity and creates missing parts. Every caller gets the same values.
	Identify(ctx context.Context) (Identity, error)
	// Marks returns the marks of all namespaces in the database.
	Marks(ctx context.Context) ([]Mark, error)
	// PutMark replaces the mark of revision Rev, or creates it for Rev 0. ErrMismatch: the revision
	// has changed, or the body is not Was. After ErrUnknown, read the marks.
	PutMark(ctx context.Context, m Mark) error
	// Claim stores the owner of a collection, and the name of its kind in this database. Repeating
	// a claim of the same owner has no effect. A claim of another owner is an *OwnedError. So is
	// another collection for the kind, with two exceptions: the earlier collection is gone, or the
	// new one is a fixed-name kind's under its own name. The application decides which collection
	// has that name. In both cases the earlier claim ends.
	Claim(ctx context.Context, tok Token, owner Owner) error
	// Claims returns all claims. Drop ends the claim of the collection that it drops.
	Claims(ctx context.Context) ([]Claim, error)
	// Release removes the mark of an owner and its remaining claims.
	Release(ctx context.Context, owner Owner) error
}
