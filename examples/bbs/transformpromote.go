package bbs

import (
	"bytes"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// promote returns the v2 group for a v1 group.
func promote(src, have transform.Group) ([]record.Record, error) {
	out, err := promoteProcess(src, have)
	if err != nil {
		return nil, err
	}
	instances, err := promoteInstances(src, have)
	return append(out, instances...), err
}

// promoteProcess returns the records of a process.
func promoteProcess(src, have transform.Group) (out []record.Record, err error) {
	head := headOf(src, KindDesiredLRPs)
	if head == nil {
		return nil, nil // the process is gone, and only instances are left
	}
	guid, err := guidOf(head.Key)
	if err != nil {
		return nil, err
	}
	f, err := readFields(head.Doc, guid, desiredLRPTypes, onlyV2...)
	if err != nil {
		return nil, fmt.Errorf("desired LRP: %w", err)
	}
	// A v1 process without a definition has nothing for v2 to run.
	definition := f.get(fieldDefinition)
	if definition.Type == 0 {
		return nil, fmt.Errorf("desired LRP: no %s", fieldDefinition)
	}
	id, err := namedDefinition(f, guid)
	if err != nil {
		return nil, fmt.Errorf("desired LRP: %w", err)
	}
	held, err := processOf(have)
	if err != nil {
		return nil, fmt.Errorf("held by v2: %w", err)
	}
	var c choice
	// v2's choices survive only for the same creation of the process. A recreated one starts afresh.
	if held.deployment != nil && sameIncarnation(head.Doc, held.deployment) {
		if c, err = choiceOf(held, id, src); err != nil {
			return nil, fmt.Errorf("held by v2: %w", err)
		}
	} else {
		// The old creation's definitions must not show up in the new one.
		held = process{guid: guid}
		c = firstChoice()
	}
	if proves(head.Doc, id, src, have) {
		c.healthy, c.hasHealthy = id, true
	}
	doc := f.build(func(name []byte) bool { return string(name) != fieldDefinition && string(name) != fieldDefID }, func(dst []byte) []byte {
		dst = bsoncore.AppendStringElement(dst, fieldActive, id)
		if c.hasHealthy {
			dst = bsoncore.AppendStringElement(dst, fieldHealthy, c.healthy)
		}
		if c.former.Type != 0 {
			dst = bsoncore.AppendValueElement(dst, fieldFormer, c.former)
		}
		return dst
	})
	// An unchanged record must keep its bytes, because verification compares bytes.
	if held.deployment != nil {
		if doc, err = inOrderOf(held.deployment, doc); err != nil {
			return nil, err
		}
	}
	out = make([]record.Record, 0, 2+len(held.definitions))
	out = append(out, record.Record{Kind: KindDeployments, Key: record.StringKey(guid), Doc: doc})
	activeKey := record.StringKey(definitionKey(guid, id))
	// Other definitions stay. The active one stays too, unless v1 has changed it.
	for _, r := range held.definitions {
		if r.Key == activeKey && !holds(r.Doc, definition) || c.drops(r.Key) {
			continue
		}
		out = append(out, record.Record{Kind: KindDefinitions, Key: r.Key, Doc: r.Doc})
		if r.Key == activeKey {
			activeKey = ""
		}
	}
	if activeKey != "" {
		out = append(out, record.Record{Kind: KindDefinitions, Key: activeKey, Doc: definitionRecord(guid, id, definition)})
	}
	return out, nil
}

// namedDefinition returns the id of a v1 definition. v1 leaves it out if it is the guid.
func namedDefinition(f fields, guid string) (string, error) {
	v := f.get(fieldDefID)
	if v.Type == 0 {
		return guid, nil
	}
	id, _ := v.StringValueOK() // readFields checks the type
	if err := nameError(id); err != nil {
		return "", fmt.Errorf("%s %w", fieldDefID, err)
	}
	// The way back could not tell it from a record without the field.
	if id == guid {
		return "", fmt.Errorf("%s is the %s, and must be left out then", fieldDefID, fieldGUID)
	}
	return id, nil
}

// holds reports whether a definition's record contains this definition.
func holds(doc bson.Raw, definition bsoncore.Value) bool {
	v := doc.Lookup(fieldDefinition)
	// Equal bytes mean that v1 did not change it, so v2's record keeps its other fields.
	return v.Type == bson.Type(definition.Type) && bytes.Equal(v.Value, definition.Data)
}

// definitionRecord returns the v2 record of a definition.
func definitionRecord(guid, id string, definition bsoncore.Value) bson.Raw {
	at, dst := bsoncore.AppendDocumentStart(make([]byte, 0, 128+3*len(guid)+2*len(id)+len(definition.Data)))
	dst = bsoncore.AppendStringElement(dst, fieldID, definitionKey(guid, id))
	dst = bsoncore.AppendStringElement(dst, fieldGUID, guid)
	dst = bsoncore.AppendStringElement(dst, fieldDefID, id)
	dst = bsoncore.AppendValueElement(dst, fieldDefinition, definition)
	dst, err := bsoncore.AppendDocumentEnd(dst, at)
	if err != nil {
		panic(err) // dst starts with our own AppendDocumentStart
	}
	return dst
}

// sameIncarnation reports whether two documents belong to the same creation of a process.
func sameIncarnation(a, b bson.Raw) bool {
	// Lookup with both names would panic at a damaged tag.
	tagA, _ := a.Lookup(fieldTag).DocumentOK()
	tagB, _ := b.Lookup(fieldTag).DocumentOK()
	// Two records without a tag count as one creation.
	return tagA.Lookup("epoch").Equal(tagB.Lookup("epoch"))
}
