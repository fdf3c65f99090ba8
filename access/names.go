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

// Names are those that a listener answers to. A page in a browser can have its own name
// resolved to any address (DNS rebinding); what it then sends bears that name.
type Names struct {
	Hosts   []string // besides addresses, localhost, and the names in the certificate
	Origins []string // of pages on other hosts whose requests count, such as https://ops.example.org
	// Certificate is the listener's, whose names are its own; nil: none.
	Certificate func() *x509.Certificate
}

var errForeign = errors.New("the request comes from a page of another origin: add that to access.origins if it is yours")

// check refuses what a browser sends for a foreign page.
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
	// What a page embeds has no Origin. A link that somebody follows is no request of the page. For a
	// browser all ports of localhost are one site, and any user's program may serve one of them.
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
		return true // no name, so nobody can have it resolved otherwise
	}
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

// hostOf is a Host header without its port.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// clip keeps messages short.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}
