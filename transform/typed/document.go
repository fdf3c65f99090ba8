package typed

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// object is a document under change. It decodes nested objects only on demand; all other values
// keep their bytes.
type object struct{ elems []*element }

type element struct {
	name []byte // points into the document or a rule; never written to
	val  bson.RawValue
	sub  *object // decoded val; replaces it if set
}

// open splits a document into its elements, which share its bytes.
func open(doc bson.Raw) (*object, error) {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 || doc[length-1] != 0 {
		return nil, errors.New("the document is broken")
	}
	// One allocation for all elements. 32 bytes is a guess at the size of an average element.
	all := make([]element, 0, 4+len(doc)/32)
	for len(rest) > 1 { // the last byte is the terminator
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return nil, errors.New("the document is broken")
		}
		name := e.KeyBytes()
		all = append(all, element{name: name, val: bson.RawValue{Type: bson.Type(e[0]), Value: e[len(name)+2:]}})
		rest = after
	}
	o := &object{elems: make([]*element, len(all), len(all)+4)}
	for i := range all {
		o.elems[i] = &all[i]
	}
	return o, nil
}

// find returns the element with a name, or nil. A duplicate name is an error, because it is unclear
// which value counts.
func (o *object) find(name string) (found *element, err error) {
	for _, e := range o.elems {
		if string(e.name) != name {
			continue
		}
		// Do not stop at the first hit, or a duplicate would go unnoticed.
		if found != nil {
			return nil, fmt.Errorf("field %s is there twice", name)
		}
		found = e
	}
	return found, nil
}

// inside decodes a nested object. It returns nil if the value is not an object.
func (e *element) inside() (*object, error) {
	if e.sub == nil && e.val.Type == bson.TypeEmbeddedDocument {
		var err error
		if e.sub, err = open(bson.Raw(e.val.Value)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return e.sub, nil
}

// lookup returns the element at a path and the object that contains it. Both are nil if the element
// or one of its parent objects is absent.
func (o *object) lookup(p path) (*object, *element, error) {
	for i, name := range p {
		e, err := o.find(name)
		if err != nil || e == nil {
			return nil, nil, err
		}
		if i == len(p)-1 {
			return o, e, nil
		}
		if o, err = e.inside(); err != nil || o == nil {
			return nil, nil, err
		}
	}
	return nil, nil, nil
}

// place returns the object that contains the field at p, and creates missing parents. A parent that
// is not an object is an error.
func (o *object) place(p path) (*object, error) {
	for _, name := range p[:len(p)-1] {
		e, err := o.find(name)
		if err != nil {
			return nil, err
		}
		if e == nil {
			e = &element{name: []byte(name), val: bson.RawValue{Type: bson.TypeEmbeddedDocument}, sub: &object{}}
			o.elems = append(o.elems, e)
		}
		if o, err = e.inside(); err != nil {
			return nil, err
		}
		if o == nil {
			return nil, fmt.Errorf("%s is in the way of %s: it is no object", name, p)
		}
	}
	return o, nil
}

func (o *object) remove(e *element) {
	o.elems = slices.DeleteFunc(o.elems, func(x *element) bool { return x == e })
}

// insert puts an element after behind, or at the end if behind is nil or absent.
func (o *object) insert(e, behind *element) {
	at := len(o.elems)
	if i := slices.Index(o.elems, behind); i >= 0 {
		at = i + 1
	}
	o.elems = slices.Insert(o.elems, at, e)
}

// prune removes empty parent objects of p, from the inside out. It keeps an object that the result
// type has.
func (o *object) prune(p path, result Shape) error {
	for p = p[:len(p)-1]; len(p) > 0; p = p[:len(p)-1] {
		// The type then has all parents of the object too.
		if _, has := result.at(p); has {
			return nil
		}
		in, e, err := o.lookup(p)
		if err != nil || e == nil {
			return err
		}
		if sub, err := e.inside(); err != nil || sub == nil || len(sub.elems) > 0 {
			return err
		}
		in.remove(e)
	}
	return nil
}

// orderAs puts the fields into the order of have, if both have the same fields. A record that comes
// back unchanged then has the same bytes, even if rules moved fields on the way.
func (o *object) orderAs(have *object) error {
	place := make(map[string]int, len(have.elems))
	for i, h := range have.elems {
		place[string(h.name)] = i
	}
	// Duplicate names give no order, and then the fields stay where they are.
	same := len(o.elems) == len(have.elems) && len(place) == len(have.elems)
	for _, e := range o.elems {
		i, there := place[string(e.name)]
		same = same && there
		// A value that was not decoded already has its original order.
		if e.sub == nil || !there {
			continue
		}
		if sub, err := have.elems[i].inside(); err != nil {
			return err
		} else if sub != nil {
			if err := e.sub.orderAs(sub); err != nil {
				return err
			}
		}
	}
	if same {
		slices.SortStableFunc(o.elems, func(a, b *element) int { return place[string(a.name)] - place[string(b.name)] })
	}
	return nil
}

func (o *object) encode(dst []byte) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	for _, e := range o.elems {
		dst = append(append(append(dst, byte(e.val.Type)), e.name...), 0)
		if e.sub != nil {
			dst = e.sub.encode(dst)
		} else {
			dst = append(dst, e.val.Value...)
		}
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at) // cannot fail: at is our own start
	return dst
}
