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
		{"rename", "Renames a field within its object.", (*lensParser).rename, renameBody{}},
		{"move", "Moves a field from one object to another.", (*lensParser).move, moveBody{}},
		{"convert", "Converts a value to another type, or maps it by a table.", (*lensParser).convert, convertBody{}},
		{"add", "Adds a field to each new record.", (*lensParser).add, addBody{}},
		{"remove", "Removes a field of the old records.", (*lensParser).remove, removeBody{}},
		{"copy", "Copies the value of a field into a new field of the new version.", (*lensParser).copy, copyBody{}},
		{"wrap", "Turns a value into a list with this one item.", (*lensParser).wrap, fieldBody{}},
		{"unwrap", "Replaces a list of one item by this item.", (*lensParser).unwrap, fieldBody{}},
		{"split", "Splits a string into several fields.", (*lensParser).split, splitBody{}},
		{"join", "Joins several strings into one field.", (*lensParser).join, joinBody{}},
		{"splitList", "Splits a string into a list of strings.", (*lensParser).splitList, listingBody{}},
		{"joinList", "Joins a list of strings into one string.", (*lensParser).joinList, listingBody{}},
		{"normalize", "Normalizes values with one meaning to one form.", (*lensParser).normalize, normalizeBody{}},
		{"each", "Applies operations to every item of a list or value of a map.", (*lensParser).each, eachBody{}},
		{"compute", "Computes fields from others with CEL expressions.", (*lensParser).compute, computeBody{}},
		{"hook", "Computes fields from others with Go code.", (*lensParser).hook, hookBody{}},
		{"reference", "Updates a reference when the keys of its kind change. The kind is one of this service or of an imported one.", (*lensParser).reference, referenceBody{}},
		{"fanOut", "Turns the entries of a field into records of another kind.", (*lensParser).fanOut, fanBody{}},
		{"gather", "Collects records into a field of the record that they belong to.", (*lensParser).gather, fanBody{}},
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
