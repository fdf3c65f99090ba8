package syncer_test

import (
	"context"
	"fmt"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// A controller makes the collections of a version before an engine copies into them.
func ExampleProvision() {
	d := upgradestate.Deployment{Format: upgradestate.Format, Name: "services/shop/deployments/main", CurrentVersion: "v1"}
	strongest := func(string) record.FenceClass { return "" }
	ns, err := syncer.Provision(context.Background(), memstore.New(), d, "v2", "mem:shop", []record.KindSpec{{Name: "orders"}}, strongest)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range ns.Kinds {
		fmt.Println(ns.Version, k.Kind, k.Physical == record.PhysicalName("orders", 1))
	}
	// Output: v2 orders true
}
