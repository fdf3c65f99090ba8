package lens

import (
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// farOf returns the path on the far side of a field after operation at, or nil if it does not stay
// one field.
func farOf(p *operation.Program, field edit.Path, at int) edit.Path {
	far, err := operation.TraceKept(field, p.Ops[at+1:])
	if err != nil {
		return nil
	}
	return far
}

// place finds the far side's path of each fan's field, so that the fan can read the target's
// present value there. bad is a fan that needs the value and cannot find it.
func place(p *operation.Program) (bad *fan) {
	for i, o := range p.Ops {
		if s, ok := o.(*scatter); ok {
			s.far = farOf(p, s.field, i)
		}
		c, ok := o.(*collect)
		if !ok {
			continue
		}
		var err error
		if c.far, err = operation.TraceKept(c.field, p.Ops[i+1:]); err != nil && (c.present || c.fan.collect.Keeps()) {
			return c.fan
		}
	}
	return nil
}
