package resource

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// Watched returns a function that reads the messages of a watch of these resources, for copies of
// them in another region (package resource/region). It returns the event and, for vrunner.EventPut,
// the record as this table stores the resource. Tables with Parts, references (Refer), an Owner or
// children have no copies.
func (t *Table[M]) Watched(m protoreflect.MethodDescriptor) (func(proto.Message) (vrunner.Event, record.Record, error), error) {
	switch {
	case t.cfg.Parts != nil:
		return nil, fmt.Errorf("%s has Parts in further records, which are not copied", t.cfg.Kind)
	case len(t.targets) > 0 || len(t.referrers) > 0:
		return nil, fmt.Errorf("%s refers to resources, or is referred to, and a delete cannot follow references into other regions", t.cfg.Kind)
	case t.cfg.Owner.Table != nil || len(t.children) > 0:
		return nil, fmt.Errorf("%s has an Owner or children: a record and its owner could get different regions", t.cfg.Kind)
	}
	layout, err := eventsOf(m.Output(), t.name.Name(), t.message)
	if err != nil {
		return nil, err
	}
	return func(res proto.Message) (vrunner.Event, record.Record, error) {
		ev := layout.read(res.ProtoReflect())
		if ev.Type != vrunner.EventPut {
			return ev, record.Record{}, nil
		}
		// The name comes from another process, and becomes a key.
		if err := t.pattern.check(t.cfg.NameField, ev.Name); err != nil {
			return ev, record.Record{}, err
		}
		found, ok := res.ProtoReflect().Get(layout.message).Message().Interface().(M)
		if !ok || t.nameOf(found) != ev.Name {
			return ev, record.Record{}, errOtherResource
		}
		doc, err := protodoc.MarshalID(ev.Name, found)
		if err == nil {
			doc, err = t.formed(doc, true)
		}
		if err != nil {
			return ev, record.Record{}, fmt.Errorf("%s: %w", ev.Name, apiversion.RequestError(err))
		}
		return ev, record.Record{Kind: t.cfg.Kind, Key: record.StringKey(ev.Name), Doc: doc}, nil
	}, nil
}

// Acceptable returns an error if the table would not create a resource with this record. It runs
// Config.Check, as for a new resource.
func (t *Table[M]) Acceptable(ctx context.Context, rec record.Record) error {
	name, _ := rec.Key.Name()
	if err := t.pattern.check(t.cfg.NameField, name); err != nil {
		return err
	}
	m, err := t.join(name, rec, nil)
	if err != nil {
		return err
	}
	t.setName(m, name)
	var none M
	return t.cfg.Check(ctx, m, none)
}

var errOtherResource = errors.New("the watch sent a resource under another name")
