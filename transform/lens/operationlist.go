package lens

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/operation"
)

func (p *lensParser) copy(n ast.Node) (operation.Op, error) {
	from, to, err := p.fromTo(n, "copy")
	if err != nil {
		return nil, err
	}
	return &operation.Add{Field: to, From: from, Verb: "copy"}, nil
}

// field reads an operation whose body is only a field.
func (p *lensParser) field(n ast.Node, what string) (edit.Path, error) {
	f, err := p.fields(n, what, []string{"field"}, nil)
	if err != nil {
		return nil, err
	}
	return p.path(f["field"], "field")
}

func (p *lensParser) wrap(n ast.Node) (operation.Op, error) {
	field, err := p.field(n, "wrap")
	if err != nil {
		return nil, err
	}
	return &operation.Wrap{Field: field, Verb: "wrap"}, nil
}

func (p *lensParser) unwrap(n ast.Node) (operation.Op, error) {
	field, err := p.field(n, "unwrap")
	if err != nil {
		return nil, err
	}
	return &operation.Unwrap{Field: field, Verb: "unwrap"}, nil
}

func (p *lensParser) split(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "split", []string{"field", "to", "separator"}, []string{"rest"})
	if err != nil {
		return nil, err
	}
	return p.splitting(f, f["field"], "field", f["to"], "to")
}

func (p *lensParser) join(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "join", []string{"fields", "to", "separator"}, []string{"rest"})
	if err != nil {
		return nil, err
	}
	o, err := p.splitting(f, f["to"], "to", f["fields"], "fields")
	if err != nil {
		return nil, err
	}
	return o.Inverse(), nil
}

// splitting reads split. For join it reads the inverse.
func (p *lensParser) splitting(f map[string]ast.Node, whole ast.Node, wholeKey string, parts ast.Node, partsKey string) (operation.Op, error) {
	field, err := p.fieldPath(whole, wholeKey)
	if err != nil {
		return nil, err
	}
	to, err := p.paths(parts, partsKey, 2)
	if err != nil {
		return nil, err
	}
	for _, part := range to {
		// A part within the whole, or around it, would be removed together with it.
		if part.Overlaps(field) && !part.Equal(field) {
			return nil, p.errorAt(parts, "%s: %s and %s lie within each other", partsKey, part, field)
		}
	}
	separator, err := scalarText(f["separator"])
	if err != nil || separator == "" {
		return nil, p.errorAt(f["separator"], "separator must be a string that is not empty")
	}
	s := &operation.Splitter{Separator: separator, Parts: len(to)}
	if r, ok := f["rest"]; ok {
		b, ok := r.(*ast.BoolNode)
		if !ok {
			return nil, p.errorAt(r, "rest must be true or false")
		}
		s.Rest = b.Value
	}
	// Errors must name the operation as the lens has it, also for the inverse.
	name := fmt.Sprintf("split %s into %s", field, operation.PathNames(to))
	if wholeKey == "to" {
		name = fmt.Sprintf("join %s to %s", operation.PathNames(to), field)
	}
	return &operation.Calc{Name: name, From: []edit.Path{field}, To: to, Up: s.Split, Down: s.Join, Parted: s}, nil
}

func (p *lensParser) each(n ast.Node) (operation.Op, error) {
	f, err := p.fields(n, "each", []string{"field", "operations"}, []string{"in", "match"})
	if err != nil {
		return nil, err
	}
	field, err := p.path(f["field"], "field")
	if err != nil {
		return nil, err
	}
	in := operation.AnyItems
	if v, ok := f["in"]; ok {
		text, err := scalarText(v)
		in = operation.Container(text)
		if err != nil || in != operation.InList && in != operation.InMap {
			return nil, p.errorAt(v, "in: unknown container %q; allowed: list, map", strings.TrimSpace(v.String()))
		}
	}
	// The database limits nesting, so deeper operations could never apply.
	if p.inItem++; p.inItem > edit.MaxDepth {
		return nil, p.errorAt(n, "each: nested more than %d deep", edit.MaxDepth)
	}
	defer func() { p.inItem-- }()
	var match edit.Path
	if v, ok := f["match"]; ok {
		if match, err = p.fieldPath(v, "match"); err != nil {
			return nil, err
		}
		if in == operation.InMap {
			return nil, p.errorAt(v, "match is for lists; the names of a map's entries identify them")
		}
	}
	ops, err := p.operationList(f["operations"])
	if err != nil {
		return nil, err
	}
	o, err := operation.NewEach(field, in, match, ops)
	if err != nil {
		at := n
		if v, ok := f["match"]; ok {
			at = v
		}
		return nil, p.errorAt(at, "each: %v", err)
	}
	// Without match the reverse could not find the item that holds the missing field.
	if o.NeedsMatch() && match == nil {
		// Name the first operation that needs it.
		held := append(o.Run.Held, o.Back.Held...)[0]
		return nil, p.errorAt(n, "each: %s needs match, a field that identifies the items of the list (or in: map): one side lacks the field and takes its value from the matching item of the other side", held.By)
	}
	return o, nil
}
