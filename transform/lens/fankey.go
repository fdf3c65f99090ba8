package lens

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// fanKey reads the pattern of the children's keys.
func (p *lensParser) fanKey(f *fan, n ast.Node, verb string) error {
	text, err := scalarText(n)
	if err != nil {
		return p.errorAt(n, "key must be a pattern such as {_key}/{id}")
	}
	if f.key, err = ParsePattern(text); err != nil {
		return p.errorAt(n, "key: %v", err)
	}
	if len(f.key.variables) > maxVariables {
		return p.errorAt(n, "key has more than %d variables", maxVariables)
	}
	if k := p.lens.keys; k != nil {
		at := k.toAt
		if f.parentPattern = k.to; f.gather {
			f.parentPattern, at = k.from, k.fromAt
		}
		f.constants = make([]string, len(at))
		for i, slot := range at {
			f.constants[i] = k.variables[slot].constant
		}
		if !f.gather && k.byContentDown {
			return p.errorAt(n, "fanOut is not possible with a key whose variables of from are fields of the new record (key.without): the new records' keys do not tell which old record they come from")
		}
	}
	for _, name := range f.key.variables {
		part, err := p.keyPart(f, n, name, verb)
		if err != nil {
			return err
		}
		f.parts = append(f.parts, part)
	}
	if f.typed = text == "{id}" && f.as == asList; f.typed {
		return nil
	}
	if f.as == asMap && f.entry == nil && !slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partEntry }) {
		return p.errorAt(n, "the name of a map's entry must be in the key, as {id}, or in a field of the record, as id")
	}
	f.prefix = f.parentPrefix()
	return nil
}

func (p *lensParser) keyPart(f *fan, n ast.Node, name, verb string) (keyPart, error) {
	switch item, isItem := strings.CutPrefix(name, itemPrefix); {
	case name == WholeKey:
		return keyPart{source: partKey}, nil
	case name == "index" && f.as == asList:
		return keyPart{source: partIndex}, nil
	case name == "id" && f.as == asMap:
		return keyPart{source: partEntry}, nil
	case name == "id" && f.as == asList:
		if f.id == nil {
			return keyPart{}, p.errorAt(n, "{id} needs the key \"id\", the field that tells the items apart")
		}
		return keyPart{source: partItem, item: f.id}, nil
	case isItem && f.value == nil:
		field, err := parsePath(item)
		if err != nil {
			return keyPart{}, p.errorAt(n, "key: %v", err)
		}
		return keyPart{source: partItem, item: field}, nil
	}
	if f.parentPattern != nil {
		if i := slices.Index(f.parentPattern.variables, name); i >= 0 {
			return keyPart{source: partVariable, index: i}, nil
		}
	}
	allowed := []string{"{" + WholeKey + "}"}
	if f.parentPattern != nil {
		for _, v := range f.parentPattern.variables {
			allowed = append(allowed, "{"+v+"}")
		}
	}
	switch f.as {
	case asList:
		allowed = append(allowed, "{index}", "{id}")
	case asMap:
		allowed = append(allowed, "{id}")
	}
	if f.value == nil {
		allowed = append(allowed, "{"+itemPrefix+"<field>}")
	}
	return keyPart{}, p.errorAt(n, "key: there is no {%s} for %s as %s; allowed: %s", name, verb, f.as, joinNames(allowed))
}

// parentPrefix counts the segments at the beginning of the key that follow from the
// parent's name; 0 if that does not follow from them in turn.
func (f *fan) parentPrefix() int {
	whole, have := false, make([]bool, len(f.constants))
	end := 0
	for i, s := range f.key.segments {
		if s.variable >= 0 {
			part := f.parts[s.variable]
			if part.source != partKey && part.source != partVariable {
				break
			}
			whole = whole || part.source == partKey
			if part.source == partVariable {
				have[part.index] = true
			}
		}
		end = i + 1
	}
	if whole {
		return end
	}
	if f.parentPattern == nil {
		return 0
	}
	for i, c := range f.constants {
		if c == "" && !have[i] {
			return 0
		}
	}
	return end
}

// fanOrder checks that groups, keys and the order of a list can be told both ways.
func (p *lensParser) fanOrder(f *fan, m map[string]ast.Node) error {
	switch {
	case f.prefix == 0 && f.parent == nil:
		return p.errorAt(m["key"], "the key must begin with the parent's name, as {%s} or by all variables of its key; or give parent: the field of %s that holds the parent's key", WholeKey, f.kind)
	case f.as == asObject && f.order != nil:
		return p.errorAt(m["order"], "an object is one record and has no order")
	case f.as == asObject && slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partItem }):
		return nil
	case f.as == asList && f.sorted() && f.id == nil:
		return p.errorAt(m["key"], "a list needs order (the field of %s that keeps the place), or {index} in the key, or id, by which it is sorted then", f.kind)
	case f.as == asList && f.order != nil && f.id == nil && !f.indexed() && !slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partItem }):
		return p.errorAt(m["key"], "nothing in the key tells the items of a list apart; use {index}, {id} or {%s<field>}", itemPrefix)
	case f.as == asMap && f.entry != nil && !slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partEntry || p.source == partItem }):
		return p.errorAt(m["key"], "nothing in the key tells the entries of a map apart; use {id} or {%s<field>}", itemPrefix)
	}
	return nil
}
