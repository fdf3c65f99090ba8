package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// maxDatabase is MongoDB's limit on Linux for the bytes of a database name.
const maxDatabase = 63

// DatabaseName derives a MongoDB database name from a namespace: "dbc_", a readable slug of the
// namespace, "_", and the first 16 hexadecimal digits of the namespace's SHA-256.
//
// The digits distinguish namespaces with equal slugs. All letters are lower case, because MongoDB
// refuses names that differ only in case. The slug keeps ASCII letters and digits, and replaces
// each run of other characters by one "_". It keeps the end of a long namespace, which contains the
// version.
func DatabaseName(namespace string) string {
	sum := sha256.Sum256([]byte(namespace))
	tail := "_" + hex.EncodeToString(sum[:8])
	const head = "dbc_"
	s := slug(namespace)
	// The version is at the end of a namespace, so keep the end.
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
		// No underscore at the beginning, and one for a run of other characters.
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	return strings.TrimRight(b.String(), "_")
}

// checkDatabase explains what is wrong with a configured database name.
func checkDatabase(name string) error {
	switch {
	case len(name) > maxDatabase:
		return fmt.Errorf("a database name of at most %d bytes", maxDatabase)
	case strings.ContainsAny(name, "/\\. \"$*<>:|?\x00"):
		return fmt.Errorf(`a database name without any of /\. "$*<>:|?`)
	// Collections there belong to MongoDB itself.
	case name == "admin" || name == "local" || name == "config":
		return fmt.Errorf("a database that is not one of MongoDB's own (admin, local, config)")
	default:
		return nil
	}
}

// Place returns the database as the Deployment publishes it: backend and name.
func (d DB) Place() string { return d.Backend + ":" + d.Database }

// Location returns scheme, hosts and database without secrets, for people.
func (d DB) Location() string {
	scheme, hosts := d.reach()
	return scheme + "://" + strings.Join(hosts, ",") + "/" + strings.TrimPrefix(d.Database, "/")
}

// Hosts returns the servers of the database, without secrets.
func (d DB) Hosts() string {
	_, hosts := d.reach()
	return strings.Join(hosts, ",")
}

// reach returns the scheme and the servers.
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

// meets reports whether two entries use the same place: the same database, or overlapping key
// prefixes in etcd. Two endpoints count as the same cluster if they share a host.
func (d DB) meets(other DB) bool {
	_, as := d.reach()
	// Names of one host can differ, so this finds only equal spellings.
	_, bs := other.reach()
	switch {
	case d.Backend != other.Backend || !slices.ContainsFunc(as, func(h string) bool { return slices.Contains(bs, h) }):
		return false
	case d.Backend == "etcd":
		return slices.ContainsFunc(d.prefixes(), func(a string) bool {
			return slices.ContainsFunc(other.prefixes(), func(b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) })
		})
	default:
		// MongoDB refuses two databases that differ only in case.
		return strings.EqualFold(d.Database, other.Database)
	}
}

// Plaintext returns the hosts outside this machine that are reached without TLS, or with TLS that
// accepts any server. An attacker on the network path can read and change the traffic.
func (d DB) Plaintext() []string {
	if d.Backend == "etcd" {
		if d.Etcd.IsTLS() {
			return nil
		}
		return Beyond(d.Etcd.Endpoints)
	}
	uri := d.Endpoint.Reveal()
	scheme, hosts := hostsOf(uri)
	// Follow the driver's own rules, or the warning would be wrong.
	secure := scheme == "mongodb+srv" // unless an option turns it off
	unverified := false
	_, options, _ := strings.Cut(uri, "?")
	for option := range strings.SplitSeq(options, "&") {
		name, value, _ := strings.Cut(option, "=")
		switch name = strings.ToLower(name); {
		case name == "tls" || name == "ssl":
			secure = value == "true"
		case name != "tlsinsecure" && (strings.HasPrefix(name, "tls") || strings.HasPrefix(name, "sslc")):
			secure = true // the driver turns TLS on for any of its options
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

// hostsOf returns the scheme and the hosts of a connection string. Hosts are in lower case and have
// a port.
func hostsOf(uri string) (scheme string, hosts []string) {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return "", nil
	}
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		rest = rest[:i]
	}
	// A password may contain an unescaped @, so cut at the last one.
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	for h := range strings.SplitSeq(rest, ",") {
		h = strings.ToLower(strings.TrimSpace(h))
		if h == "" {
			continue
		}
		// An IPv6 address has colons inside its brackets.
		if scheme == "mongodb" && !strings.Contains(h[strings.LastIndexByte(h, ']')+1:], ":") {
			h += ":27017"
		}
		hosts = append(hosts, h)
	}
	return scheme, hosts
}
