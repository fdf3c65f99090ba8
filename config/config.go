package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Defaults of missing keys.
const (
	DefaultRingSize        = 16
	DefaultCopyWorkers     = 4
	DefaultCopyDeployments = 8
	DefaultSwitchDeadline  = 10 * time.Second
	DefaultMaxLag          = 500 * time.Millisecond
	DefaultSwitchRetries   = 3
	DefaultPoolSize        = 100
	DefaultOperatorListen  = "127.0.0.1:7080"
	DefaultAPIListen       = "127.0.0.1:7090"
	DefaultTraceRatio      = 0.01
)

// Config is a whole configuration file with defaults and variables filled in.
type Config struct {
	Path       string // of the file
	Deployment string // services/{service}/deployments/{region}
	RingSize   int
	// InitialVersion is the first version of a deployment that does not exist yet. Empty: the
	// version with data, or the newest.
	InitialVersion string
	Etcd           Etcd
	DataDir        string // empty: the command's own default
	Copy           Copy
	Switch         Switch
	Operator       string // address for health and metrics
	Metrics        string // separate address for health and metrics; empty: none
	ShardMetrics   bool   // metrics of each shard, in addition
	Profiles       bool   // pprof at the operator port
	Traces         Traces
	API            string // address of the Deployment API
	Applications   string // separate address for the calls of applications; empty: none
	Page           bool   // serve the page for operators with the API
	// Controllers are the addresses of the APIs of all controllers, for the page: it goes to the next
	// one when its own controller is gone. Empty: only its own.
	Controllers []string
	// ShowRecords lets operators read single records on the page.
	ShowRecords bool
	// Address is what other controllers reach this process's API under. Empty: it is not announced, and
	// they forward no calls to it.
	Address    string
	Peers      Peers // how this process proves itself to controllers with announced addresses
	APIRegions []APIRegion
	Access     Access
	DBs        []DB   // in the order of the file, one for each version and place
	Kinds      []Kind // fixed-name kinds; empty for a service with managed kinds
	Updates    []Update
	Imports    []Import   // other deployments that this one's records refer to
	Referrers  []Referrer // fields of other deployments' records that refer to this one
	Hooks      []Hook
	Search     Search
	Regions    Regions
	// RolloutChecks are the checks that gates of rollouts can name.
	RolloutChecks []RolloutCheck
	// ShowValues allows the errors of parked records to quote values.
	ShowValues bool

	// Loaded is set if the file was read from Path with the process's environment, so that it can
	// be read again.
	Loaded bool
}

// Traces configures spans of a controller's work for a collector.
type Traces struct {
	Endpoint string  // OTLP over gRPC, http://host:port or https://host:port; empty: no traces
	Ratio    float64 // share of pages and batches that are traced, 0 to 1
}

// Copy limits the copy to the next version.
type Copy struct {
	Auto    bool // begin as soon as both versions are configured
	MaxRate int  // documents per second for each controller; 0: no limit
	Workers int
	// Unthrottled turns off measuring the databases. Copying then does not slow down under load.
	Unthrottled   bool
	MaxSourceLoad int    // percent of the source's processors that slows copying; 0: no limit
	Window        string // HH:MM-HH:MM in UTC for copying; empty: any time
	Deployments   int    // of one process that copy at the same time
}

// Switch limits the switch.
type Switch struct {
	Deadline time.Duration // SWITCHING aborts after this time
	MaxHold  time.Duration // of clients' writes in one attempt; 0: up to the deadline
	Retries  int           // further attempts after one that gave up by itself
	MaxLag   time.Duration // longest delay of changes in a ready shard
	Hold     bool          // upgrades wait for 'switch' when ready
}

