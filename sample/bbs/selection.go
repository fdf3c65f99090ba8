package bbs

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/transform"
)

// selection is which processes a request asks for, and how much of them. What the head
// says is looked at first, and the parts are read only where they are needed.
type selection struct {
	head  listing.Filter // on the head alone
	rest  listing.Filter
	parts bool // the filter, the order or the mask reaches into the parts
}

// selection reads a request's filter, order and mask. Errors name the field of the request.
func (t table[M]) selection(domain, filter, orderBy string, mask *fieldmaskpb.FieldMask) (selection, error) {
	d := t.fresh().ProtoReflect().Descriptor()
	f, err := listing.ParseFilter(filter, d)
	if err != nil {
		return selection{}, err
	}
	order, err := listing.ParseOrder(orderBy, d)
	if err != nil {
		return selection{}, err
	}
	if err := listing.CheckMask(mask, d); err != nil {
		return selection{}, err
	}
	if domain != "" {
		in, err := listing.Where(transform.Condition{Path: "domain", Op: transform.OpEqual, Values: []any{domain}}).Check(d)
		if err != nil {
			return selection{}, err
		}
		f = listing.All(f, in)
	}
	if t.parts == nil {
		return selection{head: f}, nil
	}
	s := selection{parts: len(mask.GetPaths()) == 0 || slices.ContainsFunc(mask.GetPaths(), t.ofParts)}
	for _, o := range order {
		s.parts = s.parts || t.ofParts(o.Path)
	}
	conjuncts := f.And
	if len(conjuncts) == 0 {
		conjuncts = []listing.Filter{f}
	}
	for _, c := range conjuncts {
		if t.reaches(c) {
			s.rest, s.parts = listing.All(s.rest, c), true
		} else {
			s.head = listing.All(s.head, c)
		}
	}
	return s, nil
}

// ofParts reports a path into what the parts hold.
func (t table[M]) ofParts(path string) bool {
	return path == "*" || path == t.parts.field || strings.HasPrefix(path, t.parts.field+".")
}

// reaches reports a filter that asks for what the parts hold.
func (t table[M]) reaches(f listing.Filter) bool {
	if f.Condition != nil {
		return t.ofParts(f.Condition.Path)
	}
	if f.Not != nil && t.reaches(*f.Not) {
		return true
	}
	return slices.ContainsFunc(f.And, t.reaches) || slices.ContainsFunc(f.Or, t.reaches)
}
