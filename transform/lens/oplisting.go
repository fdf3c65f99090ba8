package lens

import (
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// listing splits a string at a separator into a list of strings. unlisting, its inverse, joins the
// list. The empty string is the empty list. Absent and null fields stay.
//
// Without tidy every string gives a different list, and no string is refused. A list is refused if
// an item is not a string or contains the separator, or if its only item is empty. With tidy, items
// have no blanks around them and are not empty, and each side keeps its form while the items are
// equal.
type listing struct {
	field     edit.Path
	separator string
	tidy      bool
	verb      string // the operation's name in the lens
}

type unlisting listing

func (o *listing) String() string {
	if o.tidy {
		return fmt.Sprintf("%s %s (tidy)", o.verb, o.field)
	}
	return fmt.Sprintf("%s %s", o.verb, o.field)
}
func (o *listing) inverse() op                           { return (*unlisting)(o) }
func (o *listing) takes() []edit.Path                    { return nil }
func (o *listing) makes() []edit.Path                    { return nil }
func (o *listing) changes() []edit.Path                  { return []edit.Path{o.field} }
func (o *listing) trace(p edit.Path) (edit.Path, fate)   { return traceListing(p, o.field) }
func (o *unlisting) String() string                      { return (*listing)(o).String() }
func (o *unlisting) inverse() op                         { return (*listing)(o) }
func (o *unlisting) takes() []edit.Path                  { return nil }
func (o *unlisting) makes() []edit.Path                  { return nil }
func (o *unlisting) changes() []edit.Path                { return []edit.Path{o.field} }
func (o *unlisting) trace(p edit.Path) (edit.Path, fate) { return traceListing(p, o.field) }

// traceListing traces a path. An item of the list has no place in the string.
func traceListing(p, field edit.Path) (edit.Path, fate) {
	if p.Under(field) && !p.Equal(field) {
		return nil, spread
	}
	return traceConvert(p, field)
}

// listed returns the field of a listing or unlisting.
func listed(o op) (edit.Path, bool) {
	switch o := o.(type) {
	case *listing:
		return o.field, true
	case *unlisting:
		return o.field, true
	default:
		return nil, false
	}
}

func (o *listing) apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	if el.Type != bson.TypeString {
		return edit.Refuse(o.field, "is of type %s, not string", edit.TypeName(el.Type))
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
func (o *listing) items(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if s == "" {
			return
		}
		for item := range strings.SplitSeq(s, o.separator) {
			if o.tidy {
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

func (o *unlisting) apply(e *edit.Editor, root *edit.Node) error {
	n, i, err := e.Lookup(root, o.field)
	if err != nil || i < 0 || n.Elems[i].Type == bson.TypeNull {
		return err
	}
	el := &n.Elems[i]
	if el.Type != bson.TypeArray {
		return edit.Refuse(o.field, "is of type %s, not a list", edit.TypeName(el.Type))
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
			return edit.Refuse(o.field, "has item %d of type %s, not string", k, edit.TypeName(item.Type))
		}
		s := scalar.StringOf(item.Val)
		switch {
		// The numbers would not come back from the string.
		case string(item.Name) != strconv.Itoa(k):
			return edit.Refuse(o.field, "is a list whose items are not numbered from 0")
		case strings.Contains(s, o.separator):
			return edit.Refuse(o.field, "has item %d with the separator %q in it", k, o.separator)
		case o.tidy:
			if s = strings.TrimSpace(s); s == "" {
				continue
			}
		case s == "" && len(list.Elems) == 1:
			return edit.Refuse(o.field, "is a list of one empty string, which would come back as a list without items")
		}
		// Not the item's index: with tidy, empty items are skipped.
		if put > 0 {
			e.Scratch = append(e.Scratch, o.separator...)
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

func (o *listing) forms() []form {
	if !o.tidy {
		return nil
	}
	return []form{{fields: []holding{{path: o.field, by: o}}}}
}
func (o *unlisting) forms() []form { return (*listing)(o).forms() }

var (
	_ op     = (*listing)(nil)
	_ op     = (*unlisting)(nil)
	_ former = (*listing)(nil)
	_ former = (*unlisting)(nil)
)
