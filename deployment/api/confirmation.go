package api

import (
	"fmt"

	"dbcontroller/upgradestate"
)

// Confirmation is what a person gives to confirm an operation on a version's database. It names
// the deployment, the cluster and the database, so that staging's does not fit production,
// where deployments and databases often have the same names. lacks says what is not known
// of that, and how weak the confirmation is for it; it is empty as a rule.
func Confirmation(d upgradestate.Deployment, version string) (confirm, lacks string) {
	ns, ok := d.Namespace(version)
	if kept, is := upgradestate.KeptNamespace(d, version); !ok && is {
		ns = kept.Namespace
	}
	switch id := ns.Identity; {
	case id.Cluster != "":
		return d.Name + "/" + id.Cluster + "/" + ns.Location, ""
	case id.Database != "":
		return d.Name + "/database/" + id.Database + "/" + ns.Location,
			fmt.Sprintf("the cluster of %s is not known, so its database is named by its own mark, which a copy of it elsewhere has, too", version)
	}
	return d.Name + "/" + ns.Location,
		fmt.Sprintf("an older binary has not noted which cluster %s is in, so deployment and database alone are named, which may be the same elsewhere", version)
}

// unconfirmed says why an operation on a version's database is refused that was confirmed with
// what was given, and what confirms it; would is what it does.
func unconfirmed(d upgradestate.Deployment, version, given, would string) string {
	want, lacks := Confirmation(d, version)
	what := "this is final"
	if given != "" {
		what = fmt.Sprintf("%q does not confirm it for %s of this deployment", given, version)
	}
	if lacks != "" {
		lacks = "; " + lacks
	}
	return fmt.Sprintf("%s: it would %s%s; to do that, give --confirm %s", what, would, lacks, want)
}
