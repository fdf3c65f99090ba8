package config

import (
	"regexp"
	"strings"
)

// Limits of the configured limits of an etcd. etcd accepts no more, or not sensibly.
const (
	maxTxnOps       = 100_000
	leastTxnOps     = 16
	maxRequestBytes = 64 << 20
	leastRequest    = 64 << 10
)

// coordinationPrefix begins the keys of the coordination store in any etcd.
const coordinationPrefix = "/dbcontroller/"

var prefixForm = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)

// Prefix derives the key prefix of a namespace in etcd: a slash and the name that DatabaseName
// gives. The keys have another slash after it.
func Prefix(namespace string) string { return "/" + DatabaseName(namespace) }

// EtcdKind is the place of a fixed-name kind in etcd.
type EtcdKind struct {
	Name   string
	Prefix string // of the keys, without the last slash
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
		// A prefix must be a whole path, so that no other key begins with it by chance.
		if k.Prefix != "" && (!prefixForm.MatchString(k.Prefix) || len(k.Prefix) > maxDatabase) {
			r.fail(m["prefix"], shown(k.Prefix), "want names of letters, digits and ._- with a slash before each, such as /shop/orders, 63 bytes at most")
		}
		for _, other := range taken {
			// Compare with a slash at the end: /shop is no prefix of /shopping/.
			if strings.HasPrefix(k.Prefix+"/", other+"/") || strings.HasPrefix(other+"/", k.Prefix+"/") {
				r.fail(m["prefix"], k.Prefix, "want another one: "+other+" has other keys, and neither may be below the other")
			}
		}
		for _, other := range db.Kinds {
			if other.Name == k.Name {
				r.fail(m["name"], k.Name, "want each kind once")
			}
		}
		// Later kinds must not overlap with this one.
		taken = append(taken, k.Prefix)
		db.Kinds = append(db.Kinds, k)
	}
}

// etcdDB reads the etcd keys of an entry. It returns the node with the prefix.
func (r *reader) etcdDB(n node, db *DB) (prefix node) {
	m := r.mapping(n, append([]string{"prefix", "kinds", "maxTxnOps", "maxRequestBytes"}, etcdKeys...)...)
	db.Etcd = r.etcdOf(m)
	if len(db.Etcd.Endpoints) == 0 {
		r.fail(m["endpoints"], "", "missing, want a list of host:port")
	}
	db.MaxTxnOps = r.number(m["maxTxnOps"], 0, leastTxnOps, maxTxnOps)
	db.MaxRequest = r.number(m["maxRequestBytes"], 0, leastRequest, maxRequestBytes)
	// The file may name another prefix below.
	db.Database = Prefix(db.Namespace)
	if name, present := r.text(m["prefix"]); present {
		switch {
		case !prefixForm.MatchString(name) || len(name) > maxDatabase:
			r.fail(m["prefix"], shown(name), "want names of letters, digits and ._- with a slash before each, such as /prod/bbs/v1, 63 bytes at most")
		// Records there could overwrite the state of upgrades.
		case strings.HasPrefix(name+"/", coordinationPrefix):
			r.fail(m["prefix"], name, "want another one: below /dbcontroller/ are the keys of the coordination store")
		}
		db.Database = name
	}
	r.etcdKinds(m["kinds"], db)
	return m["prefix"]
}

// prefixes returns the beginnings of all keys of an entry, with those of its applications.
func (d DB) prefixes() []string {
	all := []string{d.Database + "/"}
	for _, k := range d.Kinds {
		all = append(all, k.Prefix+"/")
	}
	return all
}
