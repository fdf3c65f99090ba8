package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"dbcontroller.dev/internal/base/limits"
)

// Limits of numbers. They are wide; a value outside is a typing error.
const (
	maxRingSize        = limits.RingSize
	maxWorkers         = 256
	maxSwitchRetries   = 100
	maxRate            = 10_000_000
	maxCopyDeployments = 1000
	maxPoolSize        = 10_000
)

var (
	deploymentName = regexp.MustCompile(`^services/[A-Za-z0-9][A-Za-z0-9._-]*/deployments/[A-Za-z0-9][A-Za-z0-9._-]*$`)
	versionName    = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	locationTag    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
	windowForm     = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$`)
	collectionName = regexp.MustCompile(`^[^$\x00]{1,200}$`)
)

func (r *reader) config(root node) Config {
	m := r.mapping(root, "deployment", "sharding", "etcd", "dataDir", "copy", "switch", "operator", "api", "dbs", "initialVersion", "kinds", "updates", "imports", "referrers", "access", "parked", "hooks", "rollouts", "search", "regions")
	c := Config{}
	c.Deployment = r.deploymentName(m["deployment"])
	c.RingSize = r.number(r.mapping(m["sharding"], "ringSize")["ringSize"], DefaultRingSize, 1, maxRingSize)
	c.Etcd = r.etcd(m["etcd"])
	c.DataDir, _ = r.text(m["dataDir"])

	cp := r.mapping(m["copy"], "auto", "maxRate", "workers", "throttle", "maxSourceLoad", "window", "deployments")
	c.Copy = Copy{
		Auto:          r.flag(cp["auto"], true),
		MaxRate:       r.number(cp["maxRate"], 0, 0, maxRate),
		Workers:       r.number(cp["workers"], DefaultCopyWorkers, 1, maxWorkers),
		Unthrottled:   r.choice(cp["throttle"], "auto", "off") == "off",
		MaxSourceLoad: r.number(cp["maxSourceLoad"], 0, 0, 100),
		Window:        r.window(cp["window"]),
		Deployments:   r.number(cp["deployments"], DefaultCopyDeployments, 1, maxCopyDeployments),
	}
	sw := r.mapping(m["switch"], "deadline", "maxHold", "maxLag", "retries", "automatic")
	c.Switch = Switch{
		Deadline: r.duration(sw["deadline"], DefaultSwitchDeadline, time.Second, 10*time.Minute),
		MaxHold:  r.duration(sw["maxHold"], 0, time.Second, 10*time.Minute),
		MaxLag:   r.duration(sw["maxLag"], DefaultMaxLag, 100*time.Millisecond, time.Minute),
		Retries:  r.number(sw["retries"], DefaultSwitchRetries, 0, maxSwitchRetries),
		Hold:     !r.flag(sw["automatic"], true),
	}
	op := r.mapping(m["operator"], "listen", "metrics", "shardMetrics", "pprof", "traces")
	c.Operator = r.listen(op["listen"], DefaultOperatorListen)
	c.Metrics = r.listen(op["metrics"], "")
	c.ShardMetrics = r.flag(op["shardMetrics"], false)
	c.Profiles = r.flag(op["pprof"], false)
	c.Traces = r.traces(op["traces"])
	api := r.mapping(m["api"], "listen", "applications", "page", "controllers", "records", "address", "peers", "regions")
	c.API = r.listen(api["listen"], DefaultAPIListen)
	c.Applications = r.listen(api["applications"], "")
	c.Page = r.flag(api["page"], true)
	c.ShowRecords = r.flag(api["records"], false)
	for _, item := range r.list(api["controllers"]) {
		c.Controllers = append(c.Controllers, r.controller(item))
	}
	c.Access = r.access(m["access"])
	c.Address = r.apiAddress(api["address"], c.API, c.Access.Cert != "")
	c.Peers = r.peers(r.mapping(api["peers"], peerKeys...))
	c.APIRegions = r.apiRegions(api["regions"])
	c.DBs = r.dbs(m["dbs"])
	c.InitialVersion = r.initialVersion(m["initialVersion"], c)
	c.Kinds = r.kinds(m["kinds"], c.APIVersions())
	// Needs the databases and the kinds, so it comes after both.
	r.plainKinds(m["dbs"], c)
	c.ShowValues = r.flag(r.mapping(m["parked"], "values")["values"], false)
	c.Hooks = r.hooks(m["hooks"])
	c.Search = r.search(m["search"])
	c.Regions = r.regions(m["regions"], c.Deployment)
	c.RolloutChecks = r.rolloutChecks(m["rollouts"])
	c.Updates = r.updates(m["updates"], c.APIVersions())
	c.Imports = r.imports(m["imports"], c)
	c.Referrers = r.referrers(m["referrers"], c.Deployment)
	return c
}

func (r *reader) initialVersion(n node, c Config) string {
	s, present := r.text(n)
	if _, ok := c.DB(s); present && !ok {
		r.fail(n, shown(s), "want one of dbs: "+strings.Join(c.Versions(), ", "))
	}
	return s
}

func (r *reader) window(n node) string {
	s, present := r.text(n)
	// Two equal times would mean either all day or never.
	if present && !windowForm.MatchString(s) || s != "" && s[:5] == s[6:] {
		r.fail(n, shown(s), "want HH:MM-HH:MM with two different times of the day in UTC, such as 22:00-05:00")
	}
	return s
}

func (r *reader) listen(at node, def string) string {
	s, present := r.text(at)
	if !present {
		return def
	}
	if _, _, err := net.SplitHostPort(s); err != nil {
		r.fail(at, shown(s), "want host:port, such as "+cmp.Or(def, DefaultAPIListen))
	}
	return s
}

// controller returns the address of a controller's API, which is also the origin of its page.
func (r *reader) controller(at node) string {
	s, _ := r.text(at)
	if controllerURL(s) == nil {
		r.fail(at, addressShown(s), "want http://host:port or https://host:port of the API of a controller")
	}
	return s
}

// addressShown is shown for an address, unless it may hold a password.
func addressShown(s string) string {
	if strings.Contains(s, "@") {
		return ""
	}
	return shown(s)
}

// controllerURL returns the parsed address of a controller's API, or nil if it is none.
func controllerURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Scheme+"://"+u.Host != s || strings.ContainsAny(s, " ;,'\"*") {
		return nil
	}
	return u
}

// traces requires an endpoint if the section has any key. Without an endpoint nothing is traced.
func (r *reader) traces(n node) Traces {
	// No section: no traces.
	if n.value == nil {
		return Traces{}
	}
	const form = "want http://host:port or https://host:port of a collector of OpenTelemetry (OTLP over gRPC)"
	m := r.mapping(n, "endpoint", "ratio")
	t := Traces{Endpoint: r.required(m["endpoint"], strings.TrimPrefix(form, "want ")), Ratio: r.share(m["ratio"], DefaultTraceRatio)}
	u, err := url.Parse(t.Endpoint)
	switch {
	case t.Endpoint == "":
	case err == nil && u.User != nil: // do not show the user
		r.fail(m["endpoint"], "", form+", without a user")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.Scheme+"://"+u.Host != t.Endpoint:
		r.fail(m["endpoint"], t.Endpoint, form)
	}
	return t
}

func (r *reader) dbs(n node) []DB {
	items := r.list(n)
	if len(items) == 0 {
		r.fail(n, "", "missing, want a list with one database for each version")
	}
	dbs := make([]DB, 0, len(items))
	for _, item := range items {
		at, db := r.db(item)
		for i, other := range dbs {
			r.checkTwo(items[i], other, at, db)
			// The order of the file is the order of the versions, so a version must be in one run.
			if other.APIVersion == db.APIVersion && dbs[len(dbs)-1].APIVersion != db.APIVersion {
				r.fail(at["apiVersion"], db.APIVersion, fmt.Sprintf("%s in line %d has it too, want the entries of a version one after the other", items[i].key, items[i].line))
			}
		}
		dbs = append(dbs, db)
	}
	r.onePlace(n, dbs)
	return dbs
}

var dbKeys = []string{"namespace", "backend", "apiVersion", "location", "connectionPoolSize", "mongo", "etcd", "disabled", "encryption", "fixtures"}

func (r *reader) db(n node) (map[string]node, DB) {
	m := r.mapping(n, dbKeys...)
	db := DB{
		Namespace: r.required(m["namespace"], "a name such as envs/prod/bbs/v1"),
		Backend:   r.required(m["backend"], "mongo or etcd"),
		Disabled:  r.flag(m["disabled"], false),

		Encryption: r.encryption(m["encryption"]),
		Fixtures:   r.fixtures(m["fixtures"]),
	}
	db.APIVersion = r.required(m["apiVersion"], "a version such as v1")
	// Blanks would be invisible in messages.
	if strings.ContainsFunc(db.Namespace, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		r.fail(m["namespace"], db.Namespace, "want a name without blanks and control characters")
	}
	if !versionName.MatchString(db.APIVersion) {
		r.fail(m["apiVersion"], db.APIVersion, "want lower-case letters and digits, such as v1")
	}
	// The version with its location names the namespace.
	db.Version = db.APIVersion
	if tag, present := r.text(m["location"]); present {
		if !locationTag.MatchString(tag) {
			r.fail(m["location"], shown(tag), "want up to 32 lower-case letters, digits and dashes, such as b, or no such key")
		}
		db.Version += "@" + tag
	}
	// The file may name another database below.
	db.Database = DatabaseName(db.Namespace)
	switch db.Backend {
	case "mongo":
		r.absent(m, "the backend is mongo", "etcd")
		m["database"] = r.mongo(m, &db)
	case "etcd":
		r.absent(m, "the backend is etcd", "mongo", "connectionPoolSize")
		m["database"] = r.etcdDB(m["etcd"], &db)
	default:
		r.fail(m["backend"], db.Backend, "want mongo or etcd")
	}
	return m, db
}

// mongo reads the MongoDB keys of an entry. It returns the node with the database name.
func (r *reader) mongo(m map[string]node, db *DB) (database node) {
	mongo := r.mapping(m["mongo"], "endpoint", "database", "reads")
	db.PoolSize = r.number(m["connectionPoolSize"], DefaultPoolSize, 1, maxPoolSize)
	// Linearizable is the default, because a service may base decisions on its reads.
	db.MajorityReads = r.choice(mongo["reads"], "linearizable", "majority") == "majority"
	const form = "mongodb://host:port/?options or mongodb+srv://host/?options"
	uri := r.required(mongo["endpoint"], form)
	db.Endpoint = NewSecret(uri)
	if uri != "" {
		// Keep the source text: the files may change, and Renew expands it again.
		if source, _ := r.plain(mongo["endpoint"]); strings.Contains(source, "$(file:") {
			db.Renew = func(read FileReader) (string, error) { return expand(source, r.env, read) }
		}
	}
	// An endpoint without hosts can never connect.
	if scheme, hosts := hostsOf(uri); len(hosts) == 0 || scheme != "mongodb" && scheme != "mongodb+srv" {
		// Do not show the value of a variable: it may be just a password.
		if source := raw(mongo["endpoint"].value); strings.Contains(source, "$(") {
			uri = strings.Trim(source, `"'`)
		}
		r.fail(mongo["endpoint"], uri, "want "+form)
	}
	if name, present := r.text(mongo["database"]); present {
		// An empty name is a mistake, because a missing key already means the default.
		if err := checkDatabase(name); err != nil || name == "" {
			r.fail(mongo["database"], shown(name), "want "+wantDatabase(err))
		}
		db.Database = name
	}
	return mongo["database"]
}

