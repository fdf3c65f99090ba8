package lens

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/text/unicode/norm"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// normalStep is one step to the form in which values are compared.
type normalStep string

const (
	stepTrim        normalStep = "trim"
	stepLower       normalStep = "lower"
	stepUpper       normalStep = "upper"
	stepNFC         normalStep = "nfc"
	stepZero        normalStep = "zero"
	stepEmpty       normalStep = "emptyToAbsent"
	stepNull        normalStep = "nullToAbsent"
	stepSort        normalStep = "sort"
	stepDeduplicate normalStep = "deduplicate"
)

var normalSteps = []normalStep{stepTrim, stepLower, stepUpper, stepNFC, stepZero, stepEmpty, stepNull, stepSort, stepDeduplicate}

// removes reports whether a step may remove a value.
func (s normalStep) removes() bool { return s == stepEmpty || s == stepNull }

// normalize brings values with the same meaning into one form. The reverse leaves a value as it is:
// the far side keeps its form while the meaning is equal. A step leaves values of other types
// alone.
type normalize struct {
	field edit.Path
	steps []normalStep
	back  bool
}

func (o *normalize) String() string {
	names := make([]string, len(o.steps))
	for i, s := range o.steps {
		names[i] = string(s)
	}
	return fmt.Sprintf("normalize %s (%s)", o.field, strings.Join(names, ", "))
}
func (o *normalize) inverse() op                         { return &normalize{o.field, o.steps, !o.back} }
func (o *normalize) takes() []edit.Path                  { return nil }
func (o *normalize) makes() []edit.Path                  { return nil }
func (o *normalize) changes() []edit.Path                { return []edit.Path{o.field} }
func (o *normalize) trace(p edit.Path) (edit.Path, fate) { return traceConvert(p, o.field) }
func (o *normalize) removes() bool                       { return slices.ContainsFunc(o.steps, normalStep.removes) }

func (o *normalize) forms() []form {
	return []form{{fields: []holding{{path: o.field, by: o}}}}
}

func (o *normalize) apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || o.back {
		return err
	}
	el := &n.Elems[i]
	was := bson.RawValue{Type: el.Type, Value: el.Value()}
	v := was
	for _, step := range o.steps {
		if v, err = step.apply(v); err != nil {
			return edit.Refuse(o.field, "%w", err)
		}
		if v.Type == 0 {
			n.Remove(i)
			return nil
		}
	}
	// An unchanged value must not mark the record as changed.
	if !edit.SameValue(v, was) {
		n.Set(i, v.Type, v.Value)
	}
	return nil
}

// apply returns the normal form of a value, or the zero value if the step removes it.
func (s normalStep) apply(v bson.RawValue) (bson.RawValue, error) {
	switch s {
	case stepNull:
		if v.Type == bson.TypeNull {
			return bson.RawValue{}, nil
		}
	case stepEmpty:
		// Five bytes are the length and the zero byte of an empty string.
		if v.Type == bson.TypeString && len(v.Value) == 5 {
			return bson.RawValue{}, nil
		}
	case stepZero:
		if v.Type == bson.TypeDouble && scalar.IsMinusZero(v.Value) {
			return bson.RawValue{Type: v.Type, Value: make([]byte, 8)}, nil
		}
	case stepSort, stepDeduplicate:
		if v.Type == bson.TypeArray {
			return s.applyList(v)
		}
	default:
		if v.Type == bson.TypeString {
			return scalar.StringValue(s.applyText(scalar.StringOf(v.Value))), nil
		}
	}
	return v, nil
}

func (s normalStep) applyText(text string) string {
	switch s {
	case stepTrim:
		return strings.TrimSpace(text)
	case stepLower:
		return strings.ToLower(text)
	case stepUpper:
		return strings.ToUpper(text)
	default:
		return norm.NFC.String(text)
	}
}

func (s normalStep) applyList(v bson.RawValue) (bson.RawValue, error) {
	items, err := bson.Raw(v.Value).Values()
	if err != nil {
		return v, edit.ErrMalformed
	}
	if s == stepDeduplicate {
		seen := make(map[string]bool, len(items))
		items = slices.DeleteFunc(items, func(item bson.RawValue) bool {
			key := edit.ValueKey(item)
			was := seen[key]
			seen[key] = true
			return was
		})
	} else if items, err = sorted(items); err != nil {
		return v, err
	}
	// Number the items again, since steps remove or reorder them.
	b := append(make([]byte, 0, len(v.Value)), 0, 0, 0, 0)
	for k, item := range items {
		b = append(b, byte(item.Type))
		b = append(strconv.AppendInt(b, int64(k), 10), 0)
		b = append(b, item.Value...)
	}
	b = append(b, 0)
	edit.PutLength(b, len(b))
	return bson.RawValue{Type: bson.TypeArray, Value: b}, nil
}

// sorted sorts items in the database's key order.
func sorted(items []bson.RawValue) ([]bson.RawValue, error) {
	type placed struct {
		at   record.Cursor
		item bson.RawValue
	}
	out := make([]placed, len(items))
	for i, item := range items {
		key, err := record.KeyOf(item)
		if err != nil {
			return nil, fmt.Errorf("has item %d of type %s, which has no order for sort", i, edit.TypeName(item.Type))
		}
		out[i] = placed{record.Cursor(key), item}
	}
	// Equal numbers of different types need a fixed order too, or the result would depend on the
	// input's order.
	slices.SortStableFunc(out, func(a, b placed) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.item.Type, b.item.Type), bytes.Compare(a.item.Value, b.item.Value))
	})
	for i := range out {
		items[i] = out[i].item
	}
	return items, nil
}

var (
	_ op     = (*normalize)(nil)
	_ former = (*normalize)(nil)
)
