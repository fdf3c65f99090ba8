// Package preflight finds out, before an upgrade or its switch, what would go wrong: the plan of
// an upgrade, the proof of its rollback, and the forecast of its pause.
//
// Both try things in scratch collections that are shaped like the kinds, under names of their
// own: a sample of records is transformed there and back, every rename and fence of the switch
// and of the rollback is done, and the changes are followed. Of the data they only read. A
// proof is not felt by clients, and what either leaves behind when its process dies, the next
// one removes.
//
// A plan can be made with less: a Planner that is ReadOnly tries nothing, and says what it
// therefore does not know.
//
// It decides neither whether an upgrade begins nor when it switches, and it keeps no result:
// a Prover answers for the upgrade that runs, and a plan is a report.
//
// It is not for users and may change with any version.
package preflight

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"dbcontroller.dev/collections"
	"dbcontroller.dev/coord"
	"dbcontroller.dev/record"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Space is a version's database, where scratch collections are made.
type Space interface {
	record.Namespace
	// Sweep drops all collections whose names begin with prefix, and what is kept of them.
	Sweep(ctx context.Context, prefix string) error
}

// Surveyor is a Space that reports on its server.
type Surveyor interface {
	Survey(ctx context.Context) (record.Survey, error)
}

// Sharder is a Space that reports how collections are spread over shards.
type Sharder interface {
	Sharding(ctx context.Context, kind record.KindSpec, name string) (record.Sharding, error)
}

// Proofs is what the proof of a rollback needs.
type Proofs struct {
	Registry *transform.Registry
	// Quiet returns the database of a version, used so that nobody else on its server feels
	// it; nil: the version is not configured here.
	Quiet func(version string) Space
	// Kept reports whether a version that is left will be kept in sync for a rollback: it is
	// configured and not disabled.
	Kept func(version string) bool
}

// ProverDeployment is what a Prover needs of the deployment.
type ProverDeployment interface {
	Watch(ctx context.Context) <-chan upgradestate.Deployment
	Progress(ctx context.Context) ([]syncer.Progress, error)
	Servers(ctx context.Context) ([]upgradestate.ServerState, error)
	PublishReadiness(ctx context.Context, o *switchover.Readiness, lease coord.LeaseID) error
}

// ProverParts are what a Prover works with.
type ProverParts struct {
	Proofs
	Deployments ProverDeployment
	// Lease is what a published readiness report lasts as long as; 0: there is none yet.
	Lease func() coord.LeaseID
	Log   *zap.Logger
}

// PlannerDeployment is what a Planner needs of the deployment.
type PlannerDeployment interface {
	Get(ctx context.Context) (upgradestate.Deployment, error)
	Controllers(ctx context.Context) ([]string, error)
	Servers(ctx context.Context) ([]upgradestate.ServerState, error)
}

// Planner makes the plans of one controller, one at a time.
type Planner struct {
	PlannerParts
	planning sync.Mutex
}

// PlannerParts are what a Planner works with.
type PlannerParts struct {
	Proofs
	Deployments PlannerDeployment
	Collections *collections.Maintainer
	// Space returns the database of a version; nil: the version is not configured here.
	Space func(version string) Space
	// Unprivileged reports whether an error of a database is that of a login that lacks a
	// privilege.
	Unprivileged func(err error) bool
	// Belongs fails if the database of one of the versions is not the one that the record
	// means.
	Belongs func(ctx context.Context, versions ...string) error
	// KeysLack returns, for an operator, who lacks which key of the records that a version has; ""
	// where all have them.
	KeysLack func(ctx context.Context, version string) (string, error)
	// Reachable returns the versions that an upgrade may begin to, Wants the one of them that
	// comes next by itself.
	Reachable func(d upgradestate.Deployment) []string
	Wants     func(d upgradestate.Deployment) (version string, ok bool)
	// CheckScratch tries whether a rehearsal could use a scratch database next to that of a
	// version, and returns its name; nil: there are no scratch databases.
	CheckScratch func(ctx context.Context, version string) (database string, err error)
	// Other reads the record of another deployment of the same coordination store.
	Other    func(ctx context.Context, name string) (upgradestate.Deployment, error)
	Settings Settings
	// ReadOnly: nothing is tried, not even in scratch collections, and nobody is asked who else
	// takes part, as for a plan that is made without a controller.
	ReadOnly bool
}

// Settings are what a plan reports of the configuration.
type Settings struct {
	Unthrottled bool // the databases are not measured while records are copied
	MaxRate     int  // documents that are copied a second; 0 is no limit
	Workers     int  // that copy
	// MaxSourceLoad is the load of the source's processors above which copying slows down; 0 is
	// no bound.
	MaxSourceLoad int
	// Coordination is how this process reaches the coordination store.
	Coordination Coordination
	// Plaintext are the hosts on other machines that are reached without TLS, by version.
	Plaintext map[string][]string
	Imports   []Import
	Referrers []Referrer
}

// Import is another deployment, to whose records those of this one refer.
type Import struct {
	Service      string // as lenses and tasks call it
	Deployment   string
	Older, Newer string // its API versions, between which its keys change
}

// Version is the one whose keys are meant; empty: those of both.
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

// Referrer is a field of another deployment's records that holds keys of this one's.
type Referrer struct {
	Deployment string
	Kind       string // of that deployment
	Field      string
	Of         string // kind of this one
}

// Coordination is how a process reaches the coordination store.
type Coordination struct {
	Endpoints []string
	Plaintext []string // those on other machines that are reached without TLS
	Embedded  bool     // it is in a process of this machine
}

// NewPlanner returns a Planner.
func NewPlanner(parts PlannerParts) *Planner { return &Planner{PlannerParts: parts} }
