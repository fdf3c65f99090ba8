package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Names are the host names and origins that a listener accepts. A page in a browser can resolve its
// own name to any address (DNS rebinding). Its requests then carry that name, and check refuses
// them.
type Names struct {
	Hosts   []string // besides addresses, localhost and the certificate's names
	Origins []string // of accepted pages on other hosts, such as https://ops.example.org
	// Certificate returns the listener's certificate. Its names are accepted, too. Nil: there is none.
	Certificate func() *x509.Certificate
}

var errForeign = errors.New("the request comes from a page of another origin: add that to access.origins if it is yours")

// check refuses requests that a browser sends for a foreign page.
func (n Names) check(r *http.Request) error {
	if !n.own(r.Host) {
		return fmt.Errorf("this is not %q: use the address or a name in the certificate, or add the name to access.hosts", clip(hostOf(r.Host)))
	}
	origin := r.Header.Get("Origin")
	if origin != "" && !slices.Contains(n.Origins, origin) {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) || u.Scheme != "http" && u.Scheme != "https" {
			return errForeign
		}
	}
	// Requests for a page's embedded resources have no Origin. A followed link is not the page's
	// request. A browser treats all ports of localhost as one site, and any local user's program
	// may serve one of them.
	site := r.Header.Get("Sec-Fetch-Site")
	if origin == "" && (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document" {
		return errForeign
	}
	return nil
}

// own reports whether a Host header names this listener.
func (n Names) own(host string) bool {
	name := hostOf(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true // an address cannot be resolved differently
	}
	// A name with a final dot is the same name.
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if name == "localhost" || slices.ContainsFunc(n.Hosts, func(h string) bool { return strings.EqualFold(h, name) }) {
		return true
	}
	if n.Certificate == nil || name == "" {
		return false
	}
	leaf := n.Certificate()
	return leaf != nil && leaf.VerifyHostname(name) == nil
}

// hostOf returns a Host header without its port.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// clip shortens text from a request for messages.
func clip(s string) string { return clipTo(s, 100) }

func clipTo(s string, most int) string {
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
