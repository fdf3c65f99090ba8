package operation

import (
	"slices"

	"dbcontroller.dev/transform/lens/internal/edit"
)

// Op is one operation in one direction, from the near side to the far side. The reverse of a lens
// consists of the inverses of its operations, in reverse order.
//
// Trace defines how an Op maps the paths of requests. An Op that can map more is also a Comparer, a
// spreader or a sorter (mapping.go). An Op whose result has fields that only the far side has is
// also a holder (program.go).
type Op interface {
	// String returns the operation and its fields as the lens writes them, for errors.
	String() string
	Apply(e *edit.Editor, root *edit.Node) error
	Inverse() Op
	// Trace returns the far side's path for a near side's path, and the effect on its value. The
	// path is nil if the Fate is Spread, Gone or Clashes.
	Trace(p edit.Path) (edit.Path, Fate)
	// Takes returns the paths that only the near side has. Makes returns the paths that only the
	// far side has.
	Takes() []edit.Path
	Makes() []edit.Path
	// Changes returns the paths whose values change. No other operation may work within them.
	Changes() []edit.Path
}

// Fate is the effect of an operation on a path. Greater values are stronger effects. The zero value
// means that the value stays the same, perhaps under another path.
type Fate int

const (
	kept      Fate = iota // the value stays the same, perhaps under another path
	Converted             // the field remains, with other values
	Covers                // the object remains, and fields within it change or move
	Spread                // the far side has values at other paths, made from this value
	Gone                  // the far side does not have it
	Clashes               // the near side cannot have it
)

var (
	_ Op = (*Rename)(nil)
	_ Op = (*Move)(nil)
	_ Op = (*Add)(nil)
	_ Op = (*Drop)(nil)
	_ Op = (*Convert)(nil)
	_ Op = (*Table)(nil)
)

// Inverses returns the reverse of ops: the inverse of each, in reverse order.
func Inverses(ops []Op) []Op {
	out := make([]Op, 0, len(ops))
	for _, o := range slices.Backward(ops) {
		out = append(out, o.Inverse())
	}
	return out
}
