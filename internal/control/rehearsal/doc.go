// Package rehearsal runs a complete upgrade next to the real one and discards the result. First it
// copies, follows and compares everything into a scratch database. Then it sends a sample of the
// records through the switch and back between two scratch databases, and measures the pauses.
//
// # Guarantees
//
// A rehearsal only reads the real databases, and clients feel only the load of these reads. It
// counts parked groups, which cannot be migrated, and waives them, so that it finds all further
// problems as well. At its end it drops the scratch databases. The next rehearsal recreates the
// ones that a dead process left.
//
// # What it does not own
//
// It is no engine of its own: Backend starts controllers like the real one, and they do the work.
// It does not decide whether the upgrade may begin.
//
// Begin to read at Rehearser.Rehearse.
//
// It is not for users and may change with any version.
package rehearsal

import (
	"context"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Backend creates the environment of rehearsals. A version names its real database, or the scratch
// database that stands for that.
type Backend interface {
	// Real returns the database of a version; nil: not configured.
	Real(version string) Database
	// Claim creates an empty scratch database next to the version's database. It refuses a database
	// that something else created.
	Claim(ctx context.Context, version string) error
	// Scratch opens a claimed scratch database in quiet mode. The caller calls done.
	Scratch(ctx context.Context, version string) (db ScratchDatabase, done func(context.Context), err error)
	// Drop drops a claimed scratch database. A missing one is no error.
	Drop(ctx context.Context, version string) error
	// Stage returns a controller over the scratch databases of two versions. Its deployment does
	// not exist yet. With reads, the first database is the real one, and the controller only reads
	// it.
	Stage(from, to string, reads bool) Stage
}

// Database is a rehearsal's access to a database.
type Database interface {
	record.Reader
	Describe(ctx context.Context, kind record.KindSpec, name string) (record.Info, error)
	Size(ctx context.Context, tok record.Token) (record.Size, error)
}

// Clients is a Database with the client that a service uses. A scratch database must implement it.
type Clients interface {
	// Client returns a client that writes like a service.
	Client() record.OnceClient
}

// ScratchDatabase receives a sample.
type ScratchDatabase interface {
	Provision(ctx context.Context, kind record.KindSpec, name string) (record.Token, error)
	Load(ctx context.Context, b record.Batch) ([]record.Result, error)
}

// Stage is a controller of a rehearsal.
type Stage interface {
	// Run works until ctx ends.
	Run(ctx context.Context) error
	// Verify compares the versions, and calls progress with intermediate reports.
	Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error)
	// Deployment returns the stage's deployment.
	Deployment() StageDeployment
	// Database returns the database of a version. The controller must be running.
	Database(version string) Database
}

// StageDeployment is the deployment of a stage, in a coordination store of its own.
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
	Backend    Backend // nil: no scratch databases, and every rehearsal is refused
	Deployment interface {
		Get(ctx context.Context) (upgradestate.Deployment, error)
	}
	Registry *transform.Registry
	// Target returns the version that follows the record's current one.
	Target func(d upgradestate.Deployment) (version string, ok bool)
	Log    *zap.Logger
}

var _ api.Rehearser = (*Rehearser)(nil)
