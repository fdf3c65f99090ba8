// Package sample combines the transformers of the two sample services, for the controllers of the
// demonstration and of tests. The program dbcontroller does not import it. The services themselves
// are in packages bbs and secrets; begin to read there.
//
// It is not for users and may change with any version.
package sample

import (
	"dbcontroller.dev/examples/bbs"
	"dbcontroller.dev/examples/secrets"
	"dbcontroller.dev/transform"
)

// Register adds the sample services' transformers to their registry. It leaves the registry of any
// other service unchanged.
func Register(r *transform.Registry) error {
	if r.Service() != bbs.Service {
		return nil
	}
	return r.Add(bbs.V1, bbs.V2, append(bbs.Specs(), secrets.Specs()...)...)
}
