package propose

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// separators lists the separators to try.
var separators = []string{"/", ", ", ",", ":", "|", " - ", "-", "_", "@", " "}

// split finds strings that became two or three fields.
func (d *drafter) split() {
	for _, p := range slices.Clone(d.old) {
		if to, sep, ok := d.parts(p, func(x pair) map[string]bson.RawValue { return x.was }, d.now, func(x pair) map[string]bson.RawValue { return x.is }); ok {
			d.op(fmt.Sprintf("split: {field: %s, to: [%s], separator: %s}", quote(p), strings.Join(quoted(to), ", "), literal(sep)), "")
			d.old = slices.DeleteFunc(d.old, func(o string) bool { return o == p })
			d.now = slices.DeleteFunc(d.now, func(q string) bool { return slices.Contains(to, q) })
		}
	}
}

// joined finds strings that two or three fields became.
func (d *drafter) joined() {
	for _, q := range slices.Clone(d.now) {
		if from, sep, ok := d.parts(q, func(x pair) map[string]bson.RawValue { return x.is }, d.old, func(x pair) map[string]bson.RawValue { return x.was }); ok {
			d.op(fmt.Sprintf("join: {fields: [%s], to: %s, separator: %s}", strings.Join(quoted(from), ", "), quote(q), literal(sep)), "")
			d.now = slices.DeleteFunc(d.now, func(n string) bool { return n == q })
			d.old = slices.DeleteFunc(d.old, func(p string) bool { return slices.Contains(from, p) })
		}
	}
}

// parts finds the fields of the other version with the parts of a string, in order.
func (d *drafter) parts(whole string, here func(pair) map[string]bson.RawValue, among []string, there func(pair) map[string]bson.RawValue) (fields []string, separator string, ok bool) {
	for _, sep := range separators {
		var candidates [][]string // by part
		seen := 0
		for _, x := range d.pairs {
			v, has := here(x)[whole]
			if !has {
				continue
			}
			text, is := v.StringValueOK()
			pieces := strings.Split(text, sep)
			if !is || len(pieces) < 2 || len(pieces) > 3 || candidates != nil && len(pieces) != len(candidates) {
				// A string with another number of parts rules out this separator.
				candidates = nil
				seen = 0
				break
			}
			if candidates == nil {
				candidates = make([][]string, len(pieces))
				for i := range candidates {
					// At first every field is a candidate for every part. Each record removes some.
					candidates[i] = slices.Clone(among)
				}
			}
			seen++
			for i, piece := range pieces {
				candidates[i] = slices.DeleteFunc(candidates[i], func(q string) bool {
					// A candidate must hold the part in every record.
					v, has := there(x)[q]
					s, is := v.StringValueOK()
					return !has || !is || s != piece
				})
			}
		}
		fields = nil
		for _, c := range candidates {
			// A field can hold only one part.
			c = slices.DeleteFunc(slices.Clone(c), func(q string) bool { return slices.Contains(fields, q) })
			if len(c) == 0 {
				fields = nil
				break
			}
			fields = append(fields, c[0])
		}
		if seen > 0 && len(fields) > 1 {
			return fields, sep, true
		}
	}
	return nil, "", false
}
