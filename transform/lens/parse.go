package lens

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Format is the version of the text that Parse reads.
const Format = 1

// ParseError says where a lens is wrong and what would be right.
type ParseError struct {
	File         string
	Line, Column int // from 1; 0 where the text ends too early
	Message      string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Parse reads a lens. The file's name serves errors only, which are *ParseError.
func Parse(file string, data []byte) (*Lens, error) {
	p := &lensParser{file: file}
	ops, err := p.document(data)
	if err != nil {
		return nil, err
	}
	return newLens(ops, data), nil
}

type lensParser struct{ file string }

func (p *lensParser) errorAt(n ast.Node, format string, args ...any) error {
	return p.errorAtToken(first(n), format, args...)
}

func (p *lensParser) errorAtToken(t *token.Token, format string, args ...any) error {
	e := &ParseError{File: p.file, Message: fmt.Sprintf(format, args...)}
	if t != nil && t.Position != nil {
		e.Line, e.Column = t.Position.Line, t.Position.Column
	}
	return e
}

// first is the token that a person would point at for a node: that of a block mapping
// is its first key, not the colon behind it.
func first(n ast.Node) *token.Token {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return first(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return first(n.Key)
	}
	return n.GetToken()
}

func (p *lensParser) document(data []byte) ([]op, error) {
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		var bad *yaml.SyntaxError
		if errors.As(err, &bad) {
			return nil, p.errorAtToken(bad.GetToken(), "%s", bad.GetMessage())
		}
		return nil, &ParseError{File: p.file, Message: err.Error()}
	}
	docs := slices.DeleteFunc(f.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	if len(docs) > 1 {
		return nil, p.errorAt(docs[1].Body, "a lens is one YAML document, and a second begins here")
	}
	if len(docs) == 0 {
		return nil, &ParseError{File: p.file, Message: `the lens is empty; one that changes nothing is "operations: []"`}
	}
	top, err := p.fields(docs[0].Body, "a lens", []string{"operations"}, []string{"lens"})
	if err != nil {
		return nil, err
	}
	if n, ok := top["lens"]; ok {
		if v, err := scalarText(n); err != nil || v != fmt.Sprint(Format) {
			return nil, p.errorAt(n, "lens: format %s is not known here; this program reads format %d", strings.TrimSpace(n.String()), Format)
		}
	}
	seq, ok := top["operations"].(*ast.SequenceNode)
	if !ok {
		return nil, p.errorAt(top["operations"], "operations must be a list of operations, each one of: %s", joinNames(operationNames))
	}
	ops := make([]op, 0, len(seq.Values))
	for _, n := range seq.Values {
		o, err := p.operation(n)
		if err != nil {
			return nil, err
		}
		if err := checkSequence(ops, o); err != nil {
			return nil, p.errorAt(n, "%s: %v", o, err)
		}
		ops = append(ops, o)
	}
	return ops, nil
}

// checkSequence refuses an operation that meets a field which an earlier one has taken
// away or added, or that makes one which is there. The latest operation on a field
// decides, so the ones before are asked in reverse.
func checkSequence(before []op, o op) error {
	for i, earlier := range before {
		for _, pair := range [][2]op{{earlier, o}, {o, earlier}} {
			if field := convertedBy(pair[0]); field != nil {
				for _, p := range pathsOf(pair[1]) {
					if p.under(field) && !p.equal(field) {
						return fmt.Errorf("%s cannot be in %s, which is converted, so holds a single value (operation %d: %s)", p, field, i+1, earlier)
					}
				}
			}
		}
	}
	if err := checkReads(before, o); err != nil || o.makes() == nil {
		return err
	}
	for i, earlier := range slices.Backward(before) {
		if made := earlier.makes(); made != nil && o.makes().overlaps(made) {
			return fmt.Errorf("operation %d (%s) has made %s", i+1, earlier, made)
		}
		if taken := earlier.takes(); taken != nil && o.makes().under(taken) {
			return nil // the name is free again
		}
	}
	return nil
}

// pathsOf returns the paths that an operation names.
func pathsOf(o op) []path {
	var ps []path
	for _, p := range []path{o.takes(), o.makes()} {
		if p != nil {
			ps = append(ps, p)
		}
	}
	if field := convertedBy(o); field != nil {
		ps = append(ps, field)
	}
	return ps
}

// convertedBy returns the field that an operation converts, nil for the others.
func convertedBy(o op) path {
	switch o := o.(type) {
	case *convert:
		return o.field
	case *table:
		return o.field
	default:
		return nil
	}
}

func checkReads(before []op, o op) error {
	read := o.takes()
	if read == nil {
		read = convertedBy(o)
	}
	if read == nil {
		return nil
	}
	_, dropped := o.(*drop)
	for i, earlier := range slices.Backward(before) {
		for _, p := range pathsOf(earlier) {
			// The complement of a whole object cannot tell what of it is elsewhere.
			if dropped && p.under(read) && !p.equal(read) {
				return fmt.Errorf("operation %d (%s) works within %s; remove only fields that no other operation touches", i+1, earlier, read)
			}
		}
		// move makes and removes objects, and what is removed must find its object again.
		if m, ok := earlier.(*move); ok && dropped && len(read) > 1 && (m.from.under(read.parent()) || m.to.under(read.parent())) {
			return fmt.Errorf("write it before operation %d (%s), which works on the same object", i+1, earlier)
		}
		if made := earlier.makes(); made != nil && read.under(made) {
			if _, added := earlier.(*add); added {
				return fmt.Errorf("%s was made by operation %d (%s); write it there as it shall be in the end", made, i+1, earlier)
			}
			if dropped {
				return fmt.Errorf("operation %d (%s) made %s; remove the field where it was before instead", i+1, earlier, made)
			}
			return nil
		}
		if taken := earlier.takes(); taken != nil && read.under(taken) {
			return fmt.Errorf("%s is no longer there after operation %d (%s)", read, i+1, earlier)
		}
	}
	return nil
}

// fields reads a mapping with known keys.
func (p *lensParser) fields(n ast.Node, what string, required, optional []string) (map[string]ast.Node, error) {
	allowed := append(slices.Clone(required), optional...)
	entries, ok := mapping(n)
	if !ok {
		return nil, p.errorAt(n, "%s must be a mapping with the keys: %s", what, joinNames(allowed))
	}
	out := map[string]ast.Node{}
	for _, e := range entries {
		key, err := scalarText(e.Key)
		if err != nil || !slices.Contains(allowed, key) {
			return nil, p.errorAt(e.Key, "%s has no key %q; allowed: %s", what, strings.TrimSpace(e.Key.String()), joinNames(allowed))
		}
		if _, twice := out[key]; twice {
			return nil, p.errorAt(e.Key, "%s has the key %q twice", what, key)
		}
		out[key] = e.Value
	}
	for _, key := range required {
		if _, ok := out[key]; !ok {
			return nil, p.errorAt(n, "%s needs the key %q; allowed: %s", what, key, joinNames(allowed))
		}
	}
	return out, nil
}

// mapping returns the entries of a mapping, which the parser shows in two ways.
func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	default:
		return nil, false
	}
}

func joinNames(names []string) string { return strings.Join(names, ", ") }
