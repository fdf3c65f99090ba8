package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Peers are the files by which a controller reaches others and proves itself to them.
type Peers struct {
	CAFile            string // authorities of their certificates; empty: the system's
	CertFile, KeyFile string // client certificate, for calls of callers with a certificate; empty: none
}

// APIRegion names the controllers of another region, which have an etcd of their own.
type APIRegion struct {
	Name        string
	Controllers []string // http://host:port or https://host:port
	Peers       Peers
}

var peerKeys = []string{"caFile", "certFile", "keyFile"}

func (r *reader) peers(m map[string]node) Peers {
	p := Peers{CAFile: r.path(m["caFile"]), CertFile: r.path(m["certFile"]), KeyFile: r.path(m["keyFile"])}
	switch {
	case p.CertFile != "" && p.KeyFile == "":
		r.fail(m["keyFile"], "", "missing, want the key of certFile")
	case p.KeyFile != "" && p.CertFile == "":
		r.fail(m["certFile"], "", "missing, want the certificate of keyFile")
	}
	return p
}

// apiAddress returns the address that other controllers reach this one under. listen is where it listens,
// and tls reports whether with TLS.
func (r *reader) apiAddress(n node, listen string, tls bool) string {
	s, present := r.text(n)
	if !present || s == "" {
		return ""
	}
	if !strings.Contains(s, "://") {
		scheme := "http://"
		if tls {
			scheme = "https://"
		}
		s = scheme + s
	}
	u := controllerURL(s)
	const own = "want a name or an address of this machine, such as https://controller-1.example.org:7090"
	switch {
	case u == nil || u.Port() == "" || len(s) > maxAddressBytes:
		r.fail(n, addressShown(s), "want host:port, or https://host:port, under which other controllers reach this one")
	case tls && u.Scheme == "http":
		r.fail(n, addressShown(s), "want https://, because access.tls.cert turns TLS on")
	case unroutable(u.Hostname()):
		r.fail(n, addressShown(s), own)
	case loopbackName(u.Hostname()) && !loopbackName(hostOf(listen)):
		r.fail(n, addressShown(s), own+", because api.listen can be reached from others")
	}
	return s
}

// maxAddressBytes is the longest address that other controllers accept.
const maxAddressBytes = 300

// unroutable reports whether nobody else can call an address.
func unroutable(host string) bool {
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap()
	return err == nil && (ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast())
}

func hostOf(listen string) string {
	host, _, _ := net.SplitHostPort(listen) //nolint:errcheck // another check reports it
	return host
}

func (r *reader) apiRegions(n node) []APIRegion {
	items := r.list(n)
	if len(items) > maxRegions {
		r.fail(n, fmt.Sprint(len(items)), fmt.Sprintf("want at most %d other regions", maxRegions))
	}
	var all []APIRegion
	for _, item := range items {
		m := r.mapping(item, append([]string{"name", "controllers"}, peerKeys...)...)
		o := APIRegion{Name: r.required(m["name"], "the name of a region"), Peers: r.peers(m)}
		if o.Name != "" && !regionName.MatchString(o.Name) {
			r.fail(m["name"], shown(o.Name), "want up to 63 letters, digits, dots, dashes and underscores")
		}
		if slices.ContainsFunc(all, func(have APIRegion) bool { return have.Name == o.Name }) {
			r.fail(item, shown(o.Name), "given twice, want a name for each region")
		}
		controllers := r.list(m["controllers"])
		if len(controllers) == 0 {
			r.fail(m["controllers"], "", "missing, want a list with https://host:port of the API of each controller of the region")
		}
		for _, at := range controllers {
			o.Controllers = append(o.Controllers, r.controller(at))
			if u := controllerURL(o.Controllers[len(o.Controllers)-1]); u != nil && u.Scheme == "http" && (o.Peers.CAFile != "" || o.Peers.CertFile != "") {
				r.fail(at, addressShown(o.Controllers[len(o.Controllers)-1]), "want https://, for caFile and certFile are of no use without")
			}
		}
		all = append(all, o)
	}
	return all
}
