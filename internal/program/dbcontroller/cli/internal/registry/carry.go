package registry

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
)

// Carries returns, by kind, the options and indexes for the fixed-name kinds of the new version
// that a lens produces. They come from the configuration where it declares them, otherwise from the
// old kind. Additional kinds made by fanOut get only declared indexes. It returns an error naming
// any index or validator whose meaning would change: it never drops one silently.
func Carries(k config.Kind, l *lens.Lens) (map[string]collections.Carry, error) {
	_, made := l.Kinds(k.From, k.To)
	out := map[string]collections.Carry{k.To: {From: k.From, Shape: func(old record.Shape) (record.Shape, error) {
		return carried(old, k.To, l)
	}, Back: func(made record.Shape) (record.Shape, error) { return carriedBack(made, l) }}}
	for name, specs := range k.Indexes {
		if !slices.Contains(made, name) {
			return nil, exit.Usagef("kinds: indexes of %s: the lens of the kind with from: %s does not make this kind; it makes %s", name, k.From, strings.Join(made, ", "))
		}
		indexes, err := declared(name, specs)
		if err != nil {
			return nil, err
		}
		out[name] = collections.Carry{From: k.From, Shape: func(old record.Shape) (record.Shape, error) {
			shape := record.Shape{Indexes: indexes}
			if name != k.To {
				return shape, nil
			}
			// The declared indexes replace the old ones, so carry over the options alone. An old
			// index that does not map to the new version must not fail here.
			carried, err := carried(record.Shape{Options: old.Options}, k.To, l)
			shape.Options = carried.Options
			return shape, err
		}}
		if name == k.To { // options come from the old kind, indexes from the configuration
			own := out[name]
			own.Back = func(made record.Shape) (record.Shape, error) {
				return carriedBack(record.Shape{Options: made.Options}, l)
			}
			out[name] = own
		}
	}
	return out, nil
}

// carried maps the shape (options and indexes) of the old kind to the new kind.
func carried(old record.Shape, to string, l *lens.Lens) (record.Shape, error) {
	out := record.Shape{Options: old.Options}
	if v, err := old.Options.LookupErr("validator"); err == nil {
		// A validator is copied unchanged. One on a changed field would reject the new records.
		if doc, ok := v.DocumentOK(); ok {
			if field, touched := l.TouchesValidator(doc); touched {
				return record.Shape{}, fmt.Errorf("the validator uses %s, which the lens changes: remove the validator, or do not change the field", field)
			}
		}
	}
	out.Indexes = make([]bson.Raw, 0, len(old.Indexes))
	for _, ix := range old.Indexes {
		mapped, err := l.MapIndex(ix)
		if err != nil {
			return record.Shape{}, fmt.Errorf("%w: declare the indexes of %s under kinds[].indexes", err, to)
		}
		out.Indexes = append(out.Indexes, mapped)
	}
	return out, nil
}

// carriedBack is the inverse of carried: it returns the old kind's shape for the shape made.
func carriedBack(made record.Shape, l *lens.Lens) (record.Shape, error) {
	out := record.Shape{Options: made.Options}
	if v, err := made.Options.LookupErr("validator"); err == nil {
		if doc, ok := v.DocumentOK(); ok {
			if field, touched := l.TouchesValidator(doc); touched {
				return record.Shape{}, fmt.Errorf("the validator uses %s, which the lens changes", field)
			}
		}
	}
	for _, ix := range made.Indexes {
		old, err := l.UnmapIndex(ix)
		if err != nil {
			return record.Shape{}, err
		}
		out.Indexes = append(out.Indexes, old)
	}
	return out, nil
}

// declared parses the indexes that the configuration declares for a kind. An index without a name
// gets the name that MongoDB would give it.
func declared(kind string, specs []string) ([]bson.Raw, error) {
	out := make([]bson.Raw, 0, len(specs))
	for _, text := range specs {
		var spec bson.D
		if err := bson.UnmarshalExtJSON([]byte(text), false, &spec); err != nil {
			return nil, exit.Usagef("kinds: indexes of %s: %s: %w", kind, text, err)
		}
		// Complete the specification as the server does, so that it equals the stored index.
		at := func(name string) int { return slices.IndexFunc(spec, func(e bson.E) bool { return e.Key == name }) }
		if at("name") < 0 {
			key, _ := spec[at("key")].Value.(bson.D)
			var parts []string
			for _, e := range key {
				parts = append(parts, e.Key, fmt.Sprint(e.Value))
			}
			spec = append(spec, bson.E{Key: "name", Value: strings.Join(parts, "_")})
		}
		if at("v") < 0 {
			spec = append(spec, bson.E{Key: "v", Value: int32(2)})
		}
		raw, err := bson.Marshal(spec)
		if err != nil {
			return nil, exit.Usagef("kinds: indexes of %s: %s: %w", kind, text, err)
		}
		out = append(out, raw)
	}
	return out, nil
}
