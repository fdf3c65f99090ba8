// Package collections keeps the options, indexes and names of collections as the Deployment record
// and the source require. It carries options and indexes from a source to its target and decides
// when to build them. It stops TTL indexes near a switch. It checks that the names are free that a
// target takes at the flip.
//
// # Terms
//
//   - A kind is a collection of one version. A managed kind belongs to this program and changes
//     its physical name. A fixed-name kind belongs to an application and keeps its configured name.
//   - The shape of a collection is its options and its indexes.
//   - A direction syncs one version (source) to another (target). The epoch counts directions:
//     each switch adds one.
//   - A carry derives the shape of a target kind from a source kind, and possibly back.
//   - The fence stops writes to the source's names in a switch. The flip makes the target the
//     active version.
//   - A note is an entry in the Deployment record. It lists the carried indexes of a kind, and the
//     expiry of its TTL indexes.
//
// # What it does
//
// While a version is a target, its collections follow the source. KeepIndexes applies the indexes
// that the source drops or changes, and changed options. It leaves indexes that controllers did not
// carry over as they are. After a switch, the previous version follows the active one, so that a
// rollback finds the same indexes; see KeepBack. The active version also gets the indexes of
// declared fields, by which handlers read (record.KindSpec.Indexed).
//
// # Guarantees
//
//   - A declared index that is missing is reported, and no switch begins without it.
//   - A TTL index is stopped only after a note of its expiry is in the record. So another process
//     can start it again.
//   - Every command may be repeated, also by several controllers at once.
//
// # What it does not own
//
// It does not create or drop collections (see syncer.Provision), except for Remake. It does not
// decide when a switch begins.
//
// Begin to read at KeepIndexes, then KeepExpiry, then CheckSealed.
//
// It is not for users and may change with any version.
package collections

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Deployments gives access to the Deployment record and to the copy progress of its shards.
type Deployments interface {
	Get(ctx context.Context) (upgradestate.Deployment, error)
	// Known returns a record at rest that is not older than any that this process has seen, without a
	// call of the store if it can.
	Known(ctx context.Context) (upgradestate.Deployment, error)
	// Watch sends every version of the record that it sees, the present one first, until ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	Apply(ctx context.Context, ev upgradestate.Event, conds ...coord.Condition) (upgradestate.Deployment, error)
	syncer.Copies
}

// Database holds the commands that this package sends to a version's database.
type Database interface {
	Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error)
	BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error
	Expire(ctx context.Context, tok record.Token, seconds map[string]int64) (had map[string]int64, err error)
	Reshape(ctx context.Context, tok record.Token, kind record.KindSpec, drop []string) error
}

// Parts holds the dependencies of a Maintainer.
type Parts struct {
	Deployments Deployments
	// Database returns the database of a version, or nil if the version is not configured here.
	Database func(version string) Database
	Registry *transform.Registry
	Carry    Carries
	// Views returns the views of applications in a version's database. Nil: the backend has no
	// views.
	Views func(ctx context.Context, version string) ([]record.View, error)
	// Target returns the version to which the record's current version is synced.
	Target func(d upgradestate.Deployment) (version string, ok bool)
	// Idle reports whether a version's database is not needed, so that it may be unavailable.
	Idle func(d upgradestate.Deployment, version string) bool
	// Belongs returns an error if the database of a version is not the one in the record.
	Belongs func(ctx context.Context, versions ...string) error
	Log     *zap.Logger
}

// Maintainer keeps the collections of one deployment. It is safe for concurrent use.
type Maintainer struct {
	Parts
	indexing indexing
	lacking  lacking
	left     leftViews
	unbuilt  atomic.Value // of string: why an index of the active version is not built
	expiring turn         // held while TTL indexes are checked and changed
}

// New returns a Maintainer without results of checks.
func New(parts Parts) *Maintainer { return &Maintainer{Parts: parts} }

// Lacks describes the first thing that the target of a direction lacks before a switch may begin,
// from the latest check of KeepIndexes. "" means that nothing is missing.
func (m *Maintainer) Lacks(epoch uint64, to string) string { return m.indexing.get(epoch, to) }
