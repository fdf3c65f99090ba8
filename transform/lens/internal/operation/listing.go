package operation

import (
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// Listing splits a string at a separator into a list of strings. Its inverse joins the list. The
// empty string is the empty list. Absent and null fields stay.
//
// Without tidy every string gives a different list, and no string is refused. A list is refused if
// an item is not a string or contains the separator, or if its only item is empty. With tidy, items
// have no blanks around them and are not empty, and each side keeps its form while the items are
// equal.
type Listing struct {
	Field     edit.Path
	Separator string
	Tidy      bool
	Verb      string // the operation's name in the lens
}

type unlisting Listing

func (o *Listing) String() string {
	if o.Tidy {
		return fmt.Sprintf("%s %s (tidy)", o.Verb, o.Field)
	}
	return fmt.Sprintf("%s %s", o.Verb, o.Field)
}
func (o *Listing) Inverse() Op                           { return (*unlisting)(o) }
func (o *Listing) Takes() []edit.Path                    { return nil }
func (o *Listing) Makes() []edit.Path                    { return nil }
func (o *Listing) Changes() []edit.Path                  { return []edit.Path{o.Field} }
func (o *Listing) Trace(p edit.Path) (edit.Path, Fate)   { return traceListing(p, o.Field) }
func (o *unlisting) String() string                      { return (*Listing)(o).String() }
func (o *unlisting) Inverse() Op                         { return (*Listing)(o) }
func (o *unlisting) Takes() []edit.Path                  { return nil }
func (o *unlisting) Makes() []edit.Path                  { return nil }
func (o *unlisting) Changes() []edit.Path                { return []edit.Path{o.Field} }
func (o *unlisting) Trace(p edit.Path) (edit.Path, Fate) { return traceListing(p, o.Field) }

// traceListing traces a path. An item of the list has no place in the string.
func traceListing(p, field edit.Path) (edit.Path, Fate) {
	if p.Under(field) && !p.Equal(field) {
		return nil, Spread
	}
	return TraceConvert(p, field)
}

// listed returns the field of a listing or unlisting.
func listed(o Op) (edit.Path, bool) {
	switch o := o.(type) {
	case *Listing:
		return o.Field, true
	case *unlisting:
		return o.Field, true
	default:
		return nil, false
	}
}

func (o *Listing) Apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.Field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	if el.Type != bson.TypeString {
		return edit.Refuse(o.Field, "is of type %s, not string", edit.TypeName(el.Type))
	}
	at := len(e.Scratch)
	e.Scratch = append(e.Scratch, 0, 0, 0, 0)
	k := 0
	for item := range o.items(scalar.StringOf(el.Val)) {
		// An element of a BSON array: type, index as text, zero byte, value.
		e.Scratch = append(e.Scratch, byte(bson.TypeString))
		e.Scratch = strconv.AppendInt(e.Scratch, int64(k), 10)
		e.Scratch = scalar.AppendString(append(e.Scratch, 0), item)
		k++
	}
	e.Scratch = append(e.Scratch, 0)
	val := e.Scratch[at:len(e.Scratch):len(e.Scratch)]
	edit.PutLength(val, len(val))
	n.Set(i, bson.TypeArray, val)
	return nil
}

// items returns the items of a string.
func (o *Listing) items(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if s == "" {
			return
		}
		for item := range strings.SplitSeq(s, o.Separator) {
			if o.Tidy {
				if item = strings.TrimSpace(item); item == "" {
					continue
				}
			}
			if !yield(item) {
				return
			}
		}
	}
}

func (o *unlisting) Apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.Field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	if el.Type != bson.TypeArray {
		return edit.Refuse(o.Field, "is of type %s, not a list", edit.TypeName(el.Type))
	}
	// Check every item while joining: an item that would split differently must fail the record.
	list, err := e.OpenAt(el)
	if err != nil {
		return err
	}
	at := len(e.Scratch)
	e.Scratch = append(e.Scratch, 0, 0, 0, 0)
	put := 0
	for k := range list.Elems {
		item := &list.Elems[k]
		if item.Type != bson.TypeString {
			return edit.Refuse(o.Field, "has item %d of type %s, not string", k, edit.TypeName(item.Type))
		}
		s := scalar.StringOf(item.Val)
		switch {
		// The numbers would not come back from the string.
		case string(item.Name) != strconv.Itoa(k):
			return edit.Refuse(o.Field, "is a list whose items are not numbered from 0")
		case strings.Contains(s, o.Separator):
			return edit.Refuse(o.Field, "has item %d with the separator %q in it", k, o.Separator)
		case o.Tidy:
			if s = strings.TrimSpace(s); s == "" {
				continue
			}
		case s == "" && len(list.Elems) == 1:
			return edit.Refuse(o.Field, "is a list of one empty string, which the reverse would make a list without items")
		}
		// Not the item's index: with tidy, empty items are skipped.
		if put > 0 {
			e.Scratch = append(e.Scratch, o.Separator...)
		}
		e.Scratch = append(e.Scratch, s...)
		put++
	}
	e.Scratch = append(e.Scratch, 0)
	val := e.Scratch[at:len(e.Scratch):len(e.Scratch)]
	edit.PutLength(val, len(val)-4)
	n.Set(i, bson.TypeString, val)
	return nil
}

func (o *Listing) Forms() []form {
	if !o.Tidy {
		return nil
	}
	return []form{{Fields: []Holding{{Path: o.Field, By: o}}}}
}
func (o *unlisting) Forms() []form { return (*Listing)(o).Forms() }

var (
	_ Op     = (*Listing)(nil)
	_ Op     = (*unlisting)(nil)
	_ former = (*Listing)(nil)
	_ former = (*unlisting)(nil)
)
