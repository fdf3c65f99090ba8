package resource

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// MaxNames is the maximum number of names in the request of a BatchGet.
const MaxNames = 1000

// BatchGet returns the resources that a request names, in the order of its field names (AIP-231),
// with the fields of its read mask. If it has a parent, all names must be in it. If one resource does
// not exist, BatchGet returns none, and the error is record.ErrNotFound.
//
// All resources are from one moment, if the store is a vrunner.SelectStore. Otherwise each is as Get
// would return it.
func (t *Table[M]) BatchGet(ctx context.Context, req proto.Message) ([]M, error) {
	r := t.request(req)
	names, err := t.batch(r)
	if err != nil {
		return nil, err
	}
	mask := r.mask(r.roles.ReadMask)
	s, err := t.selection("", "", listing.Filter{}, mask)
	if err != nil {
		return nil, err
	}
	ctx, read := memory.Read(ctx)
	defer read.Drop()
	found, err := t.find(ctx, s, names)
	if err != nil {
		return nil, err
	}
	out := make([]M, len(names))
	for i, name := range names {
		if out[i], err = found(name); err != nil {
			return nil, about(name, err)
		}
		if err := listing.ApplyMask(out[i], mask); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// batch returns the names of the resources in a request, checked against the pattern.
func (t *Table[M]) batch(r request) ([]string, error) {
	field := r.roles.Names
	if field == "" {
		return nil, r.lacks("the names of a " + string(t.message.Name()))
	}
	list := r.msg.Get(r.msg.Descriptor().Fields().ByName(protoreflect.Name(field))).List()
	switch {
	case list.Len() == 0:
		return nil, listing.Invalid(field, "is missing")
	case list.Len() > MaxNames:
		return nil, listing.Invalid(field, "has %d names, at most %d are allowed", list.Len(), MaxNames)
	}
	parent := r.text(r.roles.Parent)
	in, err := t.pattern.scope(r.roles.Parent, parent)
	if err != nil {
		return nil, err
	}
	names, seen := make([]string, list.Len()), map[string]bool{}
	for i := range names {
		name := list.Get(i).String()
		if err := t.pattern.check(field, name); err != nil {
			return nil, err
		}
		switch {
		case !in.holds(name):
			return nil, listing.Invalid(field, "%q is not in %s", name, parent)
		// One resource many times would make a response of any size.
		case seen[name]:
			return nil, listing.Invalid(field, "%q is named twice", name)
		}
		names[i], seen[name] = name, true
	}
	return names, nil
}

// find reads resources, all at one moment if the store can, and returns access to them by name.
func (t *Table[M]) find(ctx context.Context, s selection, names []string) (func(name string) (M, error), error) {
	alone := func(name string) (M, error) {
		rec, err := t.store.Get(ctx, t.cfg.Kind, name)
		if err != nil {
			return t.fresh(), err
		}
		m, ok, err := t.show(ctx, s, name, rec)
		if err == nil && !ok {
			err = record.ErrNotFound
		}
		return m, err
	}
	store, ok := t.store.(vrunner.SelectStore)
	if !ok {
		return alone, nil
	}
	parts := s.parts && t.cfg.Parts != nil
	var sels []record.Selector
	for _, name := range names {
		sels = append(sels, record.Selector{Kind: t.cfg.Kind, Key: record.StringKey(name)})
		if parts {
			sels = append(sels, record.Selector{Kind: t.cfg.Parts.Kind, Key: record.StringKey(name + "/"), Prefix: true})
		}
	}
	recs, err := store.Select(ctx, sels, false)
	// An adapted store may not know which group has the parts of a resource.
	if unsupported := new(record.UnsupportedError); parts && errors.As(err, &unsupported) {
		return alone, nil
	}
	if err != nil {
		return nil, err
	}
	heads, rest := map[string]record.Record{}, map[string][]record.Record{}
	for _, rec := range recs {
		name, err := nameOf(rec)
		if err != nil {
			return nil, err
		}
		if rec.Kind == t.cfg.Kind {
			heads[name] = rec
			continue
		}
		// The key of a part is the resource's name, a slash and an id.
		name = name[:max(strings.LastIndex(name, "/"), 0)]
		rest[name] = append(rest[name], rec)
	}
	return func(name string) (M, error) {
		head, there := heads[name]
		switch {
		case !there:
			return t.fresh(), record.ErrNotFound
		case parts:
			return t.join(name, head, rest[name])
		}
		return t.Decode(head)
	}, nil
}
