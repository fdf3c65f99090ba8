package propose

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens"
)

// way is one or two converts that turn a value into another.
type way struct {
	keys     []string    // of each convert, without the field
	cost     int         // the cheapest way that fits is proposed
	note     string      // what a person should know about it
	from, to []bson.Type // the types of values before and after it
	lens     *lens.Lens  // converts the field v
}

// stored lists the BSON types in which a type of a lens is stored, for all types of convert.
var stored = []struct {
	name  string
	types []bson.Type
}{
	{"string", []bson.Type{bson.TypeString}},
	{"int", []bson.Type{bson.TypeInt32}},
	{"long", []bson.Type{bson.TypeInt64}},
	{"double", []bson.Type{bson.TypeDouble}},
	{"decimal", []bson.Type{bson.TypeDecimal128}},
	{"bool", []bson.Type{bson.TypeBoolean}},
	{"objectId", []bson.Type{bson.TypeObjectID}},
	{"uuid", []bson.Type{bson.TypeBinary}},
	{"date", []bson.Type{bson.TypeDateTime}},
	{"rfc3339", []bson.Type{bson.TypeString}},
	{"epoch", []bson.Type{bson.TypeInt64}},
	{"epochMillis", []bson.Type{bson.TypeInt64}},
	{"number", []bson.Type{bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128}},
}

// ways returns all ways, the cheapest first. A type that holds more than the samples need, such as
// number, costs more than an exact one.
var ways = sync.OnceValue(func() (out []way) {
	add := func(w way) {
		text := "operations:\n"
		for _, keys := range w.keys {
			text += "  - convert: {field: v, " + keys + "}\n"
		}
		// Most pairs of types have no conversion. The lens knows which have one.
		l, err := lens.Parse("draft.yaml", []byte(text))
		if err != nil {
			return
		}
		w.lens = l
		out = append(out, w)
	}
	for _, from := range stored {
		for _, to := range stored {
			if from.name == to.name {
				continue
			}
			w := way{keys: []string{"from: " + from.name + ", to: " + to.name}, from: from.types, to: to.types}
			if from.name == "number" || to.name == "number" {
				w.cost = 1
			}
			add(w)
			w.keys, w.cost = []string{w.keys[0] + ", rounding: seconds"}, 2
			w.note = "the dates have milliseconds, which an epoch cannot hold"
			add(w)
		}
	}
	// JavaScript stores a time as a number: an int, or a double if that is too small.
	numbers := []bson.Type{bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128}
	for _, meaning := range []string{"epoch", "epochMillis"} {
		step := "from: number, to: long"
		add(way{keys: []string{step, "from: " + meaning + ", to: date"}, cost: 3, from: numbers, to: []bson.Type{bson.TypeDateTime}})
		add(way{keys: []string{step, "from: " + meaning + ", to: rfc3339"}, cost: 3, from: numbers, to: []bson.Type{bson.TypeString}})
	}
	slices.SortStableFunc(out, func(a, b way) int { return a.cost - b.cost })
	return out
})

// converts reports whether the way turns one value into the other.
func (w *way) converts(was, is bson.RawValue) bool {
	if !slices.Contains(w.from, was.Type) || !slices.Contains(w.to, is.Type) {
		return false
	}
	doc, err := bson.Marshal(bson.D{{Key: "v", Value: was}})
	if err != nil {
		return false
	}
	// The lens itself converts the value, so that both agree on the rules.
	made, err := w.lens.Up(doc, nil)
	return err == nil && bson.Raw(made).Lookup("v").Equal(is)
}

// remaining returns those of the ways that turn one value into the other.
func remaining(among []*way, was, is bson.RawValue) []*way {
	return slices.DeleteFunc(slices.Clone(among), func(w *way) bool { return !w.converts(was, is) })
}

// allWays returns a list of all ways, the cheapest first.
func allWays() []*way {
	all := ways()
	out := make([]*way, len(all))
	for i := range all {
		out[i] = &all[i]
	}
	return out
}

// describe returns the operations that convert a field in the cheapest of the ways, and a comment if
// a person should look at them. Ways of the same cost fit the samples as well.
func describe(field string, fits []*way) (ops []string, comment string) {
	best := fits[0]
	for _, keys := range best.keys {
		ops = append(ops, fmt.Sprintf("convert: {field: %s, %s}", quote(field), keys))
	}
	comment = best.note
	var others []string
	for _, w := range fits[1:] {
		if w.cost == best.cost {
			others = append(others, w.keys[len(w.keys)-1])
		}
	}
	if len(others) > 0 {
		comment = "the samples also fit " + strings.Join(others, "; ")
	}
	return ops, comment
}
