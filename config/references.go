package config

import (
	"fmt"
	"slices"
	"strings"
)

// Import is another deployment that this one's records refer to: its name, versions and databases.
// Lenses define how its keys change between its versions.
type Import struct {
	Service      string // its name in lenses and tasks
	Deployment   string // in the same etcd
	Older, Newer string // its API versions, between which its keys change
	// DBs are its databases. They are needed for keys that do not follow from the old key alone.
	// Empty: there are no such keys.
	DBs []DB
}

// Referrer is a field of another deployment's records that holds keys of this deployment's records.
type Referrer struct {
	Deployment string
	Kind       string // of that deployment
	Field      string
	Of         string // kind of this deployment
}

// deploymentForm is the form of a deployment's name.
const deploymentForm = "services/{service}/deployments/{region}"

func (r *reader) deploymentName(n node) string {
	s := r.required(n, deploymentForm)
	if !deploymentName.MatchString(s) {
		r.fail(n, s, "want "+deploymentForm)
	}
	return s
}

// other reads the name of another deployment.
func (r *reader) other(n node, own string) string {
	s := r.deploymentName(n)
	if s == own {
		r.fail(n, s, "want another deployment: references within this one follow by its own lenses")
	}
	return s
}

func (r *reader) imports(n node, own Config) []Import {
	var imports []Import
	items := r.list(n)
	for _, item := range items {
		m := r.mapping(item, "service", "deployment", "versions", "dbs")
		i := Import{Service: r.required(m["service"], "the name that lenses call it by"), Deployment: r.other(m["deployment"], own.Deployment)}
		// Lenses name an import by its service.
		for at, before := range imports {
			if before.Service == i.Service {
				r.fail(m["service"], i.Service, fmt.Sprintf("%s in line %d has it already, want each service once", items[at].key, items[at].line))
			}
		}
		i.Older, i.Newer = r.between(m["versions"])
		if m["dbs"].value != nil {
			i.DBs = r.imported(m["dbs"], own, i.Older, i.Newer)
		}
		imports = append(imports, i)
	}
	return imports
}

// imported reads the databases of another deployment, which are only read. The older version comes
// first, as in that deployment's own configuration.
func (r *reader) imported(n node, own Config, older, newer string) []DB {
	dbs := r.dbs(n)
	first := map[string]int{}
	for i, item := range r.list(n) {
		at, db := r.mapping(item, dbKeys...), dbs[i]
		// The first entry of a version counts for the order.
		if _, known := first[db.APIVersion]; !known {
			first[db.APIVersion] = i
		}
		// These keys change databases.
		for _, key := range []string{"disabled", "fixtures"} {
			if at[key].value != nil {
				r.fail(at[key], "", "want no such key: the databases of another deployment are only read")
			}
		}
		// The same database twice would be read as another deployment's.
		if mine := slices.IndexFunc(own.DBs, db.meets); mine >= 0 {
			r.fail(at["namespace"], db.Namespace, fmt.Sprintf("dbs[%d] is the same database on the same endpoint, want the databases of another deployment", mine))
		}
	}
	at, known := first[older]
	to, too := first[newer]
	switch {
	case !known || !too:
		missing := older
		if known {
			missing = newer
		}
		r.fail(n, "", fmt.Sprintf("no entry of %s, want the databases of both versions", missing))
	case at > to:
		r.fail(n, "", fmt.Sprintf("%s comes before %s, want the older version first, in versions as in dbs", newer, older))
	}
	return dbs
}

// between reads two versions of another deployment.
func (r *reader) between(n node) (older, newer string) {
	const want = "two of its API versions, the older one first, such as [v1, v2]"
	if n.value == nil {
		r.fail(n, "", "missing, want "+want)
		return "", ""
	}
	var named []string
	for _, item := range r.list(n) {
		s := r.required(item, "a version such as v1")
		if !versionName.MatchString(s) {
			r.fail(item, s, "want lower-case letters and digits, such as v1")
		}
		named = append(named, s)
	}
	// Keys must change between two different versions.
	if len(named) != 2 || named[0] == named[1] {
		r.fail(n, strings.Join(named, ", "), "want "+want)
		return "", ""
	}
	return named[0], named[1]
}

func (r *reader) referrers(n node, own string) []Referrer {
	var referrers []Referrer
	for _, item := range r.list(n) {
		m := r.mapping(item, "deployment", "kind", "field", "of")
		ref := Referrer{
			Deployment: r.other(m["deployment"], own),
			Kind:       r.required(m["kind"], "the kind of that deployment whose records refer to this one's"),
			Field:      r.required(m["field"], "the field that holds the keys"),
			Of:         r.required(m["of"], "the kind of this deployment whose keys it holds"),
		}
		// An empty part would match no field.
		if slices.Contains(strings.Split(ref.Field, "."), "") {
			r.fail(m["field"], ref.Field, "want a path such as team or rows.*.team, without empty parts")
		}
		if slices.Contains(referrers, ref) {
			r.fail(m["field"], ref.Field, "want each referrer once")
		}
		referrers = append(referrers, ref)
	}
	return referrers
}
