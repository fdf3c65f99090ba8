package lens

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/invopop/jsonschema"

	"dbcontroller.dev/transform/lens/internal/fanout"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// Format is the version of the lens text that Parse reads.
const Format = 1

// Option adds information to Parse that the text does not contain.
type Option func(*lensParser)

// Parse reads a lens. The file's name appears only in errors, which are *ParseError.
func Parse(file string, data []byte, options ...Option) (*Lens, error) {
	p := &lensParser{file: file, lens: &Lens{file: file}, fanAt: map[*fanout.Fan]position{}}
	for _, o := range options {
		o(p)
	}
	if err := p.document(data); err != nil {
		return nil, err
	}
	h := sha256.New()
	h.Write(data)
	// The digest cannot cover the code of a hook, so it covers its revision.
	for _, r := range p.revisions {
		// Separate the revisions from the text and from each other.
		h.Write([]byte{0})
		h.Write([]byte(r))
	}
	p.lens.digest = hex.EncodeToString(h.Sum(nil))
	return p.lens, nil
}

// lensParser parses one file into lens.
type lensParser struct {
	file      string
	lens      *Lens
	hooks     Hooks
	revisions []string                 // of the hooks in use
	inItem    int                      // number of enclosing each operations
	header    bool                     // skip the operations
	within    string                   // the fanOut or gather whose operations are being read
	fanAt     map[*fanout.Fan]position // of empty or operations, for errors that need all operations
}

// topKey is a top-level key of the file.
type topKey struct {
	name     string
	doc      string // for editors
	required bool
	parse    func(p *lensParser, n ast.Node) error
	schema   func() *jsonschema.Schema
}

// topKeys returns the keys in the order of reading, whatever their order in the file.
func topKeys() []topKey {
	return []topKey{
		{"lens", "The version of the format.", false, (*lensParser).format, formatSchema},
		{"kinds", "The names of the kind in both versions.", false, (*lensParser).kindsSection, reflectedAs(kindsBody{})},
		{"imports", "The lenses of other services, by the name that references use.", false, (*lensParser).importsSection, importsSchema},
		{"key", "The form of the keys in both versions.", false, (*lensParser).key, reflectedAs(keyBody{})},
		{"operations", "The operations that turn a record of the old version into one of the new version, in order.", true, (*lensParser).operations, operationsList{}.JSONSchema},
	}
}

func (p *lensParser) format(n ast.Node) error {
	if v, err := scalarText(n); err != nil || v != fmt.Sprint(Format) {
		return p.errorAt(n, "lens: format %s is unknown; this program reads format %d", strings.TrimSpace(n.String()), Format)
	}
	return nil
}

func (p *lensParser) operations(n ast.Node) error {
	if p.header {
		return nil
	}
	// Fields that become part of the key are taken first. Fields that come out of the key are added
	// last, once all other operations are done.
	before, after := operation.KeyOps(p.lens.keys)
	ops, err := p.operationList(n, before...)
	if err != nil {
		return err
	}
	for _, o := range after {
		if err := operation.CheckSequence(ops, o); err != nil {
			return p.errorAt(n, "%s: %v", o, err)
		}
		ops = append(ops, o)
	}
	if err := p.lens.compile(ops); err != nil {
		return p.errorAt(n, "%v", err)
	}
	return p.complete()
}

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

// first returns the token to report for a node. For a block mapping it is the first key, because
// YAML reports the colon after it.
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

func (p *lensParser) document(data []byte) error {
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		var bad *yaml.SyntaxError
		// The YAML parser's error has a position. Use it, so that editors can show it.
		if errors.As(err, &bad) {
			return p.errorAtToken(bad.GetToken(), "%s", bad.GetMessage())
		}
		return &ParseError{File: p.file, Message: err.Error()}
	}
	// A file may begin or end with a separator line, which gives empty documents.
	docs := slices.DeleteFunc(f.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	if len(docs) > 1 {
		return p.errorAt(docs[1].Body, "a lens is one YAML document, but a second one begins here")
	}
	if len(docs) == 0 {
		return &ParseError{File: p.file, Message: `the lens is empty; one that changes nothing is "operations: []"`}
	}
	var required, optional []string
	for _, k := range topKeys() {
		if k.required {
			required = append(required, k.name)
		} else {
			optional = append(optional, k.name)
		}
	}
	top, err := p.fields(docs[0].Body, "a lens", required, optional)
	if err != nil {
		return err
	}
	for _, k := range topKeys() {
		if n, ok := top[k.name]; ok {
			if err := k.parse(p, n); err != nil {
				return err
			}
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

// mapping returns the entries of a mapping. The YAML parser has two node types for it.
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
