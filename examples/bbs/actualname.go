package bbs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion/listing"
	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/record"
)

// ofSlot is a request about one slot. Its definition is optional: the name can have it as well, and
// older clients know guid and index only.
type ofSlot interface {
	proto.Message
	GetName() string
	GetDefinitionId() string
}

// resolve returns the name of the slot that a request is about. A request without a definition is
// about the instance that its cell names, or else about the active definition. If that has no
// instance at the index, resolve chooses the healthy definition, or any other one.
func (in instances[G, C]) resolve(ctx context.Context, req ofSlot) (string, error) {
	guid, k, open, err := converge.ParseName(req.GetName())
	if err != nil {
		return req.GetName(), nil // the table refuses it, or has no such record
	}
	if id := req.GetDefinitionId(); id != "" {
		if err := nameError(id); err != nil {
			return "", listing.Invalid(fieldDefID, "%s", err)
		}
		if !open && id != k.Definition {
			return "", listing.Invalid(fieldDefID, "is %q, and the name is that of an instance of %q", id, k.Definition)
		}
		k.Definition, open = id, false
	}
	if !open {
		return converge.Name(guid, k), nil
	}
	slots, err := in.slotsAt(ctx, guid, k.Index)
	if err != nil {
		return "", err
	}
	if of, ok := req.(onCell); ok {
		for id, s := range slots {
			if s.Has(of.GetInstanceGuid(), of.GetCellId()) {
				return converge.Name(guid, converge.Key{Definition: id, Index: k.Index}), nil
			}
		}
	}
	p, err := in.processes.find(ctx, guid)
	// The instances of a deleted process stay until their cells have stopped them.
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return "", err
	}
	ids := make([]string, 0, len(slots))
	for id := range slots {
		ids = append(ids, id)
	}
	rank := func(id string) int { return slices.Index([]string{p.Active, p.Healthy, id}, id) }
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	// Without any instance the name stays open, and there is no such record.
	if len(ids) > 0 {
		k.Definition = ids[0]
	}
	return converge.Name(guid, k), nil
}

// slotsAt returns the slots of one index of a process, by definition.
func (in instances[G, C]) slotsAt(ctx context.Context, guid string, index int) (map[string]converge.Slot, error) {
	out := map[string]converge.Slot{}
	// The prefix also covers indexes with more digits.
	err := eachRecord(ctx, in.store, KindActualLRPs, converge.IndexName(guid, index), func(rec record.Record) error {
		name, _ := rec.Key.Name()
		if _, k, err := converge.SplitName(name); err != nil || k.Index != index {
			return nil // a foreign record, or another index
		}
		_, k, s, err := in.slot(rec)
		out[k.Definition] = s
		return err
	})
	return out, err
}

// get returns the instance that a request names, with the fields of its read mask.
func (in instances[G, C]) get(ctx context.Context, req ofSlot) (G, error) {
	name, err := in.resolve(ctx, req)
	if err != nil {
		var none G
		return none, err
	}
	exact := proto.Clone(req).ProtoReflect()
	exact.Set(exact.Descriptor().Fields().ByName("name"), protoreflect.ValueOfString(name))
	return in.table.Get(ctx, exact.Interface())
}
