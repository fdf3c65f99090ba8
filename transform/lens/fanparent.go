package lens

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// namesParent reports whether a part of a child's key comes from the parent's name.
func (f *fan) namesParent() bool {
	return slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source == partKey || p.source == partVariable })
}

// parentValues sets the values in a child's key that follow from the parent's _id.
func (f *fan) parentValues(id bson.RawValue, as scalar.Reading, values []string) error {
	var own [keymap.MaxVariables]string
	// Read the variables of the parent's key, which the child's key may use one by one.
	if f.parentForm != nil {
		if err := f.parentForm.Read(id, as, own[:len(f.parentForm.Variables)]); err != nil {
			return err
		}
	}
	for i, part := range f.parts {
		switch part.source {
		case partKey:
			text, err := f.parentType.Read(id, as)
			if err != nil {
				return fmt.Errorf("it %w: declare the type that it has in the key, as %s:objectId does", err, keymap.WholeKey)
			}
			values[i] = text
		case partVariable:
			// The child's key may declare another type than the parent's.
			if err := f.key.Types[i].Check(own[part.index]); err != nil {
				return fmt.Errorf("{%s} %w", f.key.Variables[i], err)
			}
			values[i] = own[part.index]
		}
	}
	return nil
}

// parentPrefix counts the leading segments of a text key that follow from the parent's _id. It
// returns 0 if the _id does not follow from them in turn. Only text keys have a prefix to search
// for. whole reports that all of the key follows from the parent's _id.
func (f *fan) parentPrefix() (end int, whole bool) {
	ofParent := func(i int) bool { return f.parts[i].source == partKey || f.parts[i].source == partVariable }
	// known counts the variables in the leading segments.
	known := len(f.parts)
	if p := f.key.Pattern(); p != nil {
		known = 0
		for _, s := range p.Segments {
			// From here on, the key depends on the child.
			if s.Variable >= 0 && !ofParent(s.Variable) {
				break
			}
			end++
			if s.Variable >= 0 {
				known++
			}
		}
		whole = end == len(p.Segments)
	} else if whole = !slices.ContainsFunc(f.parts, func(p keyPart) bool { return p.source != partKey && p.source != partVariable }); !whole {
		return 0, false
	}
	// The parent's _id must follow from these variables and its constants.
	have := make([]bool, len(f.constants))
	for _, part := range f.parts[:known] {
		if part.source == partKey {
			return end, whole
		}
		have[part.index] = true
	}
	if f.parentForm == nil {
		return 0, false
	}
	for i, c := range f.constants {
		if c == "" && !have[i] {
			return 0, false
		}
	}
	return end, whole
}

// byContent reports whether a child's key does not determine its parent, or a parent's children
// cannot be found by key.
func (f *fan) byContent() bool { return f.prefix == 0 && !f.whole }

// parentOf derives the parent's key from a child's key.
func (f *fan) parentOf(key record.Key) (record.Key, error) {
	var values, own [keymap.MaxVariables]string
	if err := f.key.Read(key.Value(), scalar.ReadKey, values[:len(f.parts)]); err != nil {
		return "", err
	}
	for i, part := range f.parts {
		switch part.source {
		case partKey:
			// The key contains the parent's whole _id.
			typ, val := f.parentType.AppendTo(nil, values[i])
			return record.KeyOf(bson.RawValue{Type: typ, Value: val})
		case partVariable:
			own[part.index] = values[i]
		}
	}
	// Constants of the parent's key are not in the child's key.
	for i, c := range f.constants {
		if c != "" {
			own[i] = c
		}
	}
	return f.parentForm.Key(own[:len(f.parentForm.Variables)])
}

// ownItem reports whether a part of the key is the _id of an item whose record has another _id. The
// item's _id is then not stored in the record.
func (f *fan) ownItem(part keyPart) bool {
	return part.source == partItem && len(part.item) == 1 && string(part.item[0]) == string(edit.FieldID) && !f.ownID()
}
