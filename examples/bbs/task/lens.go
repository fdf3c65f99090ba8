package task

import (
	_ "embed"
	"fmt"
	"sync"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/adapt"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/vrunner"
)

// Kind is the kind of the records, in both versions.
const Kind = "tasks"

//go:embed tasks.yaml
var lensText []byte

var parsed = sync.OnceValue(func() *lens.Lens {
	l, err := lens.Parse("tasks.yaml", lensText)
	if err != nil {
		panic(fmt.Sprintf("embedded lens: %v", err)) // each test would fail here
	}
	return l
})

// Spec returns the transformer between v1 and v2.
func Spec() transform.Spec { return parsed().Spec(Kind, Kind, lens.Managed()) }

// OverV2 presents v2 data as v1 data, for reads and writes. Rejections survive writes through it.
func OverV2(v2 vrunner.Store) vrunner.Store {
	w := directions()
	a, err := adapt.New(v2, w.show, w.keep, adapt.Config{})
	if err != nil {
		panic(fmt.Sprintf("v1 over v2: %v", err)) // each test would fail here
	}
	return vrunner.Over(v2, a)
}

// ways holds both directions of the lens: show converts v2 to v1, keep converts v1 to v2.
type ways struct{ show, keep transform.Direction }

var directions = sync.OnceValue(func() (w ways) {
	const old, now = "v1", "v2"
	reg := transform.NewRegistry("tasks")
	err := reg.Add(old, now, Spec())
	if err == nil {
		w.show, err = reg.Direction(now, old)
	}
	if err == nil {
		w.keep, err = reg.Direction(old, now)
	}
	if err != nil {
		panic(fmt.Sprintf("directions of the lens: %v", err)) // each test would fail here
	}
	return w
})
