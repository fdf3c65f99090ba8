package controller

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"dbcontroller.dev/internal/control/controller/rollouts"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/hooks"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// Options holds the values that differ between the controllers of a deployment, and test hooks.
// Settings holds the shared values.
type Options struct {
	ID    string              // name of this controller; unique among those alive
	Carry collections.Carries // gives targets the options and indexes of fixed-name kinds
	// StartupWait is the time that the first start of a deployment waits for databases that are
	// unreachable or have no primary. A mistake in the configuration looks the same, so the
	// controller then gives up. A deployment that already has namespaces waits without limit.
	StartupWait time.Duration
	// Aside creates a separate coordination store for each rehearsal. The store lives as long as
	// the process. Nil: rehearsals are not possible.
	Aside func() coord.Store
	Build api.Build // build information, for the API
	// Tracer creates spans for the controller's work. Nil creates none. Rehearsals create none.
	Tracer trace.Tracer
	// Wrap, if not nil, wraps each version's database. Tests use it to stop a controller at a
	// chosen place.
	Wrap func(version string, ns record.Namespace) record.Namespace

	// Rollouts are the rollouts in the coordination store, shared by the controllers of a process.
	// Nil: this controller has its own.
	Rollouts *deployment.Rollouts
	// RolloutLook is the time between two looks at the deployments of a wave. 0 means the default.
	RolloutLook time.Duration
	// BeatEvery is the interval of the beats in each database while nothing else happens, and of the
	// looks whether etcd has the record. 0 means the default, a second.
	BeatEvery time.Duration
	// Turns limits the copies of all controllers of a process. Nil: no limit.
	Turns *throttle.Turns

	// reads marks a rehearsal controller over the real source. It never switches, and tries out
	// nothing in the databases, not even in scratch collections.
	reads bool
	// alone means that the App only reads, and that it is the only process of its deployment.
	alone bool
	// quiet marks a rehearsal controller. Its work must not disturb other clients of the server.
	quiet bool
}

// Settings configures a controller and its databases. All controllers of a deployment should use
// the same settings.
type Settings struct {
	File       string // name of the configuration file, for messages
	Deployment string // services/{service}/deployments/{region}
	RingSize   int
	// InitialVersion is the version at which a new deployment begins. Empty: the version that has
	// data, or else the newest.
	InitialVersion string
	Databases      []Database // one for each version and location, older versions first
	// Fences sets the required fence class of fixed-name kinds, by kind of either version. Other
	// kinds get the strongest class that their database allows.
	Fences map[string]record.FenceClass
	Copy   Copy
	Switch Switch
	// Coordination describes this process's access to the coordination store, for plans.
	Coordination preflight.Coordination
	Hooks        []hooks.Hook // receive events
	// RolloutChecks are the checks that gates of rollouts can name.
	RolloutChecks map[string]rollouts.Check
	Imports       []Import // other deployments to whose records this one refers
	Referrers     []preflight.Referrer
	// ShardMetrics adds metrics of each shard.
	ShardMetrics bool
	// ShowValues lets messages about parked records quote their values.
	ShowValues bool
	// ShowRecords lets operators read single records by the API.
	ShowRecords bool
}

// Database is the database of a version at one location.
type Database struct {
	// Version names the namespace in the Deployment. It is the API version, and for a second
	// location also @ and its name, such as v1 and v1@b.
	Version    string
	APIVersion string
	Name       string   // name on its server
	Location   string   // backend and name, shown for announced namespaces
	Hosts      string   // shown likewise
	Plaintext  []string // remote hosts reached without TLS
	Disabled   bool     // not kept in sync while another version is active
}

// Copy limits the copy to the next version.
type Copy struct {
	Auto    bool // begin as soon as both versions are configured
	MaxRate int  // documents per second and controller; 0: no limit
	Workers int
	Page    int // records per read; 0: the engine's default
	// Unthrottled turns off the measurement of the databases. Copying then ignores their load.
	Unthrottled   bool
	MaxSourceLoad int    // percent of the source's CPU above which copying slows down; 0: no limit
	Window        string // HH:MM-HH:MM in UTC, the only time in which it copies; empty: always
}

// Switch limits the switch.
type Switch struct {
	Policy      upgradestate.Policy // what upgrades leave out; zero fields: the driver's defaults
	HoldTimeout time.Duration       // time for servers to hold writes; 0: the driver's default
	MaxLag      time.Duration       // longest lag of a shard that is ready
}

// Database returns the entry of a version, and false if there is none.
func (s Settings) Database(version string) (Database, bool) {
	for _, db := range s.Databases {
		if db.Version == version {
			return db, true
		}
	}
	return Database{}, false
}

// Versions returns the versions in the order of Databases.
func (s Settings) Versions() []string {
	vs := make([]string, 0, len(s.Databases))
	for _, db := range s.Databases {
		vs = append(vs, db.Version)
	}
	return vs
}

// fits returns an error if this binary or its configuration does not fit the Deployment.
func (s Settings) fits(d upgradestate.Deployment) error {
	if d.RingSize != s.RingSize {
		return fmt.Errorf("sharding.ringSize is %d, but %s has a ring of %d, which cannot change: correct the configuration", s.RingSize, d.Name, d.RingSize)
	}
	if decision := upgradestate.Decide(s.Versions(), &d); !decision.Role.Controls() {
		return fmt.Errorf("%s: %s", d.Name, decision.Reason)
	}
	return nil
}

// pacing returns the configured limits for bulk work, without measurement of databases.
func (s Settings) pacing() throttle.Config {
	return throttle.Config{MaxRate: s.Copy.MaxRate, MaxSourceLoad: s.Copy.MaxSourceLoad, Window: s.Copy.Window}
}
