package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Defaults of keys that are left out.
const (
	DefaultRingSize       = 16
	DefaultCopyWorkers    = 4
	DefaultSwitchDeadline = 10 * time.Second
	DefaultMaxLag         = 500 * time.Millisecond
	DefaultSwitchRetries  = 3
	DefaultPoolSize       = 100
	DefaultOperatorListen = "127.0.0.1:7080"
	DefaultAPIListen      = "127.0.0.1:7090"
	DefaultTraceRatio     = 0.01
)

// Config is a whole file, resolved.
type Config struct {
	Path       string // of the file
	Deployment string // services/{service}/deployments/{region}
	RingSize   int
	// InitialVersion is where the deployment begins that is not there yet. Empty: where data
	// is, or at the newest version.
	InitialVersion string
	Etcd           Etcd
	DataDir        string // empty: the command's own default
	Copy           Copy
	Switch         Switch
	Operator       string // address for health and metrics
	Metrics        string // address for health and metrics alone; empty: with the others
	ShardMetrics   bool   // metrics of each shard, besides those of all
	Profiles       bool   // pprof at the operator port
	Traces         Traces
	API            string // address of the Deployment API
	Applications   string // address of what applications call of it; empty: with the others
	Access         Access
	DBs            []DB   // in the order of the file, one for each version and place
	Kinds          []Kind // fixed-name kinds; empty for a service with managed kinds
	Updates        []Update
	Imports        []Import   // other deployments, to whose records those of this one refer
	Referrers      []Referrer // fields of other deployments' records that refer to this one's
	Hooks          []Hook
	// ShowValues has what is said of parked records quote values of them.
	ShowValues bool

	// Loaded: it was read from Path with the variables of the process, and can be so again.
	Loaded bool
}

// Traces are spans of what a controller does, for a collector.
type Traces struct {
	Endpoint string  // http://host:port or https://host:port of OTLP over gRPC; empty: none are made
	Ratio    float64 // of pages and batches that are traced
}

// Copy bounds the copying towards the next version.
type Copy struct {
	Auto    bool // begin as soon as both versions are configured
	MaxRate int  // documents a second and controller; 0 is no limit
	Workers int
	// Unthrottled: the databases are not measured, and copying does not yield to pressure.
	Unthrottled   bool
	MaxSourceLoad int    // percent of the source's processors above which copying slows down; 0 is no bound
	Window        string // HH:MM-HH:MM of UTC in which it copies; empty: at any time
}

// Switch bounds the switch.
type Switch struct {
	Deadline time.Duration // after which SWITCHING aborts by itself
	MaxHold  time.Duration // of clients' writes by one attempt; 0: as long as the deadline allows
	Retries  int           // attempts after the first that was given up by itself
	MaxLag   time.Duration // that changes may take to be applied where a shard is ready
	Hold     bool          // upgrades stay ready until they are told to switch
}

// DB is one database: that of a version, or of a version at another place.
type DB struct {
	// Version names the namespace in the Deployment: the API version, and behind an @ the
	// location of a second place, such as v1 and v1@b.
	Version       string
	APIVersion    string
	Namespace     string
	Backend       string     // mongo or etcd
	Database      string     // derived from Namespace unless the file names one; of etcd the prefix of all keys, without the slash behind it
	Endpoint      Secret     // of MongoDB
	PoolSize      int        // of MongoDB
	MajorityReads bool       // of MongoDB: what a service only shows is read as recent as a list (record.Client)
	Etcd          Etcd       // of etcd
	MaxTxnOps     int        // of etcd, as it was started; 0: its default
	MaxRequest    int        // of etcd in bytes, likewise
	Kinds         []EtcdKind // of etcd: where applications have the records of fixed-name kinds
	Disabled      bool       // while another version is active, this one is not kept in sync with it
	Encryption    Encryption
	Fixtures      []Fixtures // what the version starts with

	// Renew makes the endpoint anew of what the files hold that it names by $(file:). nil: it names none.
	Renew func(read FileReader) (string, error) `json:"-"`
}

// Kind is one fixed-name kind and the lens that transforms it between two versions. The
// lens may name further kinds, whose records it makes of this one's or puts into them.
// Where all databases are of one version, a kind has nothing but From and Fence.
type Kind struct {
	From, To string // collection names in the older and the newer version
	// Older and Newer are API versions that follow each other. Empty where there is one.
	Older, Newer string
	Lens         string // path of the lens file
	Fence        string // view, validator, writeBlock or role; empty: the strongest the cluster allows
	// Indexes are those of collections of the newer version, by name, each as extended JSON.
	// A collection that is in here gets these and none of the older version's; one of the
	// lens's further kinds that is not gets none.
	Indexes map[string][]string
	// Discontinued: the newer version has no counterpart. To and Lens are empty.
	Discontinued bool
}

// DB returns the entry of a version.
func (c Config) DB(version string) (DB, bool) {
	for _, db := range c.DBs {
		if db.Version == version {
			return db, true
		}
	}
	return DB{}, false
}

// Versions lists the configured versions in the file's order.
func (c Config) Versions() []string {
	vs := make([]string, 0, len(c.DBs))
	for _, db := range c.DBs {
		vs = append(vs, db.Version)
	}
	return vs
}

// APIVersions lists the API versions in the file's order, each once.
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

// Load reads a file. env looks a variable up; nil is the process's environment.
func Load(path string, env func(string) (string, bool)) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("load configuration: %w", err)
	}
	c, err := Parse(path, b, env)
	c.Loaded = env == nil
	return c, err
}

// Parse reads the text of a file. path is for messages, and lens paths are relative to
// its folder.
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
	if r.err != nil {
		return Config{}, r.err
	}
	for i, u := range c.Updates {
		if !filepath.IsAbs(u.Lens) {
			c.Updates[i].Lens = filepath.Join(filepath.Dir(path), u.Lens)
		}
	}
	for i, k := range c.Kinds {
		if k.Lens != "" && !filepath.IsAbs(k.Lens) {
			c.Kinds[i].Lens = filepath.Join(filepath.Dir(path), k.Lens)
		}
	}
	return c, nil
}
