package collections

import (
	"context"

	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// Remake creates the collection of a kind again, in a version that does not serve. The previous
// collection is lost. The new one gets a name that the kind has not had.
func Remake(ctx context.Context, ns record.Provisioner, spec record.KindSpec, k upgradestate.Kind) (record.Token, error) {
	// As for any target: TTL indexes must not delete, and most indexes are built after the copy.
	spec.Shape, _ = record.Unexpiring(spec.Shape)
	spec.Shape = syncer.Early(spec.Shape)
	return ns.Provision(ctx, spec, record.PhysicalName(spec.Name, k.NextSeq))
}
