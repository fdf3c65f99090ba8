// Package secrets is the second sample service, and the one to copy. Between its versions the key
// gains a region, the expiry changes its type, and the owner is split in two.
//
//	v1  secrets  projects/{project}/secrets/{secret}                   expires_at, owner
//	v2  secrets  projects/{project}/regions/{region}/secrets/{secret}  expire_time, owner_team, owner_person, rotation_days
//
// The lens secrets.yaml describes the differences. The engine migrates the records with it. v1's
// own unchanged handlers use it to serve v1 over v2 data (overv2.go): package adapt presents v2's
// store as a v1 store. Each version serves its own data by a resource.Table and by a few methods of
// its own (v1.go and v2.go). While v1 is active, v2 is read-only. A v1 list over v2 data skips
// secrets of other regions.
//
// v1 has the secrets of region us-west2 only. v1 clients cannot list, watch or name a secret that
// v2 creates in another region. A rollback to v1 parks such a secret: it is set aside until an
// operator decides. Both versions show all secrets of us-west2. v2 therefore refuses values that v1
// cannot show, such as a secret that replaces one of another region. v1 does not know
// rotation_days, but the field survives all changes by v1 clients. It even survives deletion and
// recreation, if the sync does not see the moment between. A parent projects/-/regions/{region}
// means that region of all projects; v1's lists use it.
//
// To build a service whose versions differ by what a lens can express, copy this folder. Then write
// the messages, the lens, the checks (check.go), and v1.go and v2.go with the methods that are not
// standard ones. The tests come along: they run each v1 test over both versions of the data, and
// send random requests to both. For a transformer in Go, copy examples/bbs instead.
//
// The package does not know tokens, fences or switches; the vrunner.Store handles them.
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

// Region is the region whose secrets v1 has.
const Region = "us-west2"
