package lens

import (
	"strings"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/operation"
)

// declared is one entry of the table of operations.
type declared struct {
	name string
	doc  string // for editors
	// parse reads the body of the operation. References and fans also register themselves in p.lens.
	parse func(p *lensParser, body ast.Node) (operation.Op, error)
	body  any // type of the body, for the schema
}

// operations returns all operations of the format, in the order of error messages. It is a
// function, because a variable would refer to itself: an operation may contain others.
func operations() []declared {
	return []declared{
		{"rename", "Gives a field another name in its place.", (*lensParser).rename, renameBody{}},
		{"move", "Takes a field from one object to another.", (*lensParser).move, moveBody{}},
		{"convert", "Changes the type of a value, or the value by a table.", (*lensParser).convert, convertBody{}},
		{"add", "Puts a field into each new record.", (*lensParser).add, addBody{}},
		{"remove", "Takes a field away from each old record.", (*lensParser).remove, removeBody{}},
		{"copy", "Gives the new version a field with the value of another.", (*lensParser).copy, copyBody{}},
		{"wrap", "Makes a list of one of a value.", (*lensParser).wrap, fieldBody{}},
		{"unwrap", "Takes the value out of a list of one.", (*lensParser).unwrap, fieldBody{}},
		{"split", "Takes a string apart into several fields.", (*lensParser).split, splitBody{}},
		{"join", "Puts several strings together into one field.", (*lensParser).join, joinBody{}},
		{"splitList", "Makes a list of strings of a string.", (*lensParser).splitList, listingBody{}},
		{"joinList", "Makes a string of a list of strings.", (*lensParser).joinList, listingBody{}},
		{"normalize", "Brings values that mean the same into one form.", (*lensParser).normalize, normalizeBody{}},
		{"each", "Does operations in every item of a list or value of a map.", (*lensParser).each, eachBody{}},
		{"compute", "Makes some fields into others by CEL expressions.", (*lensParser).compute, computeBody{}},
		{"hook", "Makes some fields into others by Go code.", (*lensParser).hook, hookBody{}},
		{"reference", "Follows the keys of another kind, of this or of an imported service.", (*lensParser).reference, referenceBody{}},
		{"fanOut", "Makes the entries of a field records of their own.", (*lensParser).fanOut, fanBody{}},
		{"gather", "Takes records into a field of the one that they belong to.", (*lensParser).gather, fanBody{}},
	}
}

func operationNames() string {
	var names []string
	for _, o := range operations() {
		names = append(names, o.name)
	}
	return joinNames(names)
}

// operation reads one operation, a mapping with a single key.
func (p *lensParser) operation(n ast.Node) (operation.Op, error) {
	entries, ok := mapping(n)
	if !ok || len(entries) != 1 {
		return nil, p.errorAt(n, "an operation is a mapping with one key, one of: %s", operationNames())
	}
	name, err := scalarText(entries[0].Key)
	if err == nil {
		for _, o := range operations() {
			if o.name == name {
				return o.parse(p, entries[0].Value)
			}
		}
	}
	return nil, p.errorAt(entries[0].Key, "unknown operation %q; allowed: %s", strings.TrimSpace(entries[0].Key.String()), operationNames())
}

// operationList reads operations and checks that each can follow the ones before it.
func (p *lensParser) operationList(n ast.Node, before ...operation.Op) ([]operation.Op, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, p.errorAt(n, "operations must be a list of operations, each one of: %s", operationNames())
	}
	ops := append(make([]operation.Op, 0, len(before)+len(seq.Values)), before...)
	for _, n := range seq.Values {
		o, err := p.operation(n)
		if err != nil {
			return nil, err
		}
		if o == nil {
			continue
		}
		if err := operation.CheckSequence(ops, o); err != nil {
			return nil, p.errorAt(n, "%s: %v", o, err)
		}
		ops = append(ops, o)
		// Compile early, so that the error names the operation which cannot follow.
		for _, way := range [][]operation.Op{ops, operation.Inverses(ops)} {
			if _, err := operation.Compile(way); err != nil {
				return nil, p.errorAt(n, "%s: %v", o, err)
			}
		}
	}
	return ops, nil
}

func (p *lensParser) path(n ast.Node, key string) (edit.Path, error) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		text, err := scalarText(n)
		if err != nil {
			return nil, p.errorAt(n, "%s must be the dotted path of a field", key)
		}
		// YAML reads some field names, such as 5 or null, as other types.
		s = &ast.StringNode{Value: text}
	}
	// Within an each, a path begins at the item.
	parse := edit.ParsePath
	if p.inItem > 0 {
		parse = edit.ParseItemPath
	}
	out, err := parse(s.Value)
	if err != nil {
		return nil, p.errorAt(n, "%s: %v", key, err)
	}
	return out, nil
}

// fieldPath reads a path that must be a field of an object, not the item itself.
func (p *lensParser) fieldPath(n ast.Node, key string) (edit.Path, error) {
	out, err := p.path(n, key)
	if err == nil && out.IsItem() {
		err = p.errorAt(n, `%s: "." is the item itself, which has no name; only convert, wrap, unwrap, splitList, joinList, normalize, compute, hook and each work on it`, key)
	}
	return out, err
}

// paths reads a list of paths that do not contain each other.
func (p *lensParser) paths(n ast.Node, key string, least int) ([]edit.Path, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok || len(seq.Values) < least {
		return nil, p.errorAt(n, "%s must be a list of the dotted paths of at least %d fields", key, least)
	}
	var out []edit.Path
	for _, v := range seq.Values {
		at, err := p.path(v, key)
		if err != nil {
			return nil, err
		}
		for _, other := range out {
			// The result of one path would be within the other's.
			if at.Overlaps(other) {
				return nil, p.errorAt(v, "%s: %s and %s lie within each other", key, other, at)
			}
		}
		out = append(out, at)
	}
	return out, nil
}

func (p *lensParser) fromTo(n ast.Node, what string) (from, to edit.Path, err error) {
	f, err := p.fields(n, what, []string{"from", "to"}, nil)
	if err != nil {
		return nil, nil, err
	}
	if from, err = p.fieldPath(f["from"], "from"); err != nil {
		return nil, nil, err
	}
	if to, err = p.fieldPath(f["to"], "to"); err != nil {
		return nil, nil, err
	}
	// A field cannot move into itself.
	if from.Overlaps(to) {
		return nil, nil, p.errorAt(f["to"], "%s: %s and %s lie within each other", what, from, to)
	}
	return from, to, nil
}

func (p *lensParser) rename(n ast.Node) (operation.Op, error) {
	from, to, err := p.fromTo(n, "rename")
	if err != nil {
		return nil, err
	}
	// rename keeps the place of the field, which only works within one object.
	if !from.Parent().Equal(to.Parent()) {
		return nil, p.errorAt(n, "rename keeps a field in its object; use move for %s to %s", from, to)
	}
	return &operation.Rename{From: from, To: to}, nil
}

func (p *lensParser) move(n ast.Node) (operation.Op, error) {
	from, to, err := p.fromTo(n, "move")
	if err != nil {
		return nil, err
	}
	if from.Parent().Equal(to.Parent()) {
		return nil, p.errorAt(n, "move takes a field to another object; use rename for %s to %s", from, to)
	}
	return &operation.Move{From: from, To: to}, nil
}
