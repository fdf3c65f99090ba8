package lens

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/google/cel-go/cel"
	expr "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/operation"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// costLimit limits one expression on one record, in CEL's units of about one step.
const costLimit = 100_000

// expressions holds the programs of one direction, in the order of the results.
type expressions struct {
	names    []string // of the variables, in the order of the values
	results  []edit.Path
	programs []cel.Program
	builds   []bool // the programs that build objects, whose fields are sorted by name
}

// calculate implements calculation. An absent field reads as null, and a null result is an absent
// field. Expressions may write absent instead of null where CEL requires values of one type.
func (x *expressions) calculate(in []bson.RawValue) ([]bson.RawValue, error) {
	vars := make(map[string]any, len(in))
	for i, v := range in {
		val, err := toCEL(v)
		if err != nil {
			return nil, &operation.ValueError{Index: i, Err: err}
		}
		vars[x.names[i]] = val
	}
	out := make([]bson.RawValue, len(x.programs))
	for i, prg := range x.programs {
		val, _, err := prg.Eval(vars)
		if err != nil {
			return nil, fmt.Errorf("the expression for %s: %w", x.results[i], brief(err))
		}
		if out[i], err = fromCEL(val, 0); err != nil {
			return nil, fmt.Errorf("the expression for %s: %w", x.results[i], err)
		}
		// null stands for an absent field, since CEL has no other value for it.
		if out[i].Type == bson.TypeNull {
			out[i] = bson.RawValue{}
		}
	}
	return out, nil
}

// maxReason is the longest text of an error of CEL that is kept.
const maxReason = 1 << 10

// brief shortens the text of an error. CEL puts whole values into it.
func brief(err error) error {
	text := err.Error()
	if len(text) <= maxReason {
		return err
	}
	return errors.New(strings.ToValidUTF8(text[:maxReason], "") + "...")
}

// environment has CEL's standard functions and its pure extensions. It leaves out functions that
// read the machine's time zones, because they give other results on other machines.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	zoned := map[string]string{
		overloads.TimeGetFullYear: overloads.TimestampToYearWithTz, overloads.TimeGetMonth: overloads.TimestampToMonthWithTz,
		overloads.TimeGetDayOfYear: overloads.TimestampToDayOfYearWithTz, overloads.TimeGetDate: overloads.TimestampToDayOfMonthOneBasedWithTz,
		overloads.TimeGetDayOfMonth: overloads.TimestampToDayOfMonthZeroBasedWithTz, overloads.TimeGetDayOfWeek: overloads.TimestampToDayOfWeekWithTz,
		overloads.TimeGetHours: overloads.TimestampToHoursWithTz, overloads.TimeGetMinutes: overloads.TimestampToMinutesWithTz,
		overloads.TimeGetSeconds: overloads.TimestampToSecondsWithTz, overloads.TimeGetMilliseconds: overloads.TimestampToMillisecondsWithTz,
	}
	// Exclude each overload with a time zone. The overloads in UTC stay.
	var without env.LibrarySubset
	for name, overload := range zoned {
		without.ExcludeFunctions = append(without.ExcludeFunctions, env.NewFunction(name, env.NewOverload(overload, nil, nil)))
	}
	return cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(&without)), cel.CrossTypeNumericComparisons(true),
		cel.Constant("absent", cel.DynType, types.NullValue),
		// lists.range and wide formats are left out: they allocate memory before the step limit
		// applies.
		ext.Strings(ext.StringsMaxPrecision(100)), ext.Math(), ext.Lists(ext.ListsVersion(1)), ext.Encoders(), bounded,
		converter("long", "long_of_int", cel.IntType, celLong, scalar.Long),
		converter("decimal", "decimal_of_string", cel.StringType, celDecimal, scalar.Decimal),
		converter("decimal", "decimal_of_int", cel.IntType, celDecimal, scalar.Decimal),
		converter("decimal", "decimal_of_double", cel.DoubleType, celDecimal, scalar.Decimal),
		converter("objectId", "object_id_of_string", cel.StringType, celObjectID, scalar.ObjectID),
		converter("string", "string_of_decimal", celDecimal, cel.StringType, scalar.String),
		converter("string", "string_of_object_id", celObjectID, cel.StringType, scalar.String),
		converter("double", "double_of_decimal", celDecimal, cel.DoubleType, scalar.Double),
	)
})

// converter returns a CEL function that converts like the operation convert.
func converter(name, id string, from, result *cel.Type, to scalar.Type) cel.EnvOption {
	return cel.Function(name, cel.Overload(id, []*cel.Type{from}, result, cel.UnaryBinding(func(arg ref.Val) ref.Val {
		v, err := fromCEL(arg, 0)
		if err != nil {
			return celError(err)
		}
		t := scalar.TypeOf(v.Type)
		// Nothing to convert, but CEL must still see the type that the function promises.
		if t == to {
			return opaque{v}
		}
		val, ok := scalar.AppendConverted(nil, v.Value, t, to)
		if !ok {
			return celError(fmt.Errorf("%s cannot be made a %s", edit.ShowValue(v), to))
		}
		made := bson.RawValue{Type: to.BSON(), Value: val}
		if to == scalar.Long {
			return opaque{made} // CEL's own int would become an int in BSON
		}
		out, err := toCEL(made)
		if err != nil {
			return celError(err)
		}
		return out
	})))
}

