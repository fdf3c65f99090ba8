package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// indexes reads the declared indexes of a kind's collections, by collection name. It keeps each as
// extended JSON with the keys in the order of the file, because the order matters in an index.
func (r *reader) indexes(n node) map[string][]string {
	if n.value == nil {
		return nil
	}
	const form = "want collections with their indexes, such as {lines: [{key: {order: 1}, unique: true}]}"
	// A mapping, because the collections of a lens have indexes of their own.
	entries, ok := entriesOf(n.value)
	if !ok {
		r.fail(n, raw(n.value), form)
		return nil
	}
	out := map[string][]string{}
	for _, e := range entries {
		name := e.Key.GetToken().Value
		at := node{key: join(n.key, name), line: e.Key.GetToken().Position.Line, value: e.Value}
		if _, twice := out[name]; twice {
			r.fail(at, "", "given twice")
		}
		// A listed collection without indexes gets none, which differs from an absent one.
		out[name] = []string{}
		for _, item := range r.list(at) {
			fields, ok := entriesOf(item.value)
			if !ok || !slices.ContainsFunc(fields, func(f *ast.MappingValueNode) bool {
				_, isMapping := entriesOf(f.Value)
				return f.Key.GetToken().Value == "key" && isMapping
			}) {
				r.fail(item, "", form)
				continue
			}
			out[name] = append(out[name], string(r.json(nil, item)))
		}
	}
	return out
}

// entriesOf returns the entries of a mapping. The parser represents a mapping in two ways.
func entriesOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	default:
		return nil, false
	}
}

// json writes a value of the file as JSON, with variables resolved.
func (r *reader) json(dst []byte, n node) []byte {
	if entries, ok := entriesOf(n.value); ok {
		dst = append(dst, '{')
		for i, e := range entries {
			if i > 0 {
				dst = append(dst, ',')
			}
			name := e.Key.GetToken().Value
			dst = append(append(dst, quoted(name)...), ':')
			dst = r.json(dst, node{key: join(n.key, name), line: e.Key.GetToken().Position.Line, value: e.Value})
		}
		return append(dst, '}')
	}
	switch v := n.value.(type) {
	case nil, *ast.NullNode:
		return append(dst, "null"...)
	case *ast.SequenceNode:
		dst = append(dst, '[')
		for i, item := range v.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.json(dst, node{key: fmt.Sprintf("%s[%d]", n.key, i), line: lineOf(item, n.line), value: item})
		}
		return append(dst, ']')
	// Numbers and booleans only count as such without quotes.
	case *ast.IntegerNode:
		return fmt.Append(dst, v.Value)
	case *ast.FloatNode:
		return fmt.Append(dst, v.Value)
	case *ast.BoolNode:
		return fmt.Append(dst, v.Value)
	}
	// Everything else is text, with variables.
	s, _ := r.text(n)
	return append(dst, quoted(s)...)
}

func quoted(s string) string {
	b, err := json.Marshal(strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		panic(err) // cannot happen for a string
	}
	return string(b)
}
