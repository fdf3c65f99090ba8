package lens

import (
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// key reads the key section: the operations of the key, which stand around the others.
func (p *lensParser) key(n ast.Node) error {
	f, err := p.fields(n, "key", []string{"from", "to"}, []string{"with", "without"})
	if err != nil {
		return err
	}
	k := &keys{}
	if k.from, err = p.pattern(f["from"], "from"); err != nil {
		return err
	}
	if k.to, err = p.pattern(f["to"], "to"); err != nil {
		return err
	}
	for _, side := range []struct {
		given        string
		has, lacks   *Pattern
		hasKey, lack string
		byContent    *bool
	}{
		{"without", k.from, k.to, "from", "to", &k.byContentDown},
		{"with", k.to, k.from, "to", "from", &k.byContent},
	} {
		values, err := p.keyValues(f[side.given], side.given)
		if err != nil {
			return err
		}
		for _, name := range side.has.variables {
			if slices.Contains(side.lacks.variables, name) {
				continue
			}
			v, given := values[name]
			if !given {
				return p.errorAt(f[side.hasKey], "only %s has {%s}; say under %q what it is for records of the other side: a constant, or {field: ...} of the record there", side.hasKey, name, side.given)
			}
			if name == WholeKey {
				return p.errorAt(f[side.hasKey], "{%s} must be in both patterns or in neither", WholeKey)
			}
			delete(values, name)
			k.variables = append(k.variables, v.keyVariable)
			*side.byContent = *side.byContent || v.field != nil
		}
		for name, v := range values {
			return p.errorAt(v.node, "%q is for variables that only %s has, and {%s} is not one", side.given, side.hasKey, name)
		}
	}
	for _, name := range k.from.variables {
		if slices.Contains(k.to.variables, name) {
			k.variables = append(k.variables, keyVariable{name: name})
		}
	}
	if len(k.variables) > maxVariables {
		return p.errorAt(n, "key has more than %d variables", maxVariables)
	}
	k.fromAt, k.toAt = k.index(k.from), k.index(k.to)
	p.lens.keys = k
	return nil
}

// index returns where the variables of a pattern are among those of the key.
func (k *keys) index(p *Pattern) []int {
	at := make([]int, len(p.variables))
	for i, name := range p.variables {
		at[i] = slices.IndexFunc(k.variables, func(v keyVariable) bool { return v.name == name })
	}
	return at
}

func (p *lensParser) pattern(n ast.Node, key string) (*Pattern, error) {
	text, err := scalarText(n)
	if err != nil {
		return nil, p.errorAt(n, "%s must be a pattern such as projects/{project}", key)
	}
	pattern, err := ParsePattern(text)
	if err != nil {
		return nil, p.errorAt(n, "%s: %v", key, err)
	}
	for _, v := range pattern.variables {
		if !simpleVariable(v) {
			return nil, p.errorAt(n, "%s: {%s} is only for the key of fanOut and gather", key, v)
		}
	}
	return pattern, nil
}

// givenVariable is a variable as with or without has it.
type givenVariable struct {
	keyVariable
	node ast.Node
}

func (p *lensParser) keyValues(n ast.Node, key string) (map[string]givenVariable, error) {
	out := map[string]givenVariable{}
	if n == nil {
		return out, nil
	}
	entries, ok := mapping(n)
	if !ok {
		return nil, p.errorAt(n, "%s must be a mapping from variables to constants or {field: ...}", key)
	}
	for _, entry := range entries {
		name, err := scalarText(entry.Key)
		if err != nil {
			return nil, p.errorAt(entry.Key, "%s must be a mapping from variables to constants or {field: ...}", key)
		}
		if _, twice := out[name]; twice {
			return nil, p.errorAt(entry.Key, "%s has %q twice", key, name)
		}
		v := givenVariable{keyVariable{name: name, oneSided: true}, entry.Key}
		if text, err := scalarText(entry.Value); err == nil {
			if err := checkValue(name, text); err != nil {
				return nil, p.errorAt(entry.Value, "%s: %v", key, err)
			}
			v.constant = text
			out[name] = v
			continue
		}
		f, err := p.fields(entry.Value, key+" "+name, []string{"field"}, []string{"keep"})
		if err != nil {
			return nil, err
		}
		if v.field, err = p.path(f["field"], "field"); err != nil {
			return nil, err
		}
		if v.keepField, err = p.flag(f["keep"], "keep"); err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// flag reads true or false; absent is false.
func (p *lensParser) flag(n ast.Node, key string) (bool, error) {
	if n == nil {
		return false, nil
	}
	b, ok := n.(*ast.BoolNode)
	if !ok {
		return false, p.errorAt(n, "%s is true or false", key)
	}
	return b.Value, nil
}
