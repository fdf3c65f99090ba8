package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// maxDatabase is the longest database name in bytes: MongoDB's limit on Linux.
const maxDatabase = 63

// DatabaseName derives a MongoDB database name from a namespace: "dbc_", a readable
// slug of the namespace, "_", and the first 16 hexadecimal digits of the SHA-256 of
// the namespace.
//
// The digits tell namespaces apart that have the same slug; all letters are lower
// case, because MongoDB refuses names that differ by case alone. The slug keeps the
// letters and digits of ASCII, puts one "_" for any run of others, and of a long
// namespace the end, where the version stands.
func DatabaseName(namespace string) string {
	sum := sha256.Sum256([]byte(namespace))
	tail := "_" + hex.EncodeToString(sum[:8])
	const head = "dbc_"
	s := slug(namespace)
	if most := maxDatabase - len(head) - len(tail); len(s) > most {
		s = strings.TrimLeft(s[len(s)-most:], "_")
	}
	return head + s + tail
}

func slug(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b.WriteByte(c)
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c - 'A' + 'a')
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	return strings.TrimRight(b.String(), "_")
}

// checkDatabase says what is wrong with a database name that the file gives.
func checkDatabase(name string) error {
	switch {
	case len(name) > maxDatabase:
		return fmt.Errorf("a database name of at most %d bytes", maxDatabase)
	case strings.ContainsAny(name, "/\\. \"$*<>:|?\x00"):
		return fmt.Errorf(`a database name without any of /\. "$*<>:|?`)
	case name == "admin" || name == "local" || name == "config":
		return fmt.Errorf("a database that is not one of MongoDB's own (admin, local, config)")
	default:
		return nil
	}
}

// Place names the database as the Deployment publishes it: the backend and the name.
func (d DB) Place() string { return d.Backend + ":" + d.Database }

// Location names the database without secrets, for people: scheme, hosts and database.
func (d DB) Location() string {
	scheme, hosts := d.reach()
	return scheme + "://" + strings.Join(hosts, ",") + "/" + strings.TrimPrefix(d.Database, "/")
}

// Hosts names the servers of the database, without secrets.
func (d DB) Hosts() string {
	_, hosts := d.reach()
	return strings.Join(hosts, ",")
}

// reach is where the servers are.
func (d DB) reach() (scheme string, hosts []string) {
	if d.Backend != "etcd" {
		return hostsOf(d.Endpoint.Reveal())
	}
	for _, endpoint := range d.Etcd.Endpoints {
		_, host, found := strings.Cut(endpoint, "://")
		if !found {
			host = endpoint
		}
		hosts = append(hosts, strings.ToLower(host))
	}
	return "etcd", hosts
}

// meets reports whether two entries are in one place: the same database, or keys of etcd of
// which some would be those of both. Two endpoints are one cluster when they have a host in
// common.
func (d DB) meets(other DB) bool {
	_, as := d.reach()
	_, bs := other.reach()
	switch {
	case d.Backend != other.Backend || !slices.ContainsFunc(as, func(h string) bool { return slices.Contains(bs, h) }):
		return false
	case d.Backend == "etcd":
		return slices.ContainsFunc(d.prefixes(), func(a string) bool {
			return slices.ContainsFunc(other.prefixes(), func(b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) })
		})
	default:
		return strings.EqualFold(d.Database, other.Database)
	}
}

// Plaintext returns the hosts beyond this machine that are reached without TLS, or with TLS that takes
// any server for the right one: who is on the way reads and changes what is sent there, too.
func (d DB) Plaintext() []string {
	if d.Backend == "etcd" {
		if d.Etcd.IsTLS() {
			return nil
		}
		return Beyond(d.Etcd.Endpoints)
	}
	uri := d.Endpoint.Reveal()
	scheme, hosts := hostsOf(uri)
	secure := scheme == "mongodb+srv" // unless it says otherwise
	unverified := false
	_, options, _ := strings.Cut(uri, "?")
	for option := range strings.SplitSeq(options, "&") {
		name, value, _ := strings.Cut(option, "=")
		switch name = strings.ToLower(name); {
		case name == "tls" || name == "ssl":
			secure = value == "true"
		case name != "tlsinsecure" && (strings.HasPrefix(name, "tls") || strings.HasPrefix(name, "sslc")):
			secure = true // the driver takes TLS for wanted by any of its options
		}
		if slices.Contains([]string{"tlsinsecure", "sslinsecure", "tlsallowinvalidcertificates", "tlsallowinvalidhostnames"}, name) && value == "true" {
			unverified = true
		}
	}
	if secure && !unverified {
		return nil
	}
	return Beyond(hosts)
}

// hostsOf takes scheme and hosts out of a connection string, hosts in lower case and
// with their port.
func hostsOf(uri string) (scheme string, hosts []string) {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return "", nil
	}
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		rest = rest[:i]
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	for h := range strings.SplitSeq(rest, ",") {
		h = strings.ToLower(strings.TrimSpace(h))
		if h == "" {
			continue
		}
		if scheme == "mongodb" && !strings.Contains(h[strings.LastIndexByte(h, ']')+1:], ":") {
			h += ":27017"
		}
		hosts = append(hosts, h)
	}
	return scheme, hosts
}
