package deployment_test

import (
	"context"
	"fmt"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/memcoord"
	"dbcontroller.dev/upgradestate"
)

func Example() {
	ctx := context.Background()
	s := deployment.New(memcoord.New(), "services/bbs/deployments/us-west2", deployment.Config{})
	d, err := s.Create(ctx, "v1", 16)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Name, "is at", d.CurrentVersion)
	_, err = s.Apply(ctx, upgradestate.Begin{ID: "u1", TargetVersion: "v2"})
	fmt.Println(err)
	// Output:
	// services/bbs/deployments/us-west2 is at v1
	// begin: begin-upgrade: unknown version "v2": known are v1; a version becomes known when a controller configured with it runs
}
