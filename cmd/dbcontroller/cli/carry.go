package cli

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/cmd/dbcontroller/controller"
	"dbcontroller/record"
	"dbcontroller/transform/lens"
)

// carry gives a fixed-name kind of the new version the options and indexes of the old
// one. What would mean something else there is an error that names it: an index or a
// validator is never dropped silently.
func carry(from string, l *lens.Lens) controller.Carry {
	return controller.Carry{From: from, Shape: func(old record.Shape) (record.Shape, error) {
		out := record.Shape{Options: old.Options}
		if v, err := old.Options.LookupErr("validator"); err == nil {
			if doc, ok := v.DocumentOK(); ok {
				if field, touched := l.TouchesValidator(doc); touched {
					return record.Shape{}, fmt.Errorf("the validator speaks of %s, which the lens changes: remove the validator, or do not change the field", field)
				}
			}
		}
		out.Indexes = make([]bson.Raw, 0, len(old.Indexes))
		for _, ix := range old.Indexes {
			mapped, err := l.MapIndex(ix)
			if err != nil {
				return record.Shape{}, err
			}
			out.Indexes = append(out.Indexes, mapped)
		}
		return out, nil
	}}
}
