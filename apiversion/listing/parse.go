package listing

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/transform"
)

// maxFilter limits the text of a filter or an order, in bytes.
const maxFilter = 10_000

var celParser = sync.OnceValue(func() *parser.Parser {
	// Clients send filters, so bound the depth of the recursion and the number of errors.
	p, err := parser.NewParser(parser.EnableIdentEscapeSyntax(true), parser.MaxRecursionDepth(100), parser.ErrorRecoveryLimit(4))
	if err != nil {
		panic(err) // the options are constant
	}
	return p
})

// ParseFilter parses a filter for messages of a type. It returns InvalidArgument with the field or
// the column that is wrong. Empty text gives the zero Filter.
func ParseFilter(text string, d protoreflect.MessageDescriptor) (Filter, error) {
	if strings.TrimSpace(text) == "" {
		return Filter{}, nil
	}
	if len(text) > maxFilter {
		return Filter{}, Invalid("filter", "has %d bytes, at most %d are allowed", len(text), maxFilter)
	}
	tree, errs := celParser().Parse(common.NewTextSource(text))
	if list := errs.GetErrors(); len(list) > 0 {
		// Later errors usually follow from the first one.
		e := list[0]
		message, _, _ := strings.Cut(e.Message, "\n")
		if name, ok := strings.CutPrefix(message, "reserved identifier: "); ok {
			// The parser's own text does not show the way out.
			message += ": write " + this + "." + name
		}
		return Filter{}, Invalid("filter", "column %d: %s", e.Location.Column()+1, message)
	}
	f, err := reader{d}.filter(tree.Expr())
	if err != nil {
		return Filter{}, Invalid("filter", "%s", err)
	}
	return f, nil
}

// reader converts CEL syntax trees into filters.
type reader struct {
	d protoreflect.MessageDescriptor
}

var comparisons = map[string]transform.Operator{
	operators.Equals: transform.OpEqual, operators.NotEquals: transform.OpEqual,
	operators.Less: transform.OpLess, operators.LessEquals: transform.OpLessEqual,
	operators.Greater: transform.OpGreater, operators.GreaterEquals: transform.OpGreaterEqual,
}

// mirrored maps an operator to its equivalent with both sides exchanged.
var mirrored = map[transform.Operator]transform.Operator{
	transform.OpEqual: transform.OpEqual,
	transform.OpLess:  transform.OpGreater, transform.OpLessEqual: transform.OpGreaterEqual,
	transform.OpGreater: transform.OpLess, transform.OpGreaterEqual: transform.OpLessEqual,
}

func (r reader) filter(e ast.Expr) (Filter, error) {
	switch e.Kind() {
	case ast.LiteralKind:
		if b, ok := e.AsLiteral().(types.Bool); ok {
			if b {
				return Filter{}, nil
			}
			return Negate(Filter{}), nil
		}
		return Filter{}, fmt.Errorf("%s alone is no condition", celValue(e.AsLiteral().Value()))
	case ast.IdentKind, ast.SelectKind:
		return r.flag(e)
	case ast.CallKind:
		return r.call(e)
	default:
		return Filter{}, fmt.Errorf("a list, map or message alone is no condition")
	}
}

// flag converts a bool field that stands alone, such as "active".
func (r reader) flag(e ast.Expr) (Filter, error) {
	path, err := r.path(e)
	if err != nil {
		return Filter{}, err
	}
	return r.where(path, transform.OpEqual, true)
}

func (r reader) where(path string, op transform.Operator, values ...any) (Filter, error) {
	return checked(transform.Condition{Path: path, Op: op, Values: values}, r.d)
}

// call converts an operator or a function call.
func (r reader) call(e ast.Expr) (Filter, error) {
	call := e.AsCall()
	name, args := call.FunctionName(), call.Args()
	if op, ok := comparisons[name]; ok {
		f, err := r.comparison(args[0], op, args[1])
		if name == operators.NotEquals {
			f = Negate(f)
		}
		return f, err
	}
	switch {
	case name == operators.LogicalAnd || name == operators.LogicalOr:
		return r.junction(name, args)
	case name == operators.LogicalNot:
		f, err := r.filter(args[0])
		return Negate(f), err
	case name == operators.In:
		return r.in(args[0], args[1])
	// labels["x"] alone is a bool entry of a map.
	case name == operators.Index:
		return r.flag(e)
	case name == "has" && len(args) == 1 && !call.IsMemberFunction():
		path, err := r.path(args[0])
		if err != nil {
			return Filter{}, err
		}
		return r.where(path, transform.OpHas)
	case (name == string(transform.OpContains) || name == string(transform.OpPrefix)) && call.IsMemberFunction() && len(args) == 1:
		path, err := r.path(call.Target())
		if err != nil {
			return Filter{}, err
		}
		value, err := r.literal(args[0])
		if err != nil {
			return Filter{}, fmt.Errorf("%s: %w", path, err)
		}
		return r.where(path, transform.Operator(name), value)
	}
	return Filter{}, fmt.Errorf("%s is not supported: use == != < <= > >= in contains() startsWith() has() && || !", strings.Trim(name, "_@")) //nolint:staticcheck // ST1005: the ! at its end is an operator
}

