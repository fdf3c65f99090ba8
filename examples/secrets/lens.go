package secrets

import (
	_ "embed"
	"fmt"
	"sync"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
)

//go:embed secrets.yaml
var lensText []byte

// Lens returns the lens between the two versions.
var Lens = sync.OnceValue(func() *lens.Lens {
	l, err := lens.Parse("secrets.yaml", lensText)
	if err == nil {
		// The lens refers to names of its own kind, which Link resolves.
		set := lens.NewSet()
		set.Add(Kind, Kind, l)
		err = set.Link()
	}
	if err != nil {
		panic(fmt.Sprintf("embedded lens: %v", err)) // each test would fail here
	}
	return l
})

// Specs returns the transformer between v1 and v2.
func Specs() []transform.Spec { return []transform.Spec{Lens().Spec(Kind, Kind, lens.Managed())} }
