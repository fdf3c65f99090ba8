package secrets

import (
	"fmt"
	"sync"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/vrunner"
)

// OverV2 returns v2 data as v1 has them, to be read and written. What v1 does not know
// survives what is written through it.
func OverV2(v2 vrunner.Store) vrunner.Store {
	ways := directions()
	// Names differ by the region, which is the same in all that v1 has. The lens knows that they
	// sort the same, so that lists go page by page; there is nothing to configure.
	a, err := adapt.New(v2, ways.show, ways.keep, adapt.Config{})
	if err != nil {
		panic(fmt.Sprintf("v1 over v2: %v", err)) // every test would meet it
	}
	return vrunner.Over(v2, a)
}

// ways are the directions of the lens: show is from v2 to v1, keep back to what is stored.
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
		panic(fmt.Sprintf("directions of the lens: %v", err)) // every test would meet it
	}
	return w
})
