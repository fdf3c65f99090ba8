// Package preflight finds problems of an upgrade or of its switch in advance. It makes the plan of
// an upgrade, the proof of its rollback, and the forecast of its pause.
//
// # How it works
//
// Plan and proof try things in scratch collections. These have the shape of the kinds, under names
// of their own. Both transform a sample of records there and back, run every rename and fence of
// the switch and of the rollback, and follow the changes. A fence is the operation after which a
// collection refuses late writers.
//
// # Guarantees
//
// Plan and proof only read the data. Clients do not feel a proof. If a process dies, the next plan
// or proof removes its scratch collections. A ReadOnly Planner tries nothing, and reports what it
// does not know for that reason.
//
// # What it does not own
//
// It does not decide when an upgrade begins or switches. It stores no result: a Prover knows about
// the running upgrade only, and a plan is a report.
//
// Begin to read at Planner.Plan and Prover.Run.
//
// It is not for users and may change with any version.
package preflight

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Space is a version's database, with room for scratch collections.
type Space interface {
	record.Namespace
	// Sweep drops all collections with the name prefix, and the data that the backend keeps about
	// them.
	Sweep(ctx context.Context, prefix string) error
}

// Surveyor is a Space that can describe its server.
type Surveyor interface {
	Survey(ctx context.Context) (record.Survey, error)
}

// Sharder is a Space that can describe the distribution of collections over the shards of its
// cluster.
type Sharder interface {
	Sharding(ctx context.Context, kind record.KindSpec, name string) (record.Sharding, error)
}

// Proofs are the dependencies of a proof.
type Proofs struct {
	Registry *transform.Registry
	// Quiet returns a version's database in a mode that other users of its server do not feel; nil:
	// the version is not configured here.
	Quiet func(version string) Space
	// Kept reports whether a version that is left stays in sync for a rollback: it is configured
	// and not disabled.
	Kept func(version string) bool
}

// ProverDeployment is a Prover's access to the deployment.
type ProverDeployment interface {
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	Progress(ctx context.Context) ([]syncer.Progress, error)
	Servers(ctx context.Context) ([]upgradestate.ServerState, error)
	PublishReadiness(ctx context.Context, o *switchover.Readiness, lease coord.LeaseID) error
}

// ProverParts are the dependencies of a Prover.
type ProverParts struct {
	Proofs
	Deployments ProverDeployment
	// Lease returns the lease of published readiness reports, which end with it; 0: none yet.
	Lease func() coord.LeaseID
	Log   *zap.Logger
}

// PlannerDeployment is a Planner's access to the deployment.
type PlannerDeployment interface {
	Get(ctx context.Context) (upgradestate.Deployment, error)
	Controllers(ctx context.Context) ([]string, error)
	Servers(ctx context.Context) ([]upgradestate.ServerState, error)
}

// Planner makes plans for one controller, one at a time.
type Planner struct {
	PlannerParts
	planning sync.Mutex
}

// PlannerParts are the dependencies of a Planner.
type PlannerParts struct {
	Proofs
	Deployments PlannerDeployment
	Collections *collections.Maintainer
	// Space returns a version's database; nil: the version is not configured here.
	Space func(version string) Space
	// Unprivileged reports whether an error means that the login lacks a privilege.
	Unprivileged func(err error) bool
	// Belongs returns an error if a version's database is not the one that the record means.
	Belongs func(ctx context.Context, versions ...string) error
	// KeysLack returns a text about processes without an encryption key for a version's records; ""
	// if none lacks one.
	KeysLack func(ctx context.Context, version string) (string, error)
	// Reachable returns the versions that an upgrade may lead to. Wants returns the one that
	// follows automatically.
	Reachable func(d upgradestate.Deployment) []string
	Wants     func(d upgradestate.Deployment) (version string, ok bool)
	// CheckScratch checks whether a rehearsal could use a scratch database next to a version's
	// database, and returns its name; nil: no scratch databases exist.
	CheckScratch func(ctx context.Context, version string) (database string, err error)
	// Other reads the record of another deployment in the same coordination store.
	Other    func(ctx context.Context, name string) (upgradestate.Deployment, error)
	Settings Settings
	// ReadOnly forbids every trial, even in scratch collections, and every question to other
	// processes. A plan without a controller sets it.
	ReadOnly bool
}

// Settings are the parts of the configuration that a plan reports.
type Settings struct {
	Unthrottled bool // the copy does not measure the databases
	MaxRate     int  // copied documents a second; 0: no limit
	Workers     int  // number of copying workers
	// MaxSourceLoad is the load of the source's processors, in percent, above which the copy slows
	// down; 0: no limit.
	MaxSourceLoad int
	// Coordination describes the connection to the coordination store.
	Coordination Coordination
	// Plaintext lists, by version, the remote hosts that are reached without TLS.
	Plaintext map[string][]string
	Imports   []Import
	Referrers []Referrer
}

// Import is another deployment with records that this one refers to.
type Import struct {
	Service      string // name in lenses and tasks
	Deployment   string
	Older, Newer string // API versions before and after the change of its keys
}

// Version returns the API version with these keys; "" for the keys of both.
func (i Import) Version(keys transform.Keys) string {
	switch keys {
	case transform.NewKeys:
		return i.Newer
	case transform.OldKeys:
		return i.Older
	default:
		return ""
	}
}

// Referrer is a field of another deployment's records that holds keys of this one.
type Referrer struct {
	Deployment string
	Kind       string // of that deployment
	Field      string
	Of         string // kind of this deployment
}

// Coordination describes a process's connection to the coordination store.
type Coordination struct {
	Endpoints []string
	Plaintext []string // remote endpoints without TLS
	Embedded  bool     // it runs in a process of this machine
}

// NewPlanner returns a Planner.
func NewPlanner(parts PlannerParts) *Planner { return &Planner{PlannerParts: parts} }
