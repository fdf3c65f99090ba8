package config

import (
	"net"
	"net/url"
	"path/filepath"
	"strings"
)

// Etcd is an etcd and how to get in: the coordination store, or that of a database. The files
// are read when they are needed, so that what is in them may change.
type Etcd struct {
	Endpoints    []string // empty, of the coordination store: an embedded etcd, found through Config.DataDir
	CAFile       string   // of the authority that etcd's certificates must be signed by; empty: the system's
	CertFile     string   // of the client, with KeyFile; empty: none
	KeyFile      string
	User         string // empty: none
	PasswordFile string
}

// IsTLS reports whether the endpoints are reached by TLS.
func (e Etcd) IsTLS() bool {
	return len(e.Endpoints) > 0 && !strings.HasPrefix(e.Endpoints[0], "http://") &&
		(e.CAFile != "" || e.CertFile != "" || strings.HasPrefix(e.Endpoints[0], "https://"))
}

// Refusal says which key is wrong, and what is wanted; empty if the keys fit together.
func (e Etcd) Refusal() (key, want string) {
	secure := e.CAFile != "" || e.CertFile != ""
	for _, endpoint := range e.Endpoints {
		if strings.HasPrefix(endpoint, "unix:///") {
			continue // as an embedded etcd has it
		}
		if _, _, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(endpoint, "http://"), "https://")); err != nil {
			return "endpoints", "want host:port"
		}
		if strings.HasPrefix(endpoint, "https://") != strings.HasPrefix(e.Endpoints[0], "https://") {
			return "endpoints", "want https:// before all of them or none"
		}
		if secure && strings.HasPrefix(endpoint, "http://") {
			return "endpoints", "want https://, for caFile and certFile are of no use without"
		}
	}
	switch {
	case e.CertFile != "" && e.KeyFile == "":
		return "keyFile", "missing, want the key of certFile"
	case e.KeyFile != "" && e.CertFile == "":
		return "certFile", "missing, want the certificate of keyFile"
	case e.User != "" && e.PasswordFile == "":
		return "passwordFile", "missing, want a file with the password of user"
	case e.PasswordFile != "" && e.User == "":
		return "user", "missing, want the user whose password is in passwordFile"
	case len(e.Endpoints) == 0 && (secure || e.User != ""):
		return "endpoints", "missing, want host:port: an embedded etcd has no certificates and users to be given"
	}
	return "", ""
}

// etcdKeys are those of an etcd, whatever it is for.
var etcdKeys = []string{"endpoints", "caFile", "certFile", "keyFile", "user", "passwordFile"}

func (r *reader) etcd(n node) Etcd { return r.etcdOf(r.mapping(n, etcdKeys...)) }

// etcdOf reads the keys of an etcd among others.
func (r *reader) etcdOf(m map[string]node) Etcd {
	e := Etcd{}
	for _, item := range r.list(m["endpoints"]) {
		s := r.required(item, "host:port")
		if key, want := (Etcd{Endpoints: []string{s}}).Refusal(); key != "" {
			r.fail(item, s, want)
		}
		e.Endpoints = append(e.Endpoints, s)
	}
	e.CAFile, e.CertFile, e.KeyFile = r.path(m["caFile"]), r.path(m["certFile"]), r.path(m["keyFile"])
	e.PasswordFile = r.path(m["passwordFile"])
	e.User, _ = r.text(m["user"])
	if key, want := e.Refusal(); key != "" {
		r.fail(m[key], "", want)
	}
	return e
}

// path reads the name of a file, which is relative to the folder of the configuration file.
func (r *reader) path(n node) string {
	s, present := r.text(n)
	switch {
	case !present:
		return ""
	case s == "":
		r.fail(n, shown(s), "want the path of a file, or no such key")
		return ""
	case filepath.IsAbs(s):
		return s
	}
	return filepath.Join(r.folder, s)
}

// Beyond returns the hosts, of some with or without port and scheme, that are not this
// machine's loopback.
func Beyond(hosts []string) []string {
	var beyond []string
	for _, h := range hosts {
		if strings.HasPrefix(h, "unix:") || strings.HasSuffix(h, ".sock") {
			continue
		}
		name := h
		if at, err := url.Parse(h); err == nil && at.Host != "" {
			name = at.Host
		}
		if bare, _, err := net.SplitHostPort(name); err == nil {
			name = bare
		}
		if ip := net.ParseIP(strings.Trim(name, "[]")); name != "localhost" && (ip == nil || !ip.IsLoopback()) {
			beyond = append(beyond, h)
		}
	}
	return beyond
}
