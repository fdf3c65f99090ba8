package lens

import (
	"cmp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/fanout"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// fanKey reads the form of the children's keys.
func (p *lensParser) fanKey(f *fanout.Fan, n ast.Node, verb string) error {
	var err error
	if f.Key, err = p.idForm(n, "key"); err != nil {
		return err
	}
	if f.Key.Written == "{id}" && f.As == fanout.AsList {
		// {id} alone needs no declared type: the item has the field, and so the type.
		f.Key.Types[0] = scalar.IDAny
	}
	if len(f.Key.Variables) > keymap.MaxVariables {
		return p.errorAt(n, "key has more than %d variables", keymap.MaxVariables)
	}
	if k := p.lens.keys; k != nil {
		at := k.ToAt
		// The children are on the new side for fanOut, on the old side for gather.
		if f.ParentForm = k.To; f.Gather {
			f.ParentForm, at = k.From, k.FromAt
		}
		// Constants of the parent's key need not be in the child's key.
		f.Constants = make([]string, len(at))
		for i, slot := range at {
			f.Constants[i] = k.Variables[slot].Constant
		}
		if !f.Gather && k.ByContentDown {
			return p.errorAt(n, "fanOut is not possible with a key whose variables of from are fields of the new record (key.without): the keys of the new records do not identify their old record")
		}
	}
	for i, name := range f.Key.Variables {
		part, err := p.keyPart(f, n, name, verb)
		if err != nil {
			return err
		}
		f.Parts = append(f.Parts, part)
		if err := p.partType(f, n, i); err != nil {
			return err
		}
	}
	// Otherwise the name of the entry would be lost.
	if f.As == fanout.AsMap && f.Entry == nil && !slices.ContainsFunc(f.Parts, func(p fanout.KeyPart) bool { return p.Source == fanout.PartEntry }) {
		return p.errorAt(n, "the name of a map's entry must be in the key, as {id}, or in a field of the record, as id")
	}
	f.Prefix, f.Whole = f.ParentPrefix()
	return nil
}

// partType sets the type of a variable of the children's key. It is the type in the parent's key,
// or the declared type. A variable that stands alone without either has the type of its value.
func (p *lensParser) partType(f *fanout.Fan, n ast.Node, i int) error {
	name, part, at := f.Key.Variables[i], f.Parts[i], f.Key.PartOf(i)
	// First find the type, then check it against the declaration and its place in the key.
	own, declared := scalar.IDType(""), f.Key.Types[i]
	alone := at.Pattern.Plain == "{"+name+"}"
	switch {
	case part.Source == fanout.PartVariable:
		// The variable's values are valid in both types of the parent's key, so the child may use
		// either.
		own = f.ParentForm.TypeOf(part.Index)
		if v := p.lens.keys.Variable(f.Key.Variables[i]); declared == v.From || declared == v.To {
			own = declared
		}
	// A document has no text, so it is copied as it is.
	case part.Source == fanout.PartKey && f.ParentForm != nil && f.ParentForm.Document:
		own = scalar.IDAny
	case part.Source == fanout.PartKey && f.ParentForm != nil:
		own = cmp.Or(f.ParentForm.Parts[0].Alone, scalar.IDString)
	case declared != "":
		own = declared
	case part.Source == fanout.PartKey && alone, part.Source == fanout.PartItem && alone && f.Key.Document:
		own = scalar.IDAny
	case part.Source == fanout.PartKey:
		own = scalar.IDString
	case part.Source == fanout.PartIndex && alone && f.Key.Document:
		own = scalar.IDInt
	}
	switch {
	case declared != "" && declared != own:
		return p.errorAt(n, "key: {%s} is of type %s in the key of the parent record, not %s", name, own, declared)
	case own == scalar.IDAny && !alone:
		return p.errorAt(n, "key: the parent record has keys of any type, or documents, and {%s} cannot stand within a text: let it stand alone, as a field of a document, or use the variables of its key", name)
	case part.Source == fanout.PartIndex && own != "" && !own.IsNumber():
		return p.errorAt(n, "key: {index} is a number: declare one of int, long, double or number, or no type within a text")
	case part.Source == fanout.PartEntry && own == scalar.IDAny:
		return p.errorAt(n, "key: {%s} is the name of an entry, a text, and cannot be of type any", name)
	}
	// The form and its pattern both have the types, for reading and for texts.
	f.Key.Types[i], at.Pattern.Types[i-at.First] = own, own
	if alone {
		at.Alone = own
	}
	if part.Source == fanout.PartKey {
		f.ParentType = own
	}
	if f.OwnItem(part) && own == "" {
		return p.errorAt(n, "key: {%s} is the _id of an item, which the reverse reads from the key: declare its type, such as {%s:objectId}", name, name)
	}
	return nil
}

func (p *lensParser) keyPart(f *fanout.Fan, n ast.Node, name, verb string) (fanout.KeyPart, error) {
	switch item, isItem := strings.CutPrefix(name, keymap.ItemPrefix); {
	case name == keymap.WholeKey:
		return fanout.KeyPart{Source: fanout.PartKey}, nil
	case name == "index" && f.As == fanout.AsList:
		return fanout.KeyPart{Source: fanout.PartIndex}, nil
	case name == "id" && f.As == fanout.AsMap:
		return fanout.KeyPart{Source: fanout.PartEntry}, nil
	case name == "id" && f.As == fanout.AsList:
		if f.ID == nil {
			return fanout.KeyPart{}, p.errorAt(n, "{id} needs the key \"id\", the field that identifies the items")
		}
		return fanout.KeyPart{Source: fanout.PartItem, Item: f.ID}, nil
	case isItem && f.Value == nil:
		field, err := edit.Path{edit.FieldID}, error(nil)
		if item != string(edit.FieldID) {
			field, err = edit.ParsePath(item)
		}
		if err != nil {
			return fanout.KeyPart{}, p.errorAt(n, "key: %v", err)
		}
		return fanout.KeyPart{Source: fanout.PartItem, Item: field}, nil
	}
	if f.ParentForm != nil {
		if i := slices.Index(f.ParentForm.Variables, name); i >= 0 {
			return fanout.KeyPart{Source: fanout.PartVariable, Index: i}, nil
		}
	}
	// List the variables that are possible here.
	allowed := []string{"{" + keymap.WholeKey + "}"}
	if f.ParentForm != nil {
		for _, v := range f.ParentForm.Variables {
			allowed = append(allowed, "{"+v+"}")
		}
	}
	switch f.As {
	case fanout.AsList:
		allowed = append(allowed, "{index}", "{id}")
	case fanout.AsMap:
		allowed = append(allowed, "{id}")
	}
	if f.Value == nil {
		allowed = append(allowed, "{"+keymap.ItemPrefix+"<field>}")
	}
	return fanout.KeyPart{}, p.errorAt(n, "key: there is no {%s} for %s as %s; allowed: %s", name, verb, f.As, joinNames(allowed))
}

// fanOrder checks that groups, keys and the order of a list can be derived in both directions.
func (p *lensParser) fanOrder(f *fanout.Fan, m map[string]ast.Node) error {
	switch {
	case f.ByContent() && f.Parent == nil && f.Key.Pattern() == nil:
		return p.errorAt(m["key"], "records cannot be found by a parent's key that is not a text: give parent, the field of %s that holds the parent's key", f.Kind)
	case f.ByContent() && f.Parent == nil:
		return p.errorAt(m["key"], "the key must begin with the parent's name, as {%s} or by all variables of its key; or give parent: the field of %s that holds the parent's key", keymap.WholeKey, f.Kind)
	case f.As == fanout.AsList && f.ByContent() && !f.NamesParent() && !slices.ContainsFunc(f.Parts, func(p fanout.KeyPart) bool { return p.Source != fanout.PartIndex }):
		return p.errorAt(m["key"], "the first entries of two records would have the same key: put the parent's key into it as {%s}, or {%s<field>}", keymap.WholeKey, keymap.ItemPrefix)
	case f.As == fanout.AsObject && f.ByContent() && !f.NamesParent() && len(f.Parts) == 0:
		return p.errorAt(m["key"], "all records of %s would have the same key: put the parent's key into it as {%s}, or {%s<field>}", f.Kind, keymap.WholeKey, keymap.ItemPrefix)
	case f.As == fanout.AsObject && f.Order != nil:
		return p.errorAt(m["order"], "an object is one record and has no order")
	case f.As == fanout.AsObject && slices.ContainsFunc(f.Parts, func(p fanout.KeyPart) bool { return p.Source == fanout.PartItem }):
		return nil
	case f.As == fanout.AsList && f.Sorted() && f.ID == nil:
		return p.errorAt(m["key"], "a list needs order (the field of %s that holds the position), or {index} in the key, or id, which then sorts the list", f.Kind)
	case f.As == fanout.AsList && f.Order != nil && f.ID == nil && !f.Indexed() && !slices.ContainsFunc(f.Parts, func(p fanout.KeyPart) bool { return p.Source == fanout.PartItem }):
		return p.errorAt(m["key"], "nothing in the key identifies the items of a list; use {index}, {id} or {%s<field>}", keymap.ItemPrefix)
	case f.As == fanout.AsMap && f.Entry != nil && !slices.ContainsFunc(f.Parts, func(p fanout.KeyPart) bool { return p.Source == fanout.PartEntry || p.Source == fanout.PartItem }):
		return p.errorAt(m["key"], "nothing in the key identifies the entries of a map; use {id} or {%s<field>}", keymap.ItemPrefix)
	}
	return nil
}
