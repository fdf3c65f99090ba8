package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// reader converts the syntax tree to values. It walks the tree itself, because a decoder loses the
// lines that error messages need. err keeps the first refusal; later values are not used.
type reader struct {
	file   string // base name
	folder string
	env    func(string) (string, bool)
	err    error
}

// node is a place in the file. A missing node has no value, and the line of its parent.
type node struct {
	key   string
	line  int
	value ast.Node // nil: missing
}

func (r *reader) parse(text []byte) (node, error) {
	// Duplicate keys get our own error below, which names both lines.
	f, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	var syntax *yaml.SyntaxError
	switch {
	case errors.As(err, &syntax):
		// Do not use err itself: its text quotes the file, passwords included.
		return node{}, &Error{File: r.file, Line: syntax.Token.Position.Line, Want: "not YAML: " + Redact(syntax.Message)}
	case err != nil:
		return node{}, &Error{File: r.file, Want: "not YAML"}
	}
	// An empty document at the end is harmless.
	docs := slices.DeleteFunc(f.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	if len(docs) != 1 {
		return node{}, &Error{File: r.file, Want: fmt.Sprintf("want one YAML document, found %d", len(docs))}
	}
	return node{line: 1, value: docs[0].Body}, nil
}

func (r *reader) fail(n node, value, want string) {
	if r.err == nil {
		r.err = &Error{File: r.file, Line: n.line, Key: n.key, Value: Redact(value), Want: want}
	}
}

// mapping reads the entries of a mapping. It refuses unknown and repeated keys.
func (r *reader) mapping(n node, allowed ...string) map[string]node {
	found := make(map[string]node, len(allowed))
	// Missing keys get the line of the parent, for errors about them.
	for _, name := range allowed {
		found[name] = node{key: join(n.key, name), line: n.line}
	}
	var values []*ast.MappingValueNode
	switch v := n.value.(type) {
	case nil, *ast.NullNode:
		return found
	case *ast.MappingNode:
		values = v.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{v}
	default:
		r.fail(n, raw(n.value), "want a mapping with the keys "+strings.Join(allowed, ", "))
		return found
	}
	for _, v := range values {
		name := v.Key.GetToken().Value
		child := node{key: join(n.key, name), line: v.Key.GetToken().Position.Line, value: v.Value}
		// A misspelt key would silently leave a default in force.
		if !slices.Contains(allowed, name) {
			r.fail(child, "", "unknown key, want one of "+strings.Join(allowed, ", "))
			continue
		}
		// YAML parsers disagree about which of two values counts.
		if before := found[name]; before.value != nil {
			r.fail(child, "", fmt.Sprintf("given twice, first in line %d", before.line))
			continue
		}
		found[name] = child
	}
	return found
}

// list reads the items of a sequence.
func (r *reader) list(n node) []node {
	switch v := n.value.(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.SequenceNode:
		items := make([]node, len(v.Values))
		for i, item := range v.Values {
			items[i] = node{key: fmt.Sprintf("%s[%d]", n.key, i), line: lineOf(item, n.line), value: item}
		}
		return items
	default:
		r.fail(n, raw(n.value), "want a list")
		return nil
	}
}

// text reads a scalar with its variables resolved. present is false if it is missing.
func (r *reader) text(n node) (s string, present bool) {
	s, present = r.plain(n)
	if !present {
		return "", false
	}
	out, err := expand(s, r.env, readSecret)
	if err != nil {
		// The error shows the text before expansion, without the values of variables.
		r.fail(n, s, err.Error())
		return "", false
	}
	return out, true
}

// plain reads a scalar without resolving variables.
func (r *reader) plain(n node) (s string, present bool) {
	switch v := n.value.(type) {
	case nil, *ast.NullNode:
		return "", false
	case *ast.StringNode:
		s = v.Value
	case *ast.LiteralNode:
		s = strings.TrimSuffix(v.Value.Value, "\n")
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		s = v.GetToken().Value
	// Anchors and tags would make a value differ from the text that operators see.
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		r.fail(n, raw(n.value), "want a plain value, without anchors, aliases and tags")
		return "", false
	default:
		r.fail(n, "", "want a single value")
		return "", false
	}
	return s, true
}

// required reads a text that must not be missing or empty.
func (r *reader) required(n node, want string) string {
	s, present := r.text(n)
	if !present || s == "" {
		r.fail(n, "", "missing, want "+want)
	}
	return s
}

func (r *reader) number(n node, def, least, most int) int {
	s, present := r.text(n)
	if !present {
		return def
	}
	i, err := strconv.Atoi(s)
	if err != nil || i < least || i > most {
		r.fail(n, shown(s), fmt.Sprintf("want a whole number from %d to %d", least, most))
		return def
	}
	return i
}

// share reads a number from 0 to 1.
func (r *reader) share(n node, def float64) float64 {
	s, present := r.text(n)
	if !present {
		return def
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f <= 1) { // written so that NaN fails
		r.fail(n, shown(s), "want a number from 0 to 1")
		return def
	}
	return f
}

func (r *reader) flag(n node, def bool) bool {
	s, present := r.text(n)
	switch {
	case !present:
		return def
	case s == "true":
		return true
	case s == "false":
		return false
	}
	r.fail(n, shown(s), "want true or false")
	return def
}

func (r *reader) duration(n node, def, least, most time.Duration) time.Duration {
	s, present := r.text(n)
	if !present {
		return def
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < least || d > most {
		r.fail(n, shown(s), fmt.Sprintf("want a duration from %s to %s, such as 10s", least, most))
		return def
	}
	return d
}

func (r *reader) choice(n node, allowed ...string) string {
	s, present := r.text(n)
	if present && !slices.Contains(allowed, s) {
		r.fail(n, shown(s), "want one of "+strings.Join(allowed, ", "))
	}
	return s
}

// shown makes an empty value visible in a message.
func shown(s string) string {
	if s == "" {
		return "(empty)"
	}
	return s
}

func join(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}

func lineOf(n ast.Node, otherwise int) int {
	// The token of a mapping with one entry is its colon; the token of a longer one is its start.
	switch v := n.(type) {
	case *ast.MappingValueNode:
		return v.Key.GetToken().Position.Line
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return v.Values[0].Key.GetToken().Position.Line
		}
	}
	if n == nil || n.GetToken() == nil {
		return otherwise
	}
	return n.GetToken().Position.Line
}

// raw returns a value as written in the file, for messages.
func raw(n ast.Node) string {
	if n == nil {
		return ""
	}
	s := oneLine(n.String())
	if len(s) > 60 {
		// Redact before cutting: a cut could remove the @ that shows a password.
		s = Redact(s)
		s = s[:min(len(s), 60)] + "..."
	}
	return s
}
