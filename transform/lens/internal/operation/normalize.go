package operation

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

// NormalStep is one step from a value to its normal form, the form in which values are compared.
type NormalStep string

const (
	stepTrim        NormalStep = "trim"
	StepLower       NormalStep = "lower"
	StepUpper       NormalStep = "upper"
	StepNFC         NormalStep = "nfc"
	stepZero        NormalStep = "zero"
	stepEmpty       NormalStep = "emptyToAbsent"
	stepNull        NormalStep = "nullToAbsent"
	stepSort        NormalStep = "sort"
	stepDeduplicate NormalStep = "deduplicate"
)

// NormalSteps lists all steps of normalize.
var NormalSteps = []NormalStep{stepTrim, StepLower, StepUpper, StepNFC, stepZero, stepEmpty, stepNull, stepSort, stepDeduplicate}

// Removes reports whether the step may remove a value.
func (s NormalStep) Removes() bool { return s == stepEmpty || s == stepNull }

// Normalize brings values with the same meaning into one form. The reverse leaves a value as it is.
// Each side keeps its own form while the normal forms are equal. A step does not change values of
// types that it does not apply to.
type Normalize struct {
	Field edit.Path
	Steps []NormalStep
	back  bool
}

func (o *Normalize) String() string {
	names := make([]string, len(o.Steps))
	for i, s := range o.Steps {
		names[i] = string(s)
	}
	return fmt.Sprintf("normalize %s (%s)", o.Field, strings.Join(names, ", "))
}
func (o *Normalize) Inverse() Op                         { return &Normalize{o.Field, o.Steps, !o.back} }
func (o *Normalize) Takes() []edit.Path                  { return nil }
func (o *Normalize) Makes() []edit.Path                  { return nil }
func (o *Normalize) Changes() []edit.Path                { return []edit.Path{o.Field} }
func (o *Normalize) Trace(p edit.Path) (edit.Path, Fate) { return TraceConvert(p, o.Field) }
func (o *Normalize) removes() bool                       { return slices.ContainsFunc(o.Steps, NormalStep.Removes) }

func (o *Normalize) Forms() []form {
	return []form{{Fields: []Holding{{Path: o.Field, By: o}}}}
}

func (o *Normalize) Apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.Field)
	if err != nil || i < 0 || o.back {
		return err
	}
	el := &n.Elems[i]
	was := bson.RawValue{Type: el.Type, Value: el.Value()}
	v := was
	for _, step := range o.Steps {
		if v, err = step.Apply(v); err != nil {
			return edit.Refuse(o.Field, "%w", err)
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

// Apply returns the normal form of a value, or the zero value if the step removes it.
func (s NormalStep) Apply(v bson.RawValue) (bson.RawValue, error) {
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

func (s NormalStep) applyText(text string) string {
	switch s {
	case stepTrim:
		return strings.TrimSpace(text)
	case StepLower:
		return strings.ToLower(text)
	case StepUpper:
		return strings.ToUpper(text)
	default:
		return norm.NFC.String(text)
	}
}

func (s NormalStep) applyList(v bson.RawValue) (bson.RawValue, error) {
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
	_ Op     = (*Normalize)(nil)
	_ former = (*Normalize)(nil)
)
