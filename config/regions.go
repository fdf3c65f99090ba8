package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Regions configures read-only copies of other regions' records. The service declares the kinds
// (dbcontroller.Version.Regions). The zero value means that servers have no copies.
type Regions struct {
	Name    string // of this region; empty: no copies
	Others  []Region
	Forward bool // send writes of other regions' records there; false: refuse them
	// Wait is the longest time for which a switch waits for copies of the target version, once
	// everything else is ready. 0: it does not wait.
	Wait time.Duration
}

// Region is the API of another region's servers.
type Region struct {
	Name     string
	Endpoint string // http://host:port or https://host:port
	CAFile   string // authority of its certificates; empty: the system's
	CertFile string // client certificate, with KeyFile; empty: none
	KeyFile  string
}

// maxRegions bounds the regions, each of which has its own copies.
const maxRegions = 32

var regionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (r *reader) regions(n node, deployment string) Regions {
	if n.value == nil {
		return Regions{}
	}
	m := r.mapping(n, "name", "others", "forward", "wait")
	c := Regions{Forward: r.flag(m["forward"], false), Wait: r.duration(m["wait"], 0, 0, 24*time.Hour)}
	name, given := r.text(m["name"])
	if !given {
		// Of services/{service}/deployments/{region}.
		name = deployment[strings.LastIndex(deployment, "/")+1:]
	}
	if c.Name = name; !regionName.MatchString(name) {
		r.fail(m["name"], shown(name), "want up to 63 letters, digits, dots, dashes and underscores")
	}
	items := r.list(m["others"])
	if len(items) == 0 || len(items) > maxRegions {
		r.fail(m["others"], fmt.Sprint(len(items)), fmt.Sprintf("want 1 to %d other regions", maxRegions))
	}
	for _, item := range items {
		o := r.region(item)
		if o.Name == c.Name || slices.ContainsFunc(c.Others, func(have Region) bool { return have.Name == o.Name }) {
			r.fail(item, shown(o.Name), "given twice, want a name for each region")
		}
		c.Others = append(c.Others, o)
	}
	return c
}

func (r *reader) region(n node) Region {
	m := r.mapping(n, "name", "endpoint", "caFile", "certFile", "keyFile")
	o := Region{Name: r.required(m["name"], "the name of a region"), CAFile: r.path(m["caFile"]), CertFile: r.path(m["certFile"]), KeyFile: r.path(m["keyFile"])}
	if !regionName.MatchString(o.Name) {
		r.fail(m["name"], shown(o.Name), "want up to 63 letters, digits, dots, dashes and underscores")
	}
	const form = "https://host:port or http://host:port"
	o.Endpoint = strings.TrimSuffix(r.required(m["endpoint"], form), "/")
	u, err := url.Parse(o.Endpoint)
	secure := o.CAFile != "" || o.CertFile != ""
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Scheme+"://"+u.Host != o.Endpoint:
		r.fail(m["endpoint"], "", "want "+form)
	case secure && u.Scheme == "http":
		r.fail(m["endpoint"], shown(o.Endpoint), "want https://, for caFile and certFile are of no use without")
	}
	switch {
	case o.CertFile != "" && o.KeyFile == "":
		r.fail(m["keyFile"], "", "missing, want the key of certFile")
	case o.KeyFile != "" && o.CertFile == "":
		r.fail(m["certFile"], "", "missing, want the certificate of keyFile")
	}
	return o
}
