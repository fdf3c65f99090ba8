package packages

import (
	_ "embed"
	"slices"
)

//go:embed packages.yaml
var lensText []byte

// Lens returns the text of the lens that leads from version v1 of the records to v2: the
// file packages.yaml next to this one.
func Lens() []byte { return slices.Clone(lensText) }
