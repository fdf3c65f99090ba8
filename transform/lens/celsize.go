package lens

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
)

// The cost limit is checked after each call, and CEL counts a call of an extension as one step
// whatever it returns. A short expression over two long fields could so fill the memory. bounded
// refuses a call before it creates a large text, and sizes counts the results of all calls.

// maxText is the largest text that one call may create, and about the sum of all that an expression
// creates. No database accepts a record of that size.
const maxText = 16 << 20

// itemBytes is about the memory of an item in a list, besides its text.
const itemBytes = 32

var errTooMuch = fmt.Errorf("the result has more than %d MB", maxText>>20)

// sizes adds to the cost of an expression the size of each result of an extension.
type sizes struct{}

// extensions are the functions whose results can be larger than a step.
var extensions = map[string]bool{
	"replace": true, "join": true, "format": true, "split": true, "substring": true, "trim": true, "reverse": true,
	"lowerAscii": true, "upperAscii": true, "base64.encode": true, "base64.decode": true,
	"flatten": true, "distinct": true, "slice": true, "sort": true,
}

// CallCost returns nil for functions that CEL counts itself.
func (sizes) CallCost(function, _ string, _ []ref.Val, result ref.Val) *uint64 {
	if !extensions[function] {
		return nil
	}
	n := 0
	switch r := result.(type) {
	case types.String:
		n = len(r)
	case types.Bytes:
		n = len(r)
	case traits.Lister:
		if size, ok := r.Size().(types.Int); ok {
			n = itemBytes * int(size)
		}
	}
	cost := 1 + uint64(n)*costLimit/maxText
	return &cost
}

// bounded replaces the functions of the extension that can return more than their arguments hold.
func bounded(e *cel.Env) (*cel.Env, error) {
	plain, err := cel.NewCustomEnv(ext.Strings(ext.StringsMaxPrecision(100)))
	if err != nil {
		return nil, err
	}
	var opts []cel.EnvOption
	for name, size := range map[string]func(args []ref.Val) int{"replace": replacedSize, "join": joinedSize, "format": formattedSize} {
		function := plain.Functions()[name]
		calls, err := function.Bindings()
		if err != nil {
			return nil, err
		}
		var overloads []cel.FunctionOpt
		for _, o := range function.OverloadDecls() {
			for _, c := range calls {
				if c.Operator != o.ID() {
					continue
				}
				call := func(args ...ref.Val) ref.Val {
					if size(args) > maxText {
						return celError(fmt.Errorf("%s would create a text of more than %d MB", name, maxText>>20))
					}
					switch {
					case c.Unary != nil && len(args) == 1:
						return c.Unary(args[0])
					case c.Binary != nil && len(args) == 2:
						return c.Binary(args[0], args[1])
					default:
						return c.Function(args...)
					}
				}
				// CEL requires the form of binding that fits the number of arguments.
				binding := cel.FunctionBinding(call)
				switch len(o.ArgTypes()) {
				case 1:
					binding = cel.UnaryBinding(func(a ref.Val) ref.Val { return call(a) })
				case 2:
					binding = cel.BinaryBinding(func(a, b ref.Val) ref.Val { return call(a, b) })
				}
				overloads = append(overloads, cel.MemberOverload(o.ID(), o.ArgTypes(), o.ResultType(), binding))
			}
		}
		opts = append(opts, cel.Function(name, overloads...))
	}
	for _, opt := range opts {
		if e, err = opt(e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// textOf returns the bytes of a text, and 0 for anything else, which the call itself refuses.
func textOf(v ref.Val) string {
	s, _ := v.(types.String)
	return string(s)
}

// replacedSize returns the size of the result of replace.
func replacedSize(args []ref.Val) int {
	text, old, with := textOf(args[0]), textOf(args[1]), textOf(args[2])
	n := strings.Count(text, old)
	if len(args) > 3 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			n = int(min(int64(n), int64(most)))
		}
	}
	return len(text) + n*(len(with)-len(old))
}

// joinedSize returns the size of the result of join.
func joinedSize(args []ref.Val) int {
	separator := ""
	if len(args) > 1 {
		separator = textOf(args[1])
	}
	return sizeOf(args[0], len(separator), maxText)
}

// formattedSize returns a size that the result of format does not exceed by much. Each argument occurs once.
func formattedSize(args []ref.Val) int {
	return len(textOf(args[0])) + sizeOf(args[1], 2, maxText)
}

// sizeOf returns the size of all texts in a value, with so many bytes between items. It stops
// beyond the limit, because items may be the same large value. Each item counts, also an empty one:
// otherwise nested lists that share their items would take for ever.
func sizeOf(v ref.Val, between, limit int) (n int) {
	const other = 32 // any number or date
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return 2 * len(v) // as hexadecimal digits
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && n <= limit; {
			key := it.Next()
			n += max(itemBytes, sizeOf(key, 2, limit)+sizeOf(v.Get(key), 2, limit)+2*between)
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && n <= limit; {
			n += max(itemBytes, sizeOf(it.Next(), between, limit)+between)
		}
	default:
		return other
	}
	return n
}
