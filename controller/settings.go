package controller

import (
	"time"

	"dbcontroller.dev/hooks"
	"dbcontroller.dev/preflight"
	"dbcontroller.dev/record"
	"dbcontroller.dev/throttle"
)

// Settings say what a controller is to do, and over which databases. Every controller of a
// deployment should have the same.
type Settings struct {
	File       string // name of the configuration file, for messages
	Deployment string // services/{service}/deployments/{region}
	RingSize   int
	// InitialVersion is where a deployment begins that is not there yet. Empty: where data is,
	// or at the newest version.
	InitialVersion string
	Databases      []Database // one for each version and place, the older versions first
	// Fences are the classes that fixed-name kinds must have, by kind of either version; of
	// the others the strongest that the database allows.
	Fences map[string]record.FenceClass
	Copy   Copy
	Switch Switch
	// Coordination is how this process reaches the coordination store, for plans.
	Coordination preflight.Coordination
	Hooks        []hooks.Hook // are told of what happens
	Imports      []Import     // other deployments, to whose records those of this one refer
	Referrers    []preflight.Referrer
	// ShardMetrics has metrics show each shard by itself, too.
	ShardMetrics bool
	// ShowValues has what is said of parked records quote values of them.
	ShowValues bool
}

// Database is one database: that of a version, or of a version at another place.
type Database struct {
	// Version names the namespace in the Deployment: the API version, and behind an @ the
	// location of a second place, such as v1 and v1@b.
	Version    string
	APIVersion string
	Name       string   // on its server
	Location   string   // for people, of namespaces that are announced; the backend and the name
	Hosts      string   // for people, likewise
	Plaintext  []string // hosts on other machines that are reached without TLS
	Disabled   bool     // while another version is active, this one is not kept in sync with it
}

// Copy bounds the copying towards the next version.
type Copy struct {
	Auto    bool // begin as soon as both versions are configured
	MaxRate int  // documents a second and controller; 0 is no limit
	Workers int
	Page    int // records that are read at once; 0: as many as the engine thinks right
	// Unthrottled: the databases are not measured, and copying does not yield to pressure.
	Unthrottled   bool
	MaxSourceLoad int    // percent of the source's processors above which copying slows down; 0 is no bound
	Window        string // HH:MM-HH:MM of UTC in which it copies; empty: at any time
}

// Switch bounds the switch.
type Switch struct {
	Deadline    time.Duration // after which SWITCHING aborts by itself; 0: as the driver thinks right
	HoldTimeout time.Duration // that servers have to hold writes; 0: likewise
	MaxHold     time.Duration // of clients' writes by one attempt; 0: as long as the deadline allows
	Retries     int           // attempts after the first that was given up by itself
	MaxLag      time.Duration // that changes may take to be applied where a shard is ready
	Hold        bool          // upgrades stay ready until they are told to switch
}

// Database returns the entry of a version.
func (s Settings) Database(version string) (Database, bool) {
	for _, db := range s.Databases {
		if db.Version == version {
			return db, true
		}
	}
	return Database{}, false
}

// Versions lists the versions in their order.
func (s Settings) Versions() []string {
	vs := make([]string, 0, len(s.Databases))
	for _, db := range s.Databases {
		vs = append(vs, db.Version)
	}
	return vs
}

// pacing is how bulk work is held back as configured, without what is measured.
func (a *App) pacing() throttle.Config {
	return throttle.Config{MaxRate: a.cfg.Copy.MaxRate, MaxSourceLoad: a.cfg.Copy.MaxSourceLoad, Window: a.cfg.Copy.Window}
}

// pacer holds an engine's bulk work back as configured. What cannot be measured, for want
// of a way and not of a privilege, is not.
func (a *App) pacer(source, target record.Namespace) *throttle.Pacer {
	cfg := a.pacing()
	if !a.cfg.Copy.Unthrottled {
		cfg.Source, _ = source.(record.Monitor)
		cfg.Target, _ = target.(record.Monitor)
	}
	return throttle.New(cfg)
}
