package typed

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// object is a document that is being changed: only what is asked for is taken apart, and
// all else keeps its bytes.
type object struct{ elems []*element }

type element struct {
	name []byte // of the document, or of a rule: never written to
	val  bson.RawValue
	sub  *object // val taken apart; stands for it
}

func open(doc bson.Raw) (*object, error) {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) || length < 5 || doc[length-1] != 0 {
		return nil, errors.New("the document is broken")
	}
	all := make([]element, 0, 4+len(doc)/32)
	for len(rest) > 1 {
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

// find returns the element of a name, nil if there is none. A name that is there twice
// has no one meaning.
func (o *object) find(name string) (found *element, err error) {
	for _, e := range o.elems {
		if string(e.name) != name {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("field %s is there twice", name)
		}
		found = e
	}
	return found, nil
}

// inside takes an element apart; nil if it is no object.
func (e *element) inside() (*object, error) {
	if e.sub == nil && e.val.Type == bson.TypeEmbeddedDocument {
		var err error
		if e.sub, err = open(bson.Raw(e.val.Value)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return e.sub, nil
}

// lookup finds the element at a path and the object that it is in; nil if it, or an
// object on the way to it, is not there.
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

// place finds the object that a field at p is in, making those that are missing. It is
// nil where something else stands in the way.
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

// insert puts an element behind another one, or at the end.
func (o *object) insert(e, behind *element) {
	at := len(o.elems)
	if i := slices.Index(o.elems, behind); i >= 0 {
		at = i + 1
	}
	o.elems = slices.Insert(o.elems, at, e)
}

// prune removes the objects on the way to p that have become empty and that the type of
// the result does not have.
func (o *object) prune(p path, result Shape) error {
	for p = p[:len(p)-1]; len(p) > 0; p = p[:len(p)-1] {
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

// orderAs gives fields the order that have has them in, where it has the same ones: what
// did not change comes out as the same bytes, whatever was moved on the way.
func (o *object) orderAs(have *object) error {
	place := make(map[string]int, len(have.elems))
	for i, h := range have.elems {
		place[string(h.name)] = i
	}
	same := len(o.elems) == len(have.elems) && len(place) == len(have.elems)
	for _, e := range o.elems {
		i, there := place[string(e.name)]
		same = same && there
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
	dst, _ = bsoncore.AppendDocumentEnd(dst, at) // the start is where we put it
	return dst
}
