package lens

import (
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// listing splits a string at a separator into a list of strings. unlisting, its inverse, joins the
// list. The empty string is the empty list. Absent and null fields stay.
//
// Without tidy every string gives a different list, and no string is refused. A list is refused if
// an item is not a string or contains the separator, or if its only item is empty. With tidy, items
// have no blanks around them and are not empty, and each side keeps its form while the items are
// equal.
type listing struct {
	field     path
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
func (o *listing) inverse() op                 { return (*unlisting)(o) }
func (o *listing) takes() []path               { return nil }
func (o *listing) makes() []path               { return nil }
func (o *listing) changes() []path             { return []path{o.field} }
func (o *listing) trace(p path) (path, fate)   { return traceListing(p, o.field) }
func (o *unlisting) String() string            { return (*listing)(o).String() }
func (o *unlisting) inverse() op               { return (*listing)(o) }
func (o *unlisting) takes() []path             { return nil }
func (o *unlisting) makes() []path             { return nil }
func (o *unlisting) changes() []path           { return []path{o.field} }
func (o *unlisting) trace(p path) (path, fate) { return traceListing(p, o.field) }

// traceListing traces a path. An item of the list has no place in the string.
func traceListing(p, field path) (path, fate) {
	if p.under(field) && !p.equal(field) {
		return nil, spread
	}
	return traceConvert(p, field)
}

// listed returns the field of a listing or unlisting.
func listed(o op) (path, bool) {
	switch o := o.(type) {
	case *listing:
		return o.field, true
	case *unlisting:
		return o.field, true
	default:
		return nil, false
	}
}

func (o *listing) apply(e *editor, root *node) error {
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 || n.elems[i].typ == bson.TypeNull {
		return err
	}
	el := &n.elems[i]
	if el.typ != bson.TypeString {
		return refuse(o.field, "is of type %s, not string", TypeName(el.typ))
	}
	at := len(e.scratch)
	e.scratch = append(e.scratch, 0, 0, 0, 0)
	k := 0
	for item := range o.items(stringOf(el.val)) {
		// An element of a BSON array: type, index as text, zero byte, value.
		e.scratch = append(e.scratch, byte(bson.TypeString))
		e.scratch = strconv.AppendInt(e.scratch, int64(k), 10)
		e.scratch = appendString(append(e.scratch, 0), item)
		k++
	}
	e.scratch = append(e.scratch, 0)
	val := e.scratch[at:len(e.scratch):len(e.scratch)]
	putLength(val, len(val))
	n.set(i, bson.TypeArray, val)
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

func (o *unlisting) apply(e *editor, root *node) error {
	n, i, err := e.lookup(root, o.field)
	if err != nil || i < 0 || n.elems[i].typ == bson.TypeNull {
		return err
	}
	el := &n.elems[i]
	if el.typ != bson.TypeArray {
		return refuse(o.field, "is of type %s, not a list", TypeName(el.typ))
	}
	// Check every item while joining: an item that would split differently must fail the record.
	list, err := e.openAt(el)
	if err != nil {
		return err
	}
	at := len(e.scratch)
	e.scratch = append(e.scratch, 0, 0, 0, 0)
	put := 0
	for k := range list.elems {
		item := &list.elems[k]
		if item.typ != bson.TypeString {
			return refuse(o.field, "has item %d of type %s, not string", k, TypeName(item.typ))
		}
		s := stringOf(item.val)
		switch {
		// The numbers would not come back from the string.
		case string(item.name) != strconv.Itoa(k):
			return refuse(o.field, "is a list whose items are not numbered from 0")
		case strings.Contains(s, o.separator):
			return refuse(o.field, "has item %d with the separator %q in it", k, o.separator)
		case o.tidy:
			if s = strings.TrimSpace(s); s == "" {
				continue
			}
		case s == "" && len(list.elems) == 1:
			return refuse(o.field, "is a list of one empty string, which would come back as a list without items")
		}
		// Not the item's index: with tidy, empty items are skipped.
		if put > 0 {
			e.scratch = append(e.scratch, o.separator...)
		}
		e.scratch = append(e.scratch, s...)
		put++
	}
	e.scratch = append(e.scratch, 0)
	val := e.scratch[at:len(e.scratch):len(e.scratch)]
	putLength(val, len(val)-4)
	n.set(i, bson.TypeString, val)
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
