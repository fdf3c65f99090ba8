package config

import (
	"net"
	"net/url"
	"path/filepath"
	"strings"
)

// Etcd holds the endpoints of an etcd and the credentials. It is the coordination store, or a
// database. The files are read when needed, so their contents may change.
type Etcd struct {
	Endpoints    []string // empty, for the coordination store: embedded etcd, see Config.DataDir
	CAFile       string   // authority of etcd's certificates; empty: the system's
	CertFile     string   // client certificate, with KeyFile; empty: none
	KeyFile      string
	User         string // empty: none
	PasswordFile string
}

// IsTLS reports whether the endpoints use TLS.
func (e Etcd) IsTLS() bool {
	return len(e.Endpoints) > 0 && !strings.HasPrefix(e.Endpoints[0], "http://") &&
		(e.CAFile != "" || e.CertFile != "" || strings.HasPrefix(e.Endpoints[0], "https://"))
}

// Refusal returns the name of the key that is wrong, and its allowed values. Both are empty if the
// values are consistent.
func (e Etcd) Refusal() (key, want string) {
	secure := e.CAFile != "" || e.CertFile != ""
	for _, endpoint := range e.Endpoints {
		// A socket has no port and needs no TLS.
		if strings.HasPrefix(endpoint, "unix:///") {
			continue // form of an embedded etcd
		}
		if _, _, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(endpoint, "http://"), "https://")); err != nil {
			return "endpoints", "want host:port"
		}
		// All endpoints belong to one cluster, so one form must fit all.
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

// etcdKeys are the keys of an etcd section.
var etcdKeys = []string{"endpoints", "caFile", "certFile", "keyFile", "user", "passwordFile"}

func (r *reader) etcd(n node) Etcd { return r.etcdOf(r.mapping(n, etcdKeys...)) }

// etcdOf reads the etcd keys from a mapping that may have others.
func (r *reader) etcdOf(m map[string]node) Etcd {
	e := Etcd{}
	for _, item := range r.list(m["endpoints"]) {
		s := r.required(item, "host:port")
		// Check each endpoint alone first, so that the error names its line.
		if key, want := (Etcd{Endpoints: []string{s}}).Refusal(); key != "" {
			r.fail(item, s, want)
		}
		e.Endpoints = append(e.Endpoints, s)
	}
	e.CAFile, e.CertFile, e.KeyFile = r.path(m["caFile"]), r.path(m["certFile"]), r.path(m["keyFile"])
	e.PasswordFile = r.path(m["passwordFile"])
	e.User, _ = r.text(m["user"])
	// Then the keys together.
	if key, want := e.Refusal(); key != "" {
		r.fail(m[key], "", want)
	}
	return e
}

// path reads a file name. Relative names are relative to the folder of the configuration file.
func (r *reader) path(n node) string {
	s, present := r.text(n)
	switch {
	case !present:
		return ""
	// An empty path would be the folder itself.
	case s == "":
		r.fail(n, shown(s), "want the path of a file, or no such key")
		return ""
	case filepath.IsAbs(s):
		return s
	}
	return filepath.Join(r.folder, s)
}

// Beyond returns the hosts that are neither on this machine's loopback nor sockets. Hosts may have
// a scheme and a port.
func Beyond(hosts []string) []string {
	var beyond []string
	for _, h := range hosts {
		// A socket stays on this machine.
		if strings.HasPrefix(h, "unix:") || strings.HasSuffix(h, ".sock") {
			continue
		}
		name := h
		if at, err := url.Parse(h); err == nil && at.Host != "" {
			name = at.Host
		}
		// Without a port, the split fails and the name stays.
		if bare, _, err := net.SplitHostPort(name); err == nil {
			name = bare
		}
		// A name that is not an address may lead anywhere.
		if ip := net.ParseIP(strings.Trim(name, "[]")); name != "localhost" && (ip == nil || !ip.IsLoopback()) {
			beyond = append(beyond, h)
		}
	}
	return beyond
}