func (r reader) junction(name string, args []ast.Expr) (Filter, error) {
	parts := make([]Filter, len(args))
	for i, a := range args {
		var err error
		if parts[i], err = r.filter(a); err != nil {
			return Filter{}, err
		}
	}
	if name == operators.LogicalOr {
		return Any(parts...), nil
	}
	return All(parts...), nil
}

// comparison converts a comparison of a field with a literal.
func (r reader) comparison(left ast.Expr, op transform.Operator, right ast.Expr) (Filter, error) {
	// Accept 5 < size as size > 5.
	if isLiteral(left) && !isLiteral(right) {
		left, right, op = right, left, mirrored[op]
	}
	path, err := r.path(left)
	if err != nil {
		return Filter{}, err
	}
	value, err := r.literal(right)
	if err != nil {
		return Filter{}, fmt.Errorf("%s: %w", path, err)
	}
	return r.where(path, op, value)
}

// in converts "field in [values]", or "value in field" for a field that is a list or map.
func (r reader) in(left, right ast.Expr) (Filter, error) {
	if right.Kind() == ast.ListKind {
		path, err := r.path(left)
		if err != nil {
			return Filter{}, err
		}
		var values []any
		for _, e := range right.AsList().Elements() {
			v, err := r.literal(e)
			if err != nil {
				return Filter{}, fmt.Errorf("%s: %w", path, err)
			}
			values = append(values, v)
		}
		return r.where(path, transform.OpIn, values...)
	}
	path, err := r.path(right)
	if err != nil {
		return Filter{}, err
	}
	value, err := r.literal(left)
	if err != nil {
		return Filter{}, fmt.Errorf("%s: %w", path, err)
	}
	parts, err := SplitPath(path)
	if err != nil {
		return Filter{}, err
	}
	// As in CEL, "in" looks for a key in a map and for an item in a list.
	if f, err := resolve(r.d, parts); err == nil && f.shape == entries {
		// The path would mean every entry, and has() of it would match another set of records.
		if value == wildcard {
			return Filter{}, fmt.Errorf("%s: the key %q stands for all entries: use has()", path, wildcard)
		}
		entry, err := joined(append(parts, fmt.Sprint(value)))
		if err != nil {
			return Filter{}, err
		}
		return r.where(entry, transform.OpHas)
	}
	return r.where(path, transform.OpContains, value)
}

// path returns the dotted path of a field expression.
func (r reader) path(e ast.Expr) (string, error) {
	parts, err := pathParts(e)
	if err != nil {
		return "", err
	}
	// "this" is only an escape, unless the message has a field of that name.
	if len(parts) > 1 && parts[0] == this && r.d.Fields().ByName(this) == nil {
		parts = parts[1:]
	}
	return joined(parts)
}

// joined returns the path of parts that a client gave.
func joined(parts []string) (string, error) {
	if slices.ContainsFunc(parts, func(p string) bool { return p == "" || strings.ContainsRune(p, '`') }) {
		return "", fmt.Errorf("a key in a path must not be empty or hold a backquote")
	}
	return JoinPath(parts), nil
}

// pathParts returns the parts of a field expression, outermost first.
func pathParts(e ast.Expr) ([]string, error) {
	switch e.Kind() {
	case ast.IdentKind:
		return []string{e.AsIdent()}, nil
	case ast.SelectKind:
		parts, err := pathParts(e.AsSelect().Operand())
		return append(parts, e.AsSelect().FieldName()), err
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index {
			break
		}
		parts, err := pathParts(call.Args()[0])
		if err != nil {
			return nil, err
		}
		if call.Args()[1].Kind() != ast.LiteralKind {
			break
		}
		switch k := call.Args()[1].AsLiteral().(type) {
		case types.String, types.Int, types.Uint, types.Bool:
			return append(parts, fmt.Sprint(k.Value())), nil
		}
	case ast.LiteralKind:
		return nil, fmt.Errorf("%s stands where a field is wanted", celValue(e.AsLiteral().Value()))
	}
	return nil, fmt.Errorf("a field is wanted, not an expression")
}

// isLiteral reports whether an expression is a value and not a field.
func isLiteral(e ast.Expr) bool {
	if e.Kind() == ast.CallKind {
		name := e.AsCall().FunctionName()
		return name == "timestamp" || name == operators.Negate
	}
	return e.Kind() == ast.LiteralKind
}

// literal returns the value of a literal, in the types of transform.Condition.
func (r reader) literal(e ast.Expr) (any, error) {
	switch e.Kind() {
	case ast.LiteralKind:
		switch v := e.AsLiteral().(type) {
		case types.String, types.Int, types.Uint, types.Double, types.Bool, types.Bytes:
			return v.Value(), nil
		case types.Null:
			return nil, nil
		}
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != "timestamp" || len(call.Args()) != 1 || call.Args()[0].Kind() != ast.LiteralKind {
			break
		}
		text, _ := call.Args()[0].AsLiteral().Value().(string)
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, fmt.Errorf("timestamp(%q) is not a time of RFC 3339", text)
		}
		return t.UTC(), nil
	case ast.IdentKind, ast.SelectKind:
		// Most often the client forgot the quotes.
		if parts, err := pathParts(e); err == nil {
			return nil, fmt.Errorf("%s stands where a value is wanted: put text in quotes", JoinPath(parts))
		}
	}
	return nil, fmt.Errorf("a value is wanted, not an expression")
}
