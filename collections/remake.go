package collections

import (
	"context"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Remake makes the collection of a kind of a version that is not served, in place of one that is
// gone, under a name that it has not had.
func Remake(ctx context.Context, ns record.Provisioner, spec record.KindSpec, k upgradestate.Kind) (record.Token, error) {
	spec.Shape, _ = record.Unexpiring(spec.Shape)
	spec.Shape = syncer.Early(spec.Shape)
	return ns.Provision(ctx, spec, record.PhysicalName(spec.Name, k.NextSeq))
}
