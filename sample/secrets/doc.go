// Package secrets is the second sample service, the one to copy: a resource whose key
// gains a region, whose expiry changes its type, and whose owner splits in two.
//
//	v1  secrets  projects/{project}/secrets/{secret}                   expires_at, owner
//	v2  secrets  projects/{project}/regions/{region}/secrets/{secret}  expire_time, owner_team, owner_person, rotation_days
//
// What the versions differ in stands in secrets.yaml, a lens. The engine moves the records
// with it, and v1's own handlers, unchanged, serve v1 over v2 data through it (overv2.go):
// package adapt shows them the store of v2 as that of v1. Each version's API over its own data
// is a resource.Table, and what it has beyond the standard methods (v1.go and v2.go). While v1
// is active, v2 can be read and not written. A list of v1 over v2 data reads past secrets of
// other regions.
//
// v1 shows the secrets of the region us-west2, which are all that v1 can make. What v2
// makes elsewhere, v1 does not list or watch, and has no name for; a rollback to v1 parks
// it, so that an operator decides. Everything within us-west2 is shown by both versions:
// v2 refuses what v1 could not show, such as a secret that replaces one of another region.
// rotation_days, which v1 does not know, survives whatever v1 clients do to a secret (also
// that it is deleted and made anew, if the sync saw no moment between). A parent
// projects/-/regions/{region} is that region of all projects; v1's lists go there.
//
// To make a service of one's own whose versions differ by what a lens can say: copy the
// folder, and write the messages, the lens, the checks (check.go) and v1.go and v2.go, which
// hold the methods that are no standard ones. The tests come along: they run every v1 test
// over both versions of the data, and send whatever they draw to both. sample/bbs is the
// one to copy for a transformer in Go.
//
// The package does not know tokens, fences or switches: the vrunner.Store does.
//
// It is not for users and may change with any version.
package secrets

// Versions of the data and of the API.
const (
	V1 = "v1"
	V2 = "v2"
)

// Kind is the kind of the records, in both versions.
const Kind = "secrets"

// Region is the one whose secrets v1 has.
const Region = "us-west2"
