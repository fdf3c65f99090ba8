package config

import (
	"fmt"
	"iter"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Proxy is the configuration of dbcontroller proxy, a file of its own.
type Proxy struct {
	Listen      string // HOST:PORT
	Metrics     string // HOST:PORT for health and metrics; empty: none
	Cert, Key   string // certificate files of the listener; empty: no TLS
	ClientCA    string // file of authorities, one of which must have signed a client's certificate; empty: none required
	Upstream    string // connection string of the cluster with everything that no deployment names
	Grace       time.Duration
	Connections int
	Memory      int // MB of messages of clients at a time
	Users       []ProxyUser
	Deployments []ProxyDeployment
}

// ProxyDeployment is a deployment whose kinds an application uses through a proxy.
type ProxyDeployment struct {
	Name        string   // empty: that of the first controller that answers
	Application string   // name by which the proxy registers
	Controllers []string // HOST:PORT or https://HOST:PORT
	CA          string   // file; empty: the system's authorities
	Cert, Key   string   // files of the proxy's certificate for the controllers; empty: none
	Token       string   // file of a bearer token; empty: none
	Database    string   // of the application
	Collections map[string]string
	URIs        map[string]string // connection strings by version
	Memory      string            // file; empty: none
}

// Defaults of a proxy.
const (
	defaultGrace       = 500 * time.Millisecond
	defaultConnections = 10_000
	defaultMemory      = 1024
)

// longestGrace is the time that controllers wait for those who write. A longer grace would end behind the
// fence, which ends transactions itself.
const longestGrace = time.Second

// LoadProxy reads the configuration of a proxy. env looks up a variable; nil means the process's
// environment. A refusal is an *Error.
func LoadProxy(path string, env func(string) (string, bool)) (Proxy, error) {
	b, err := os.ReadFile(path) // #nosec G304 -- operators name the file
	if err != nil {
		return Proxy{}, fmt.Errorf("load configuration: %w", err)
	}
	return ParseProxy(path, b, env)
}

// ParseProxy reads the text of a proxy's configuration. path is for messages, and relative paths are
// relative to its folder.
func ParseProxy(path string, text []byte, env func(string) (string, bool)) (Proxy, error) {
	if env == nil {
		env = os.LookupEnv
	}
	r := &reader{file: filepath.Base(path), folder: filepath.Dir(path), env: env}
	root, err := r.parse(text)
	if err != nil {
		return Proxy{}, err
	}
	p := r.proxy(root)
	if r.err != nil {
		return Proxy{}, r.err
	}
	return p, nil
}

func (r *reader) proxy(n node) Proxy {
	m := r.mapping(n, "listen", "metrics", "tls", "upstream", "grace", "connections", "memoryMB", "users", "deployments")
	tls := r.mapping(m["tls"], "cert", "key", "clientCA")
	p := Proxy{
		Listen:   r.required(m["listen"], "an address such as 127.0.0.1:27018"),
		Metrics:  r.listen(m["metrics"], ""),
		Cert:     r.path(tls["cert"]),
		Key:      r.path(tls["key"]),
		ClientCA: r.path(tls["clientCA"]),
		Upstream: r.mongoURI(m["upstream"]),
		Grace:    r.duration(m["grace"], defaultGrace, time.Millisecond, longestGrace), Connections: r.number(m["connections"], defaultConnections, 1, 1_000_000),
		Memory: r.number(m["memoryMB"], defaultMemory, 64, 1<<20), Users: r.proxyUsers(m["users"]),
	}
	switch _, _, err := net.SplitHostPort(p.Listen); {
	case err != nil:
		r.fail(m["listen"], p.Listen, "want HOST:PORT")
	case (p.Cert == "") != (p.Key == ""):
		r.fail(m["tls"], "", "want the files of both cert and key, or of neither")
	case p.Metrics != "" && !local(p.Metrics):
		r.fail(m["metrics"], p.Metrics, "want an address of this machine, such as 127.0.0.1:9090")
	case p.ClientCA != "" && p.Cert == "":
		r.fail(tls["cert"], "", "missing, want the file of a certificate where client certificates are asked for")
	case len(p.Users) > 0 && p.Cert == "" && !local(p.Listen):
		r.fail(m["listen"], p.Listen, "want tls.cert and tls.key, too: without TLS, others on the network can use the connection of a client that has logged in")
	// Whoever reaches the proxy acts with its login.
	case len(p.Users) == 0 && p.ClientCA == "" && !local(p.Listen):
		r.fail(m["listen"], p.Listen, "want tls.clientCA, too: clients on other machines must show a certificate, because the proxy uses its own login for all of them; or name users")
	}
	for _, item := range r.list(m["deployments"]) {
		p.Deployments = append(p.Deployments, r.proxyDeployment(item, p.Deployments))
	}
	if len(p.Deployments) == 0 {
		r.fail(m["deployments"], "", "missing, want the deployments whose collections move")
	}
	return p
}

// local reports whether only this machine reaches an address.
func local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// mongoURI reads the connection string of a MongoDB cluster.
func (r *reader) mongoURI(n node) string {
	uri := r.required(n, "a connection string that begins with mongodb:// or mongodb+srv://")
	if r.err == nil && !strings.HasPrefix(uri, "mongodb://") && !strings.HasPrefix(uri, "mongodb+srv://") {
		r.fail(n, uri, "want a connection string that begins with mongodb:// or mongodb+srv://")
	}
	return uri
}

func (r *reader) proxyDeployment(n node, before []ProxyDeployment) ProxyDeployment {
	m := r.mapping(n, "name", "application", "controllers", "access", "database", "collections", "uris", "memory")
	access := r.mapping(m["access"], "tlsCA", "tlsCert", "tlsKey", "token")
	d := ProxyDeployment{
		Application: r.required(m["application"], "a name such as shop-proxy"), Database: r.required(m["database"], "the name of the application's database"),
		CA: r.path(access["tlsCA"]), Cert: r.path(access["tlsCert"]), Key: r.path(access["tlsKey"]), Token: r.path(access["token"]),
		Memory: r.path(m["memory"]), Collections: map[string]string{}, URIs: map[string]string{},
	}
	d.Name, _ = r.text(m["name"])
	for _, item := range r.list(m["controllers"]) {
		d.Controllers = append(d.Controllers, r.required(item, "the address of a controller"))
	}
	if len(d.Controllers) == 0 {
		r.fail(m["controllers"], "", "missing, want the addresses of all controllers")
	}
	for name, item := range r.entries(m["collections"]) {
		kind := r.required(item, "the kind of this collection")
		for _, other := range before {
			if other.Database == d.Database && other.Collections[name] != "" {
				r.fail(item, name, "given by another deployment, too")
			}
		}
		for other, of := range d.Collections {
			if of == kind {
				r.fail(item, kind, "already the kind of "+other)
			}
		}
		d.Collections[name] = kind
	}
	if len(d.Collections) == 0 {
		r.fail(m["collections"], "", "missing, want the kind of each collection that moves, such as {orders: orders}")
	}
	for version, item := range r.entries(m["uris"]) {
		d.URIs[version] = r.mongoURI(item)
	}
	if len(d.URIs) == 0 {
		r.fail(m["uris"], "", "missing, want the connection string of each version's cluster, such as {v1: mongodb://a, v2: mongodb://b}")
	}
	return d
}

// entries yields the entries of a mapping whose keys are names of the user.
func (r *reader) entries(n node) iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		if n.value == nil {
			return
		}
		list, ok := entriesOf(n.value)
		if !ok {
			r.fail(n, raw(n.value), "want a mapping")
			return
		}
		seen := map[string]bool{}
		for _, e := range list {
			name := e.Key.GetToken().Value
			at := node{key: join(n.key, name), line: e.Key.GetToken().Position.Line, value: e.Value}
			if seen[name] {
				r.fail(at, "", "given twice")
			}
			seen[name] = true
			if !yield(name, at) {
				return
			}
		}
	}
}
