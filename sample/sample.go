// Package sample is what the programs of the sample services have in common: the
// transformers that their controllers work with. It belongs to the demonstration and to
// tests; the program dbcontroller does not know it.
//
// It is not for users and may change with any version.
package sample

import (
	"dbcontroller.dev/sample/bbs"
	"dbcontroller.dev/sample/secrets"
	"dbcontroller.dev/transform"
)

// Register adds the transformers of the sample services to the registry of theirs, and
// leaves that of any other service as it is.
func Register(r *transform.Registry) error {
	if r.Service() != bbs.Service {
		return nil
	}
	return r.Add(bbs.V1, bbs.V2, append(bbs.Specs(), secrets.Specs()...)...)
}
