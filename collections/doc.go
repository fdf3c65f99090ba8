// Package collections keeps the collections of a deployment's versions as the record and the
// source want them: the options and indexes that a target gets from its source, when they are
// built, the TTL indexes that must not delete while a switch is near, and the names that a
// target takes at the flip.
//
// While a version is synced to, its collections follow the source: an index that the source drops
// or makes anew, and options that it changes. Indexes that controllers did not carry over stay.
//
// After a switch the version that was left follows the active one, for a rollback: see KeepBack.
//
// Of an index that is declared and not there it says so, and a switch does not begin. A TTL
// index never stops without a note in the record of what it did, so that another process can
// let it go on. Each command may be repeated, by several controllers at once.
//
// The indexes of declared fields, by which handlers read (record.KindSpec.Indexed), are built in the
// active version too.
//
// It makes no collections (syncer.Provision does), drops none, and does not decide when a
// switch begins.
//
// It is not for users and may change with any version.
package collections

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Deployments is the record of the deployment, and where its shards note how far they have
// copied.
type Deployments interface {
	Get(ctx context.Context) (upgradestate.Deployment, error)
	// Watch sends each record that is seen, the present one first, until ctx ends.
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	Apply(ctx context.Context, ev upgradestate.Event, conds ...coord.Condition) (upgradestate.Deployment, error)
	syncer.Copies
}

// Database is what is done to a version's database.
type Database interface {
	Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error)
	BuildIndexes(ctx context.Context, tok record.Token, kind record.KindSpec) error
	Expire(ctx context.Context, tok record.Token, seconds map[string]int64) error
	Reshape(ctx context.Context, tok record.Token, kind record.KindSpec, drop []string) error
}

// Parts are what a Maintainer works with.
type Parts struct {
	Deployments Deployments
	// Database returns that of a version; nil: it is not configured here.
	Database func(version string) Database
	Registry *transform.Registry
	Carry    Carries
	// Views returns the views of applications in a version's database; nil: there are none.
	Views func(ctx context.Context, version string) ([]record.View, error)
	// Target returns the version that a record's current one is synced to.
	Target func(d upgradestate.Deployment) (version string, ok bool)
	// Idle reports whether nothing needs a version's database, so that it may be away.
	Idle func(d upgradestate.Deployment, version string) bool
	// Belongs fails if the database of one of the versions is not the one that the record
	// means.
	Belongs func(ctx context.Context, versions ...string) error
	Log     *zap.Logger
}

// Maintainer keeps the collections of one deployment. It may be used by several goroutines.
type Maintainer struct {
	Parts
	indexing indexing
	lacking  lacking
	left     leftViews
	unbuilt  atomic.Value // of string: why an index of the active version was not built
	expiring turn         // one looks at TTL indexes at a time, and changes them
}

// New returns a Maintainer that has checked nothing yet.
func New(parts Parts) *Maintainer { return &Maintainer{Parts: parts} }

// Lacks returns what a direction's target lacks before a switch may begin, as the latest check
// of KeepIndexes has found it; "" is nothing.
func (m *Maintainer) Lacks(epoch uint64, to string) string { return m.indexing.get(epoch, to) }