func wantDatabase(err error) string {
	if err == nil {
		return "a database name, or no such key"
	}
	return err.Error()
}

// checkTwo refuses two entries that use the same version, namespace or place.
func (r *reader) checkTwo(first node, a DB, at map[string]node, b DB) {
	switch {
	case a.Version == b.Version:
		where, value := at["location"], strings.TrimPrefix(b.Version, b.APIVersion+"@")
		if where.value == nil {
			where, value = at["apiVersion"], b.APIVersion
		}
		r.fail(where, value, fmt.Sprintf("%s in line %d has it already, want one entry for each version and location", first.key, first.line))
	case a.Namespace == b.Namespace:
		r.fail(at["namespace"], b.Namespace, fmt.Sprintf("%s in line %d has it already, want a namespace for each entry", first.key, first.line))
	case a.meets(b):
		where := at["database"]
		if where.value == nil {
			where = at["namespace"]
		}
		r.fail(where, b.Database, fmt.Sprintf("%s in line %d is the same database on the same endpoint, want a database for each entry", first.key, first.line))
	}
}

func (r *reader) collection(n node) string {
	s := r.required(n, "a collection name")
	if !collectionName.MatchString(s) || strings.HasPrefix(s, "system.") {
		r.fail(n, s, "want a collection name without $ that does not begin with system.")
	}
	return s
}