// DB is one database: the database of a version, or of a version at a second place.
type DB struct {
	// Version names the namespace in the Deployment. It is the API version, with @ and the location
	// for a second place, such as v1 and v1@b.
	Version       string
	APIVersion    string
	Namespace     string
	Backend       string     // mongo or etcd
	Database      string     // from Namespace unless set; for etcd the key prefix without last slash
	Endpoint      Secret     // of MongoDB
	PoolSize      int        // of MongoDB
	MajorityReads bool       // of MongoDB: reads for display are as recent as a list (record.Client)
	Etcd          Etcd       // of etcd
	MaxTxnOps     int        // of etcd, as configured there; 0: its default
	MaxRequest    int        // of etcd in bytes, as configured there; 0: its default
	Kinds         []EtcdKind // of etcd: prefixes of applications' fixed-name kinds
	Disabled      bool       // do not keep it in sync while another version is active
	Encryption    Encryption
	Fixtures      []Fixtures // records that the version starts with

	// Renew returns the endpoint with the current contents of the files that it names with
	// $(file:). Nil: it names none.
	Renew func(read FileReader) (string, error) `json:"-"`
	// Certificates is a digest of the certificates and keys whose files the endpoint names. Two logins
	// with equal endpoints can differ in it alone. Only WatchLogin and Renewed set it. "": no such files.
	Certificates string `json:"-"`
}

// Kind is one fixed-name kind, and the lens that transforms it between two versions. The lens may
// name further kinds, which it fills from this kind's records or merges into them. If all databases
// have one version, a kind has only From and Fence.
type Kind struct {
	From, To string // collection names in the older and the newer version
	// Older and Newer are consecutive API versions. They are empty if there is only one.
	Older, Newer string
	Lens         string // path of the lens file
	Fence        string // view, validator, writeBlock or role; empty: the strongest possible
	// Indexes holds the indexes of the newer version's collections, by collection name, as extended
	// JSON. A listed collection gets these indexes, and none of the older version's. A further kind
	// of the lens that is not listed gets none.
	Indexes map[string][]string
	// Discontinued means that the newer version has no such kind. To and Lens are then empty.
	Discontinued bool
}

// DB returns the entry of a version. It returns false if there is none.
func (c Config) DB(version string) (DB, bool) {
	for _, db := range c.DBs {
		if db.Version == version {
			return db, true
		}
	}
	return DB{}, false
}

// Versions returns the configured versions in the order of the file.
func (c Config) Versions() []string {
	vs := make([]string, 0, len(c.DBs))
	for _, db := range c.DBs {
		vs = append(vs, db.Version)
	}
	return vs
}

// APIVersions returns the API versions in the order of the file, each once.
func (c Config) APIVersions() []string { return apiVersions(c.DBs) }

func apiVersions(dbs []DB) []string {
	var vs []string
	for _, db := range dbs {
		if !slices.Contains(vs, db.APIVersion) {
			vs = append(vs, db.APIVersion)
		}
	}
	return vs
}

// Load reads a configuration file. env looks up a variable; nil means the process's environment. A
// refusal is an *Error.
func Load(path string, env func(string) (string, bool)) (Config, error) {
	b, err := os.ReadFile(path) // #nosec G304 -- operators name the file
	if err != nil {
		return Config{}, fmt.Errorf("load configuration: %w", err)
	}
	c, err := Parse(path, b, env)
	c.Loaded = env == nil
	return c, err
}

// Parse reads the text of a configuration file. path is for messages, and relative paths are
// relative to its folder. A refusal is an *Error.
func Parse(path string, text []byte, env func(string) (string, bool)) (Config, error) {
	if env == nil {
		env = os.LookupEnv
	}
	r := &reader{file: filepath.Base(path), folder: filepath.Dir(path), env: env}
	root, err := r.parse(text)
	if err != nil {
		return Config{}, err
	}
	c := r.config(root)
	c.Path = path
	// Report the first refusal; values after it may be meaningless.
	if r.err != nil {
		return Config{}, r.err
	}
	for i, u := range c.Updates {
		if !filepath.IsAbs(u.Lens) {
			c.Updates[i].Lens = filepath.Join(filepath.Dir(path), u.Lens)
		}
	}
	// Lens paths are relative to the file, and not to the working directory.
	for i, k := range c.Kinds {
		if k.Lens != "" && !filepath.IsAbs(k.Lens) {
			c.Kinds[i].Lens = filepath.Join(filepath.Dir(path), k.Lens)
		}
	}
	return c, nil
}
