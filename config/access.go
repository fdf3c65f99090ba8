package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Access configures TLS, logins and roles of the listeners. The zero value requires no identity, and
// is for listeners on loopback.
type Access struct {
	Cert, Key string // certificate files of the listeners; empty: no TLS
	ClientCA  string // file of authorities for client certificates; empty: none required
	Tokens    string // file of bearer tokens; empty: none
	Issuers   []Issuer
	Roles     []Role
	Hosts     []string // accepted host names, besides addresses and those of the certificate
	Origins   []string // origins of browser pages on other hosts
}

// Issuer is a signer of JSON web tokens.
type Issuer struct {
	Name, Issuer, Audience string
	Claim                  string // claim with the identity; empty: sub
	Keys                   string // URL of the key set; empty: from discovery
	CA                     string // file; empty: the system's
	Token                  string // file with the token for requests of the keys; empty: none
}

// Role gives an identity a role.
type Role struct{ Role, Identity string }

var (
	issuerName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
	hostName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
)

// roleNames are the roles in a configuration. Package access defines their rights.
var roleNames = []string{"application", "viewer", "operator"}

func (r *reader) access(n node) Access {
	m := r.mapping(n, "tls", "tokens", "issuers", "roles", "hosts", "origins")
	tls := r.mapping(m["tls"], "cert", "key", "clientCA")
	a := Access{Cert: r.path(tls["cert"]), Key: r.path(tls["key"]), ClientCA: r.path(tls["clientCA"]), Tokens: r.path(m["tokens"])}
	// A certificate is useless without its key, and client certificates need TLS.
	switch {
	case a.Cert == "" && a.Key != "":
		r.fail(tls["cert"], "", "missing, want the file of the certificate next to its key")
	case a.Cert != "" && a.Key == "":
		r.fail(tls["key"], "", "missing, want the file of the key next to its certificate")
	case a.Cert == "" && a.ClientCA != "":
		r.fail(tls["cert"], "", "missing, want the file of a certificate where client certificates are asked for")
	}
	// Read issuers before roles, which name them.
	for _, item := range r.list(m["issuers"]) {
		a.Issuers = append(a.Issuers, r.issuer(item, a.Issuers))
	}
	given := r.mapping(m["roles"], roleNames...)
	// In a fixed order, so that the result does not depend on the file.
	for _, role := range roleNames {
		for _, item := range r.list(given[role]) {
			id := r.required(item, "the name of an identity, such as token:alice")
			r.identity(item, id, a)
			a.Roles = append(a.Roles, Role{Role: role, Identity: id})
		}
	}
	for _, item := range r.list(m["hosts"]) {
		h := r.required(item, "a host name")
		// A name with a scheme or port would never match a request.
		if !hostName.MatchString(h) {
			r.fail(item, h, "want a host name without scheme and port")
		}
		a.Hosts = append(a.Hosts, h)
	}
	for _, item := range r.list(m["origins"]) {
		o := r.required(item, "an origin such as https://ops.example.org")
		// Comparing with the rebuilt address refuses a path, a query and a user.
		if u, err := url.Parse(o); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Scheme+"://"+u.Host != o {
			r.fail(item, o, "want scheme and host alone, such as https://ops.example.org")
		}
		a.Origins = append(a.Origins, o)
	}
	return a
}

func (r *reader) issuer(n node, before []Issuer) Issuer {
	m := r.mapping(n, "name", "issuer", "audience", "claim", "keys", "ca", "token")
	i := Issuer{
		Name:     r.required(m["name"], "a name such as corp"),
		Issuer:   r.required(m["issuer"], "the address that signs, such as https://login.example.org"),
		Audience: r.required(m["audience"], "whom tokens must be for, such as dbcontroller"),
		CA:       r.path(m["ca"]), Token: r.path(m["token"]),
	}
	// The default is applied by package access.
	i.Claim, _ = r.text(m["claim"])
	i.Keys, _ = r.text(m["keys"])
	if !issuerName.MatchString(i.Name) {
		r.fail(m["name"], i.Name, "want lower-case letters, digits and dashes")
	}
	// Roles name an issuer by its name, so names must be unique.
	for _, b := range before {
		if b.Name == i.Name || b.Issuer == i.Issuer {
			r.fail(m["name"], i.Name, "given twice, want one entry for each issuer")
		}
	}
	for _, at := range []node{m["issuer"], m["keys"]} {
		address, _ := r.text(at)
		u, err := url.Parse(address)
		// Anybody on the way could replace keys that come over plain HTTP, so allow it only for
		// loopback.
		if address != "" && (err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopbackName(u.Hostname()))) {
			r.fail(at, address, "want an address that begins with https://")
		}
	}
	return i
}

func loopbackName(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// identity refuses an identity for which this configuration has no proof.
func (r *reader) identity(n node, id string, a Access) {
	kind, rest, _ := strings.Cut(id, ":")
	switch kind {
	// A role for an identity without its proof would never apply.
	case "token":
		if a.Tokens == "" {
			r.fail(n, id, "want access.tokens, too: there are no tokens")
		}
	case "cert", "spiffe":
		if a.ClientCA == "" {
			r.fail(n, id, "want access.tls.clientCA, too: no client certificates are asked for")
		}
	case "oidc":
		name, _, _ := strings.Cut(rest, ":")
		for _, i := range a.Issuers {
			if i.Name == name {
				return
			}
		}
		r.fail(n, id, fmt.Sprintf("want oidc:ISSUER:SUBJECT with one of access.issuers, and %q is none", name))
	default:
		r.fail(n, id, "want spiffe://DOMAIN/PATH, cert:SUBJECT, token:NAME or oidc:ISSUER:SUBJECT")
	}
}
