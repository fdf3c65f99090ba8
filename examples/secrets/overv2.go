package secrets

import (
	"fmt"
	"sync"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/vrunner"
)

// OverV2 presents v2 data as v1 data, for reads and writes. v2 fields that v1 does not know survive
// writes through it.
func OverV2(v2 vrunner.Store) vrunner.Store {
	ways := directions()
	// Names differ only by the region, which is constant for v1. The lens knows that both sort
	// alike and reads lists page by page, so adapt needs no configuration.
	a, err := adapt.New(v2, ways.show, ways.keep, adapt.Config{})
	if err != nil {
		panic(fmt.Sprintf("v1 over v2: %v", err)) // each test would fail here
	}
	return vrunner.Over(v2, a)
}

// ways holds both directions of the lens: show converts v2 to v1, keep converts v1 to v2.
type ways struct{ show, keep transform.Direction }

var directions = sync.OnceValue(func() (w ways) {
	reg := transform.NewRegistry("secrets")
	err := reg.Add(V1, V2, Specs()...)
	if err == nil {
		w.show, err = reg.Direction(V2, V1)
	}
	if err == nil {
		w.keep, err = reg.Direction(V1, V2)
	}
	if err != nil {
		panic(fmt.Sprintf("directions of the lens: %v", err)) // each test would fail here
	}
	return w
})
