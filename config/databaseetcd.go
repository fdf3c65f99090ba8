package config

import (
	"regexp"
	"strings"
)

// Bounds of what an etcd is said to take. etcd itself takes these at most, or sensibly.
const (
	maxTxnOps       = 100_000
	leastTxnOps     = 16
	maxRequestBytes = 64 << 20
	leastRequest    = 64 << 10
)

// coordinationPrefix begins the keys of the coordination store, in whatever etcd it is.
const coordinationPrefix = "/dbcontroller/"

var prefixForm = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

// Prefix derives the beginning of the keys that a namespace has in etcd: a slash and the name
// that its database would have in MongoDB (DatabaseName). A slash stands behind it.
func Prefix(namespace string) string { return "/" + DatabaseName(namespace) }

// EtcdKind is where an application has the records of a fixed-name kind in etcd.
type EtcdKind struct {
	Name   string
	Prefix string // of the keys, without the slash behind it
	Format string // of the values: json or bson
}

// etcdKinds reads the fixed-name kinds of a database in etcd.
func (r *reader) etcdKinds(n node, db *DB) {
	taken := []string{db.Database, strings.TrimSuffix(coordinationPrefix, "/")}
	for _, item := range r.list(n) {
		m := r.mapping(item, "name", "prefix", "format")
		k := EtcdKind{Name: r.collection(m["name"]), Format: r.choice(m["format"], "json", "bson")}
		if k.Format == "" {
			k.Format = "json"
		}
		k.Prefix = r.required(m["prefix"], "what the application's keys begin with")
		if k.Prefix != "" && (!prefixForm.MatchString(k.Prefix) || len(k.Prefix) > maxDatabase) {
			r.fail(m["prefix"], shown(k.Prefix), "want names of letters, digits and ._- with a slash before each, such as /shop/orders, 63 bytes at most")
		}
		for _, other := range taken {
			if strings.HasPrefix(k.Prefix+"/", other+"/") || strings.HasPrefix(other+"/", k.Prefix+"/") {
				r.fail(m["prefix"], k.Prefix, "want another one: "+other+" has other keys, and neither may be below the other")
			}
		}
		for _, other := range db.Kinds {
			if other.Name == k.Name {
				r.fail(m["name"], k.Name, "want each kind once")
			}
		}
		taken = append(taken, k.Prefix)
		db.Kinds = append(db.Kinds, k)
	}
}

// etcdDB reads what an entry has for etcd, and returns where it names the prefix.
func (r *reader) etcdDB(n node, db *DB) (prefix node) {
	m := r.mapping(n, append([]string{"prefix", "kinds", "maxTxnOps", "maxRequestBytes"}, etcdKeys...)...)
	db.Etcd = r.etcdOf(m)
	if len(db.Etcd.Endpoints) == 0 {
		r.fail(m["endpoints"], "", "missing, want a list of host:port")
	}
	db.MaxTxnOps = r.number(m["maxTxnOps"], 0, leastTxnOps, maxTxnOps)
	db.MaxRequest = r.number(m["maxRequestBytes"], 0, leastRequest, maxRequestBytes)
	db.Database = Prefix(db.Namespace)
	if name, present := r.text(m["prefix"]); present {
		switch {
		case !prefixForm.MatchString(name) || len(name) > maxDatabase:
			r.fail(m["prefix"], shown(name), "want names of letters, digits and ._- with a slash before each, such as /prod/bbs/v1, 63 bytes at most")
		case strings.HasPrefix(name+"/", coordinationPrefix):
			r.fail(m["prefix"], name, "want another one: below /dbcontroller/ are the keys of the coordination store")
		}
		db.Database = name
	}
	r.etcdKinds(m["kinds"], db)
	return m["prefix"]
}

// prefixes are what all keys begin with that an entry is about, its applications' included.
func (d DB) prefixes() []string {
	all := []string{d.Database + "/"}
	for _, k := range d.Kinds {
		all = append(all, k.Prefix+"/")
	}
	return all
}