func (p *lensParser) compute(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "compute", []string{"from", "to", "up", "down"}, []string{"fieldOrder"})
	if err != nil {
		return nil, err
	}
	from, to, err := p.calcPaths(f)
	if err != nil {
		return nil, err
	}
	up, err := p.expressions(f["up"], "up", f["from"], from, to)
	if err != nil {
		return nil, err
	}
	down, err := p.expressions(f["down"], "down", f["to"], to, from)
	if err != nil {
		return nil, err
	}
	exact, err := p.exactOrder(f["fieldOrder"], false)
	if err != nil {
		return nil, err
	}
	o := &operation.Calc{Name: fmt.Sprintf("compute %s from %s", operation.PathNames(to), operation.PathNames(from)), From: from, To: to, Up: up.calculate, Down: down.calculate}
	// Only objects that an expression builds lose their order. Others pass with their bytes.
	if !exact {
		o.AnyFrom, o.AnyTo = down.builds, up.builds
	}
	return o, nil
}

// expressions reads and compiles one expression for each result.
func (p *lensParser) expressions(n ast.Node, key string, values ast.Node, from, to []edit.Path) (*expressions, error) {
	base, err := environment()
	if err != nil {
		return nil, p.errorAt(n, "%s: %v", key, err)
	}
	x := &expressions{results: to}
	var vars []cel.EnvOption
	for _, v := range from {
		name, err := variable(v)
		if err != nil {
			return nil, p.errorAt(values, "%v", err)
		}
		x.names = append(x.names, name)
		// Field types are known only at run time.
		vars = append(vars, cel.Variable(name, cel.DynType))
	}
	e, err := base.Extend(vars...)
	if err != nil {
		return nil, p.errorAt(values, "%s: %v", key, err)
	}
	names := make([]string, len(to))
	for i, r := range to {
		names[i] = r.String()
	}
	texts, err := p.fields(n, key, names, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		prg, builds, err := p.expression(e, texts[name], key+"."+name)
		if err != nil {
			return nil, err
		}
		x.programs, x.builds = append(x.programs, prg), append(x.builds, builds)
	}
	return x, nil
}

// expression compiles one expression. builds reports whether it builds an object anywhere.
func (p *lensParser) expression(e *cel.Env, n ast.Node, what string) (prg cel.Program, builds bool, err error) {
	text, err := scalarText(n)
	if err != nil {
		return nil, false, p.errorAt(n, "%s must be a CEL expression", what)
	}
	tree, issues := e.Compile(text)
	if errs := issues.Errors(); len(errs) > 0 {
		bad := p.errorAt(n, "%s: %s", what, errs[0].Message)
		// Point into the expression, not at its key.
		if at, ok := bad.(*ParseError); ok { //nolint:errorlint // errorAt made it
			at.Line, at.Column = placeIn(n, errs[0].Location.Line(), errs[0].Location.Column())
		}
		return nil, false, bad
	}
	expr.PostOrderVisit(expr.NavigateAST(tree.NativeRep()), expr.NewExprVisitor(func(part expr.Expr) {
		builds = builds || part.Kind() == expr.MapKind
	}))
	// The cost limit ends an expression that would otherwise block the engine or fill the memory.
	prg, err = e.Program(tree, cel.CostTracking(sizes{}), cel.CostLimit(costLimit), cel.CustomDecoratorV2(orderMaps))
	if err != nil {
		return nil, false, p.errorAt(n, "%s: %v", what, err)
	}
	return prg, builds, nil
}

// placeIn converts a position in an expression (line from 1, column from 0) to a position in the
// file. For folded or escaped text it is approximate.
func placeIn(n ast.Node, line, column int) (int, int) {
	t := first(n)
	// The text of a block scalar starts on the line after its key, indented.
	if l, ok := n.(*ast.LiteralNode); ok {
		origin := strings.TrimLeft(l.Value.GetToken().Origin, "\n")
		indent := len(origin) - len(strings.TrimLeft(origin, " "))
		return t.Position.Line + line, indent + column + 1
	}
	if line > 1 {
		return t.Position.Line + line - 1, t.Position.Column
	}
	// Count the opening quote.
	if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
		column++
	}
	return t.Position.Line, t.Position.Column + column
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// reserved lists the words that CEL rejects as names.
var reserved = strings.Fields("absent true false null in as break const continue else for function if import let loop package namespace return var void while")

// variable returns the name of a field in expressions: its path, or "item" for an item.
func variable(p edit.Path) (string, error) {
	if p.IsItem() {
		return "item", nil
	}
	name := p.String()
	for part := range strings.SplitSeq(name, ".") {
		if !identifier.MatchString(part) || slices.Contains(reserved, part) {
			return "", fmt.Errorf("%s is not a name that CEL can read; rename the field before compute uses it", name)
		}
	}
	return name, nil
}
