package bbs

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// Fields of an instance's record that the transformers handle.
const (
	fieldInstance   = "instance"
	fieldEvacuating = "evacuating"
	fieldPlacement  = "placement"
)

// kindActualLRPs puts instances into the group of their process: v2's data of the process decide
// which definition a v1 instance runs.
func kindActualLRPs() transform.GroupedKind {
	return transform.GroupedKind{
		KindSpec: record.KindSpec{Name: KindActualLRPs},
		GroupOf: func(k record.Key) (string, error) {
			guid, err := guidOfInstance(k)
			return string(record.StringKey(guid)), err
		},
		Select: func(group string) record.Selector {
			guid, _ := record.Key(group).Name()
			return record.Selector{Kind: KindActualLRPs, Key: record.StringKey(converge.NamesOf(guid)), Prefix: true}
		},
	}
}

func guidOfInstance(k record.Key) (string, error) {
	name, ok := k.Name()
	if !ok {
		return "", errors.New("the key of an instance is a string")
	}
	guid, _, err := converge.SplitName(name)
	return guid, err
}

// cellSpec copies cells unchanged.
func cellSpec() transform.Spec {
	side := transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: KindCells}}}}
	same := func(src, _ transform.Group) ([]record.Record, error) {
		out := make([]record.Record, len(src.Records))
		for i, r := range src.Records {
			out[i] = record.Record{Kind: r.Kind, Key: r.Key, Doc: r.Doc}
		}
		return out, nil
	}
	return transform.Spec{Name: "cell", Revision: "1", Old: side, New: side, Up: same, Down: same}
}

// instancesIn returns the instance records of a group.
func instancesIn(g transform.Group) []record.Record {
	var out []record.Record
	for _, r := range g.Records {
		if r.Kind == KindActualLRPs {
			out = append(out, r)
		}
	}
	return out
}

// slotFields are the record fields that hold an instance.
var slotFields = []string{fieldInstance, fieldEvacuating}

// promoteInstances adds definition ids to v1's instances. An instance that v2 holds keeps its id.
// Any other was started by v1 and gets the active definition.
func promoteInstances(src, have transform.Group, active string) ([]record.Record, error) {
	known := map[string]string{} // definition ids of v2's instances, by placement
	for _, r := range instancesIn(have) {
		for _, slot := range slotFields {
			if in, ok := r.Doc.Lookup(slot).DocumentOK(); ok {
				placement, placed := in.Lookup(fieldPlacement).StringValueOK()
				id, defined := in.Lookup(fieldDefID).StringValueOK()
				if placed && defined {
					known[placement] = id
				}
			}
		}
	}
	return turnInstances(src, have, func(in fields) (bson.Raw, error) {
		// v1 never writes this field. Its value would be overwritten, so the record is refused.
		if in.get(fieldDefID).Type != 0 {
			return nil, fmt.Errorf("field %s belongs to the other version", fieldDefID)
		}
		placement, _ := in.get(fieldPlacement).StringValueOK()
		id, knows := known[placement]
		// v1 starts the active definition only.
		if !knows {
			id = active
		}
		return in.build(func([]byte) bool { return true }, func(dst []byte) []byte { return bsoncore.AppendStringElement(dst, fieldDefID, id) }), nil
	})
}

// projectInstances removes the definition ids from v2's instances.
func projectInstances(src, have transform.Group) ([]record.Record, error) {
	return turnInstances(src, have, func(in fields) (bson.Raw, error) {
		// Without it, a way back could not restore the definition.
		if in.get(fieldDefID).Type == 0 {
			return nil, fmt.Errorf("no %s", fieldDefID)
		}
		return in.build(func(name []byte) bool { return string(name) != fieldDefID }, func(dst []byte) []byte { return dst }), nil
	})
}

// turnInstances converts a group's instances to the other version. Existing data of that version
// only decides the order of fields.
func turnInstances(src, have transform.Group, turn func(in fields) (bson.Raw, error)) ([]record.Record, error) {
	held := map[record.Key]bson.Raw{}
	for _, r := range instancesIn(have) {
		held[r.Key] = r.Doc
	}
	var out []record.Record
	for _, r := range instancesIn(src) {
		guid, err := guidOfInstance(r.Key)
		if err != nil {
			return nil, err
		}
		f, err := readFields(r.Doc, guid, actualTypes)
		if err != nil {
			return nil, fmt.Errorf("instance %s: %w", r.Key, err)
		}
		at, dst := bsoncore.AppendDocumentStart(make([]byte, 0, len(r.Doc)+128))
		for _, e := range f {
			// All other fields are equal in both versions and keep their bytes.
			if !slices.Contains(slotFields, string(e.KeyBytes())) {
				dst = append(dst, e...)
				continue
			}
			var was fields
			if err := each(e.Value().Data, func(e bsoncore.Element) error { was = append(was, e); return nil }); err != nil {
				return nil, err
			}
			in, err := turn(was)
			if err != nil {
				return nil, fmt.Errorf("instance %s: %s: %w", r.Key, e.KeyBytes(), err)
			}
			// Both the instance and the record keep their field order, so that unchanged ones keep
			// their bytes.
			if before, ok := held[r.Key].Lookup(string(e.KeyBytes())).DocumentOK(); ok {
				if in, err = inOrderOf(before, in); err != nil {
					return nil, err
				}
			}
			dst = bsoncore.AppendDocumentElement(dst, string(e.KeyBytes()), bsoncore.Document(in))
		}
		doc, err := bsoncore.AppendDocumentEnd(dst, at)
		if err != nil {
			return nil, err
		}
		if before, ok := held[r.Key]; ok {
			if doc, err = inOrderOf(before, doc); err != nil {
				return nil, err
			}
		}
		out = append(out, record.Record{Kind: KindActualLRPs, Key: r.Key, Doc: doc})
	}
	return out, nil
}
