// Package rehearsal does a whole upgrade next to the real one and throws it away: everything is
// copied, followed and compared into a scratch database, and a sample of the records goes
// through the switch and back between two of them, with the pauses measured.
//
// The real databases are only read, and clients feel nothing but the load of that. What is
// parked is counted and waived, so that a rehearsal goes on to find the rest. The scratch
// databases are dropped at its end; those that a process that died has left, the next one
// makes anew.
//
// It is no engine of its own: controllers like the real one, which Backend starts, do the
// work. It does not decide whether the upgrade may begin.
//
// It is not for users and may change with any version.
package rehearsal

import (
	"context"

	"go.uber.org/zap"

	"dbcontroller.dev/coord"
	"dbcontroller.dev/deployment/api"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/verify"
)

// Backend makes what rehearsals take place in. Databases are named by the version that they
// are of, or, scratch ones, that they stand for.
type Backend interface {
	// Real returns the database of a version; nil: it is not configured.
	Real(version string) Database
	// Claim makes the scratch database next to that of a version, empty. One that others have
	// made is refused.
	Claim(ctx context.Context, version string) error
	// Scratch opens a scratch database that was claimed, quietly. The caller calls done.
	Scratch(ctx context.Context, version string) (db ScratchDatabase, done func(context.Context), err error)
	// Drop drops a scratch database that was claimed. One that is not there is fine.
	Drop(ctx context.Context, version string) error
	// Stage returns a controller over the scratch databases of two versions, whose deployment
	// is not there yet. With reads it has the real database of the first one, and changes
	// nothing in it.
	Stage(from, to string, reads bool) Stage
}

// Database is what a rehearsal looks at.
type Database interface {
	record.Reader
	Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error)
	Size(ctx context.Context, tok record.Token) (record.Size, error)
}

// Clients is a Database that also has what a service uses. A scratch database must have it.
type Clients interface {
	Client() record.OnceClient
}

// ScratchDatabase is what a sample is written to.
type ScratchDatabase interface {
	Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error)
	Load(ctx context.Context, b record.Batch) ([]record.Result, error)
}

// Stage is a controller of a rehearsal.
type Stage interface {
	// Run works until ctx ends.
	Run(ctx context.Context) error
	// Verify compares the versions, and reports what was compared so far.
	Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error)
	Deployment() StageDeployment
	// Database returns that of a version, once the controller runs.
	Database(version string) Database
}

// StageDeployment is the deployment of a stage, in a coordination store that goes with it.
type StageDeployment interface {
	Create(ctx context.Context, version string, ringSize int) (upgradestate.Deployment, error)
	Get(ctx context.Context) (upgradestate.Deployment, error)
	Apply(ctx context.Context, ev upgradestate.Event, conditions ...coord.Condition) (upgradestate.Deployment, error)
	Progress(ctx context.Context) ([]syncer.Progress, error)
	ParkedNow(ctx context.Context) ([]syncer.Parked, error)
	Waive(ctx context.Context, kind, key string) (syncer.Parked, error)
}

// Rehearser rehearses the upgrades of one deployment, one at a time.
type Rehearser struct {
	Backend    Backend // nil: there are no scratch databases, and each rehearsal is refused
	Deployment interface {
		Get(ctx context.Context) (upgradestate.Deployment, error)
	}
	Registry *transform.Registry
	// Target returns the version that a record's current one is synced to.
	Target func(d upgradestate.Deployment) (version string, ok bool)
	Log    *zap.Logger
}

var _ api.Rehearser = (*Rehearser)(nil)
