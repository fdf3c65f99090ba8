package lens

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/transform/lens/internal/edit"
)

var errNotScalar = errors.New("not a plain value")

// scalarText returns the text of a plain value, without quotes and comments.
func scalarText(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	// The value, not the text: YAML has several texts for one integer.
	case *ast.IntegerNode:
		return fmt.Sprint(n.Value), nil
	case *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return n.GetToken().Value, nil
	case *ast.MappingKeyNode:
		return scalarText(n.Value)
	default:
		return "", errNotScalar
	}
}

// appendJSON writes a YAML value as extended JSON, which can express the types that YAML lacks.
func appendJSON(dst []byte, n ast.Node, depth int) ([]byte, error) {
	if depth > edit.MaxDepth {
		return nil, fmt.Errorf("nested more than %d deep", edit.MaxDepth)
	}
	switch n := n.(type) {
	case nil:
		return append(dst, "null"...), nil
	case *ast.NullNode:
		return append(dst, "null"...), nil
	case *ast.BoolNode:
		return strconv.AppendBool(dst, n.Value), nil
	case *ast.IntegerNode:
		return fmt.Append(dst, n.Value), nil
	case *ast.FloatNode:
		return fmt.Appendf(dst, `{"$numberDouble":"%s"}`, strconv.FormatFloat(n.Value, 'g', -1, 64)), nil
	// JSON has no infinity, so use the extended form.
	case *ast.InfinityNode:
		name := "Infinity"
		if n.Value < 0 {
			name = "-Infinity"
		}
		return fmt.Appendf(dst, `{"$numberDouble":"%s"}`, name), nil
	case *ast.NanNode:
		return append(dst, `{"$numberDouble":"NaN"}`...), nil
	case *ast.StringNode:
		return appendJSONString(dst, n.Value)
	case *ast.LiteralNode:
		return appendJSONString(dst, n.Value.Value)
	case *ast.MappingKeyNode:
		return appendJSON(dst, n.Value, depth+1)
	case *ast.SequenceNode:
		dst = append(dst, '[')
		for i, v := range n.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendJSON(dst, v, depth+1); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	}
	entries, ok := mapping(n)
	// A mapping is the last case, because the YAML parser has two node types for it.
	if !ok {
		return nil, fmt.Errorf("anchors, aliases and tags are not read here (found %s)", n.Type())
	}
	dst = append(dst, '{')
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		key, err := scalarText(e.Key)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", e.Key, err)
		}
		// A YAML key may be a number or a boolean; a BSON field name is always text.
		if dst, err = appendJSONString(dst, key); err != nil {
			return nil, err
		}
		dst = append(dst, ':')
		if dst, err = appendJSON(dst, e.Value, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendJSONString(dst []byte, s string) ([]byte, error) {
	b, err := json.Marshal(s)
	return append(dst, b...), err
}
