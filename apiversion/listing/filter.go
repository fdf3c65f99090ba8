package listing

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform"
)

// Filter is a tree of conditions. At most one of the exported fields is set. The zero Filter
// matches everything, and its negation nothing.
type Filter struct {
	// And matches if all filters match.
	And []Filter
	// Or matches if at least one filter matches.
	Or []Filter
	// Not matches if the filter does not.
	Not *Filter
	// Condition is a leaf: one comparison with a field.
	Condition *transform.Condition

	field *field // of Condition; nil before Check
}

// All returns a filter that matches if every filter matches. Without filters it matches everything.
func All(filters ...Filter) Filter {
	var out []Filter
	for _, f := range filters {
		switch {
		case f.IsZero():
		// Flatten: indexes and the translation to another version look at one level only.
		case len(f.And) > 0:
			out = append(out, f.And...)
		default:
			out = append(out, f)
		}
	}
	switch len(out) {
	case 0:
		return Filter{}
	case 1:
		return out[0]
	}
	return Filter{And: out}
}

// Any returns a filter that matches if at least one filter matches. Without filters it matches
// nothing.
func Any(filters ...Filter) Filter {
	var out []Filter
	for _, f := range filters {
		switch {
		case f.IsZero():
			// One filter that matches everything decides the whole.
			return f
		case f.isNever():
		case len(f.Or) > 0:
			out = append(out, f.Or...)
		default:
			out = append(out, f)
		}
	}
	switch len(out) {
	case 0:
		return Negate(Filter{})
	case 1:
		return out[0]
	}
	return Filter{Or: out}
}

// Negate returns a filter that matches exactly if f does not.
func Negate(f Filter) Filter {
	// Two negations cancel, which keeps the text readable.
	if f.Not != nil {
		return *f.Not
	}
	return Filter{Not: &f}
}

// Where returns a filter with one condition.
func Where(c transform.Condition) Filter { return Filter{Condition: &c} }

// IsZero reports whether the filter is zero and so matches everything.
func (f Filter) IsZero() bool {
	return len(f.And) == 0 && len(f.Or) == 0 && f.Not == nil && f.Condition == nil
}

// isNever reports whether the filter matches nothing.
func (f Filter) isNever() bool { return f.Not != nil && f.Not.IsZero() }

// Check checks each path and value against the messages to filter. It returns the filter with its
// values in the types of their fields. Errors name the field.
func (f Filter) Check(d protoreflect.MessageDescriptor) (Filter, error) {
	return f.Map(func(c transform.Condition) (Filter, error) { return checked(c, d) })
}

// Map returns the tree with each condition replaced by the result of replace. It stops at the first
// error.
func (f Filter) Map(replace func(transform.Condition) (Filter, error)) (Filter, error) {
	mapped := func(fs []Filter) ([]Filter, error) {
		out := make([]Filter, len(fs))
		for i := range fs {
			var err error
			if out[i], err = fs[i].Map(replace); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	switch {
	case f.Condition != nil:
		return replace(*f.Condition)
	case f.Not != nil:
		inner, err := f.Not.Map(replace)
		return Negate(inner), err
	case len(f.Or) > 0:
		all, err := mapped(f.Or)
		return Any(all...), err
	default:
		all, err := mapped(f.And)
		return All(all...), err
	}
}

// String returns the filter in CEL, or "" if it matches everything. ParseFilter returns an equal
// filter.
func (f Filter) String() string {
	if f.IsZero() {
		return ""
	}
	return f.cel(0)
}

// Precedences of CEL, loosest first.
const (
	looseOr = iota
	looseAnd
	tight
)

// cel writes the filter, in parentheses if the surrounding operator binds more tightly.
func (f Filter) cel(outer int) string {
	join := func(fs []Filter, op string, own int) string {
		parts := make([]string, len(fs))
		for i := range fs {
			parts[i] = fs[i].cel(own + 1)
		}
		s := strings.Join(parts, op)
		if outer > own {
			return "(" + s + ")"
		}
		return s
	}
	switch {
	case len(f.Or) > 0:
		return join(f.Or, " || ", looseOr)
	case len(f.And) > 0:
		return join(f.And, " && ", looseAnd)
	case f.isNever():
		return "false"
	// The parser turns != into a negated ==, so write it back as !=.
	case f.Not != nil && f.Not.Condition != nil && f.Not.Condition.Op == transform.OpEqual:
		return celPath(f.Not.Condition.Path) + " != " + celValue(first(f.Not.Condition.Values))
	case f.Not != nil && f.Not.Condition != nil && f.Not.Condition.Op != transform.OpHas:
		return "!(" + f.Not.cel(looseOr) + ")"
	case f.Not != nil:
		return "!" + f.Not.cel(tight)
	case f.Condition != nil:
		return celCondition(*f.Condition)
	default:
		return "true"
	}
}

func first(values []any) any {
	if len(values) == 0 {
		return nil
	}
	return values[0]
}

func celCondition(c transform.Condition) string {
	path := celPath(c.Path)
	switch c.Op {
	case transform.OpHas:
		return "has(" + path + ")"
	case transform.OpIn:
		values := make([]string, len(c.Values))
		for i := range c.Values {
			values[i] = celValue(c.Values[i])
		}
		return path + " in [" + strings.Join(values, ", ") + "]"
	case transform.OpContains, transform.OpPrefix:
		return path + "." + string(c.Op) + "(" + celValue(first(c.Values)) + ")"
	default:
		return path + " " + string(c.Op) + " " + celValue(first(c.Values))
	}
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CEL accepts keywords nowhere as a field name, and reserved words only after a dot.
var (
	keywords = []string{"false", "in", "null", "true"}
	reserved = []string{"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while"}
)

// this may stand before a path whose first part CEL reserves, such as this.namespace.
const this = "this"

func celPath(path string) string {
	parts, err := SplitPath(path)
	if err != nil {
		return path // a caller built it; the parser reports the fault
	}
	var b strings.Builder
	// CEL refuses these as the first identifier, but not behind "this".
	if slices.Contains(reserved, parts[0]) || slices.Contains(keywords, parts[0]) || !identifier.MatchString(parts[0]) {
		parts = append([]string{this}, parts...)
	}
	for i, p := range parts {
		switch {
		// An index takes any text as a key.
		case !identifier.MatchString(p) || slices.Contains(keywords, p):
			b.WriteString("[" + celValue(p) + "]")
		case i > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}

func celValue(x any) string {
	switch x := x.(type) {
	case string:
		return strconv.Quote(x)
	case int64:
		return strconv.FormatInt(x, 10)
	case uint64:
		return strconv.FormatUint(x, 10) + "u"
	case float64:
		s := strconv.FormatFloat(x, 'g', -1, 64)
		// Without a point the parser would read an integer.
		if !strings.ContainsAny(s, ".eIN") {
			s += ".0"
		}
		return s
	case bool:
		return strconv.FormatBool(x)
	case []byte:
		var b strings.Builder
		b.WriteString(`b"`)
		for i := range x {
			b.WriteString(`\x` + hex.EncodeToString(x[i:i+1]))
		}
		return b.String() + `"`
	case time.Time:
		return `timestamp("` + x.UTC().Format(time.RFC3339Nano) + `")`
	case nil:
		return "null"
	default:
		return fmt.Sprintf("%v", x)
	}
}
