package lens

import (
	"fmt"

	"dbcontroller.dev/transform/lens/internal/fanout"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Rules returns the conditions that writers of the new version must meet, so that Down accepts
// their records. A record that breaks one is parked after the switch, when no writer of the old
// version can help.
func (l *Lens) Rules() []string {
	var out []string
	rule := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, o := range l.up.Ops {
		switch o := o.(type) {
		case *operation.Convert:
			switch {
			case o.From == scalar.Epoch && o.To == scalar.Date && !o.Rounding:
				rule("%s has no milliseconds: each date is a whole second (%s)", o.Field, o)
			case o.To == scalar.String && o.From != scalar.String:
				rule("%s is the text of a %s, in the form that the lens writes (%s)", o.Field, o.From, o)
			case o.From != scalar.Number && o.To != scalar.Number && o.From != o.To:
				rule("%s is of type %s, with an equal value of type %s (%s)", o.Field, o.To, o.From, o)
			}
		case *operation.Table:
			rule("%s is one of %s (%s)", o.Field, o.KnownBack, o)
		case *fanout.Scatter:
			o.Rules(rule)
		}
	}
	return out
}
