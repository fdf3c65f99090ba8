package fanout

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

// Place sets the Far path of each Scatter and Collect in a program, so that it can read the
// target's present value there. bad is a Fan that needs the value and has no such path; nil: there
// is none.
func Place(p *operation.Program) (bad *Fan) {
	for i, o := range p.Ops {
		if s, ok := o.(*Scatter); ok {
			s.Far = farOf(p, s.Field, i)
		}
		c, ok := o.(*Collect)
		if !ok {
			continue
		}
		var err error
		if c.Far, err = operation.TraceKept(c.Field, p.Ops[i+1:]); err != nil && (c.Present || c.Fan.Collect.Keeps()) {
			return c.Fan
		}
	}
	return nil
}
