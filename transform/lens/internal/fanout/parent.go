package fanout

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/keymap"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// NamesParent reports whether a part of a child's key comes from the parent's name.
func (f *Fan) NamesParent() bool {
	return slices.ContainsFunc(f.Parts, func(p KeyPart) bool { return p.Source == PartKey || p.Source == PartVariable })
}

// ParentValues sets the values of a child's key that follow from the parent's _id. values has one
// entry for each of Parts; the others stay unchanged.
func (f *Fan) ParentValues(id bson.RawValue, as scalar.Reading, values []string) error {
	var own [keymap.MaxVariables]string
	// Read the variables of the parent's key, which the child's key may use one by one.
	if f.ParentForm != nil {
		if err := f.ParentForm.Read(id, as, own[:len(f.ParentForm.Variables)]); err != nil {
			return err
		}
	}
	for i, part := range f.Parts {
		switch part.Source {
		case PartKey:
			text, err := f.ParentType.Read(id, as)
			if err != nil {
				return fmt.Errorf("it %w: declare its type in the key, as %s:objectId does", err, keymap.WholeKey)
			}
			values[i] = text
		case PartVariable:
			// The child's key may declare another type than the parent's.
			if err := f.Key.Types[i].Check(own[part.Index]); err != nil {
				return fmt.Errorf("{%s} %w", f.Key.Variables[i], err)
			}
			values[i] = own[part.Index]
		}
	}
	return nil
}

// ParentPrefix returns the number of leading segments of Key that follow from the parent's _id. It
// returns 0 if the parent's _id does not follow from those segments, and for a key that is no text.
// whole reports that all of Key follows from the parent's _id.
func (f *Fan) ParentPrefix() (end int, whole bool) {
	ofParent := func(i int) bool { return f.Parts[i].Source == PartKey || f.Parts[i].Source == PartVariable }
	// known counts the variables in the leading segments.
	known := len(f.Parts)
	if p := f.Key.Pattern(); p != nil {
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
	} else if whole = !slices.ContainsFunc(f.Parts, func(p KeyPart) bool { return p.Source != PartKey && p.Source != PartVariable }); !whole {
		return 0, false
	}
	// The parent's _id must follow from these variables and its constants.
	have := make([]bool, len(f.Constants))
	for _, part := range f.Parts[:known] {
		if part.Source == PartKey {
			return end, whole
		}
		have[part.Index] = true
	}
	if f.ParentForm == nil {
		return 0, false
	}
	for i, c := range f.Constants {
		if c == "" && !have[i] {
			return 0, false
		}
	}
	return end, whole
}

// ByContent reports whether groups go by content, because Prefix and Whole do not let the engine
// find parent and children by key.
func (f *Fan) ByContent() bool { return f.Prefix == 0 && !f.Whole }

// ParentOf returns the parent's key for a child's key. Use it only if ByContent is false.
func (f *Fan) ParentOf(key record.Key) (record.Key, error) {
	var values, own [keymap.MaxVariables]string
	if err := f.Key.Read(key.Value(), scalar.ReadKey, values[:len(f.Parts)]); err != nil {
		return "", err
	}
	for i, part := range f.Parts {
		switch part.Source {
		case PartKey:
			// The key contains the parent's whole _id.
			typ, val := f.ParentType.AppendTo(nil, values[i])
			return record.KeyOf(bson.RawValue{Type: typ, Value: val})
		case PartVariable:
			own[part.Index] = values[i]
		}
	}
	// Constants of the parent's key are not in the child's key.
	for i, c := range f.Constants {
		if c != "" {
			own[i] = c
		}
	}
	return f.ParentForm.Key(own[:len(f.ParentForm.Variables)])
}

// OwnItem reports whether a part of the key is the _id of an item whose record has another _id. The
// item's _id is then not stored in the record.
func (f *Fan) OwnItem(part KeyPart) bool {
	return part.Source == PartItem && len(part.Item) == 1 && string(part.Item[0]) == string(edit.FieldID) && !f.OwnID()
}
