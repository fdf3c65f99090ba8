package lens

import (
	"cmp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// fanKey reads the form of the children's keys.
func (p *lensParser) fanKey(f *fan, n ast.Node, verb string) error {
	var err error
	if f.key, err = p.idForm(n, "key"); err != nil {
		return err
	}
	if f.key.Written == "{id}" && f.as == asList {
		// {id} alone needs no declared type: the item has the field, and so the type.
		f.key.Types[0] = scalar.IDAny
	}
	if len(f.key.Variables) > keymap.MaxVariables {
		return p.errorAt(n, "key has more than %d variables", keymap.MaxVariables)
	}
	if k := p.lens.keys; k != nil {
		at := k.ToAt
		// The children are on the new side for fanOut, on the old side for gather.
		if f.parentForm = k.To; f.gather {
			f.parentForm, at = k.From, k.FromAt
		}
		// Constants of the parent's key need not be in the child's key.
		f.constants = make([]string, len(at))
		for i, slot := range at {
			f.constants[i] = k.Variables[slot].Constant
		}
		if !f.gather && k.ByContentDown {
			return p.errorAt(n, "fanOut is not possible with a key whose variables of from are fields of the new record (key.without): the new records' keys do not tell which old record they come from")
		}
	}
	for i, name := range f.key.Variables {
		part, err := p.keyPart(f, n, name, verb)
		if err != nil {
			return err
		}
		f.parts = append(f.parts, part)
		if err := p.partType(f, n, i); err != nil {
			return err
		}
	}
	// Otherwise the name of the entry would be lost.
	if f.as == asMap && f.entry == nil && !slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partEntry }) {
		return p.errorAt(n, "the name of a map's entry must be in the key, as {id}, or in a field of the record, as id")
	}
	f.prefix, f.whole = f.parentPrefix()
	return nil
}

// partType sets the type of a variable of the children's key. It is the type in the parent's key,
// or the declared type. A variable that stands alone without either has the type of its value.
func (p *lensParser) partType(f *fan, n ast.Node, i int) error {
	name, part, at := f.key.Variables[i], f.parts[i], f.key.PartOf(i)
	// First find the type, then check it against the declaration and its place in the key.
	own, declared := scalar.IDType(""), f.key.Types[i]
	alone := at.Pattern.Plain == "{"+name+"}"
	switch {
	case part.source == partVariable:
		// The variable's values are valid in both types of the parent's key, so the child may use
		// either.
		own = f.parentForm.TypeOf(part.index)
		if v := p.lens.keys.Variable(f.key.Variables[i]); declared == v.From || declared == v.To {
			own = declared
		}
	// A document has no text, so it is copied as it is.
	case part.source == partKey && f.parentForm != nil && f.parentForm.Document:
		own = scalar.IDAny
	case part.source == partKey && f.parentForm != nil:
		own = cmp.Or(f.parentForm.Parts[0].Alone, scalar.IDString)
	case declared != "":
		own = declared
	case part.source == partKey && alone, part.source == partItem && alone && f.key.Document:
		own = scalar.IDAny
	case part.source == partKey:
		own = scalar.IDString
	case part.source == partIndex && alone && f.key.Document:
		own = scalar.IDInt
	}
	switch {
	case declared != "" && declared != own:
		return p.errorAt(n, "key: {%s} is of type %s in the key of the record that they belong to, not %s", name, own, declared)
	case own == scalar.IDAny && !alone:
		return p.errorAt(n, "key: the record that they belong to has keys of any type, or documents, and {%s} cannot stand within a text: let it stand alone, as a field of a document, or use the variables of its key", name)
	case part.source == partIndex && own != "" && !own.IsNumber():
		return p.errorAt(n, "key: {index} is a number: declare it as one of int, long, double, number, or as none within a text")
	case part.source == partEntry && own == scalar.IDAny:
		return p.errorAt(n, "key: {%s} is the name of an entry, a text, and cannot be of type any", name)
	}
	// The form and its pattern both have the types, for reading and for texts.
	f.key.Types[i], at.Pattern.Types[i-at.First] = own, own
	if alone {
		at.Alone = own
	}
	if part.source == partKey {
		f.parentType = own
	}
	if f.ownItem(part) && own == "" {
		return p.errorAt(n, "key: {%s} is the _id of an item, which goes into the key and comes back out of it: say which type it has, such as {%s:objectId}", name, name)
	}
	return nil
}

func (p *lensParser) keyPart(f *fan, n ast.Node, name, verb string) (keyPart, error) {
	switch item, isItem := strings.CutPrefix(name, keymap.ItemPrefix); {
	case name == keymap.WholeKey:
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
		field, err := edit.Path{edit.FieldID}, error(nil)
		if item != string(edit.FieldID) {
			field, err = edit.ParsePath(item)
		}
		if err != nil {
			return keyPart{}, p.errorAt(n, "key: %v", err)
		}
		return keyPart{source: partItem, item: field}, nil
	}
	if f.parentForm != nil {
		if i := slices.Index(f.parentForm.Variables, name); i >= 0 {
			return keyPart{source: partVariable, index: i}, nil
		}
	}
	// List the variables that are possible here.
	allowed := []string{"{" + keymap.WholeKey + "}"}
	if f.parentForm != nil {
		for _, v := range f.parentForm.Variables {
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
		allowed = append(allowed, "{"+keymap.ItemPrefix+"<field>}")
	}
	return keyPart{}, p.errorAt(n, "key: there is no {%s} for %s as %s; allowed: %s", name, verb, f.as, joinNames(allowed))
}

// fanOrder checks that groups, keys and the order of a list can be derived in both directions.
func (p *lensParser) fanOrder(f *fan, m map[string]ast.Node) error {
	switch {
	case f.byContent() && f.parent == nil && f.key.Pattern() == nil:
		return p.errorAt(m["key"], "the records of a parent cannot be found by a key that is no text: give parent, the field of %s that holds the parent's key", f.kind)
	case f.byContent() && f.parent == nil:
		return p.errorAt(m["key"], "the key must begin with the parent's name, as {%s} or by all variables of its key; or give parent: the field of %s that holds the parent's key", keymap.WholeKey, f.kind)
	case f.as == asList && f.byContent() && !f.namesParent() && !slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source != partIndex }):
		return p.errorAt(m["key"], "the first entries of two records would have the same key: put the parent's key into it as {%s}, or {%s<field>}", keymap.WholeKey, keymap.ItemPrefix)
	case f.as == asObject && f.byContent() && !f.namesParent() && len(f.parts) == 0:
		return p.errorAt(m["key"], "all records of %s would have the same key: put the parent's key into it as {%s}, or {%s<field>}", f.kind, keymap.WholeKey, keymap.ItemPrefix)
	case f.as == asObject && f.order != nil:
		return p.errorAt(m["order"], "an object is one record and has no order")
	case f.as == asObject && slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partItem }):
		return nil
	case f.as == asList && f.sorted() && f.id == nil:
		return p.errorAt(m["key"], "a list needs order (the field of %s that keeps the place), or {index} in the key, or id, by which it is sorted then", f.kind)
	case f.as == asList && f.order != nil && f.id == nil && !f.indexed() && !slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partItem }):
		return p.errorAt(m["key"], "nothing in the key tells the items of a list apart; use {index}, {id} or {%s<field>}", keymap.ItemPrefix)
	case f.as == asMap && f.entry != nil && !slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partEntry || p.source == partItem }):
		return p.errorAt(m["key"], "nothing in the key tells the entries of a map apart; use {id} or {%s<field>}", keymap.ItemPrefix)
	}
	return nil
}
