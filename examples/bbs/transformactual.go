package bbs

import (
	"errors"
	"fmt"

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

// promoteInstances adds definition ids to v1's instances. v1 leaves out the one that is the guid of
// the process.
func promoteInstances(src, have transform.Group) ([]record.Record, error) {
	return turnInstances(src, have, func(f fields, guid string) (id string, stored bool, err error) {
		id, err = namedDefinition(f, guid)
		return id, true, err
	})
}

// projectInstances removes the definition ids that v1 leaves out.
func projectInstances(src, have transform.Group) ([]record.Record, error) {
	return turnInstances(src, have, func(f fields, guid string) (id string, stored bool, err error) {
		id, ok := f.get(fieldDefID).StringValueOK()
		if !ok {
			return "", false, fmt.Errorf("no %s", fieldDefID)
		}
		return id, id != guid, nil
	})
}

// turnInstances converts a group's instances to the other version. Keys are equal in both. idOf
// returns the definition of an instance, and whether the other version stores its id. Existing data
// of that version only decides the order of fields.
func turnInstances(src, have transform.Group, idOf func(f fields, guid string) (id string, stored bool, err error)) ([]record.Record, error) {
	held := map[record.Key]bson.Raw{}
	for _, r := range instancesIn(have) {
		held[r.Key] = r.Doc
	}
	var out []record.Record
	for _, r := range instancesIn(src) {
		name, _ := r.Key.Name()
		guid, key, err := converge.SplitName(name)
		if err != nil {
			return nil, err
		}
		f, err := readFields(r.Doc, guid, actualTypes)
		if err != nil {
			return nil, fmt.Errorf("instance %s: %w", r.Key, err)
		}
		id, stored, err := idOf(f, guid)
		if err != nil {
			return nil, fmt.Errorf("instance %s: %w", r.Key, err)
		}
		// The key has the definition, too. Another one would be lost on the way back.
		if id != key.Definition {
			return nil, fmt.Errorf("instance %s: %s is %q", r.Key, fieldDefID, id)
		}
		doc := f.build(func(field []byte) bool { return string(field) != fieldDefID }, func(dst []byte) []byte {
			if stored {
				dst = bsoncore.AppendStringElement(dst, fieldDefID, id)
			}
			return dst
		})
		// An unchanged record must keep its bytes, because verification compares bytes.
		if before, ok := held[r.Key]; ok {
			if doc, err = inOrderOf(before, doc); err != nil {
				return nil, err
			}
		}
		out = append(out, record.Record{Kind: KindActualLRPs, Key: r.Key, Doc: doc})
	}
	return out, nil
}
