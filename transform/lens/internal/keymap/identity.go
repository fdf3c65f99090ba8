package keymap

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// KeyOf maps the key of a source record to the key of the target record. doc is the source record;
// KeyOf takes from it the values that do not follow from the key.
func (k Way) KeyOf(key record.Key, doc bson.Raw) (record.Key, error) {
	_, to, err := k.Identity(key.Value(), scalar.ReadKey, doc)
	return to, err
}

// Identity maps a source record's _id to the target record's _id and key. doc is as in KeyOf.
func (k Way) Identity(id bson.RawValue, as scalar.Reading, doc bson.Raw) (bson.RawValue, record.Key, error) {
	var values [MaxVariables]string
	if err := k.ReadID(id, as, values[:]); err != nil {
		return bson.RawValue{}, "", err
	}
	if k.needsContent() {
		if err := k.readFields(doc, values[:]); err != nil {
			return bson.RawValue{}, "", err
		}
	}
	typ, val := k.AppendTarget(nil, values[:])
	to := bson.RawValue{Type: typ, Value: val}
	key, err := record.KeyOf(to)
	return to, key, err
}

// readFields sets the variables of the target's form that are fields of the record.
func (k Way) readFields(doc bson.Raw, values []string) error {
	p, at := k.Target()
	for i := range p.Variables {
		v := &k.Variables[at[i]]
		if v.Field == nil {
			continue
		}
		raw, ok := edit.LookupRaw(doc, v.Field)
		if !ok {
			return fmt.Errorf("the record has no %s %s, which is part of its name in the other version", k.FieldType(v), v.Field)
		}
		text, err := k.FieldType(v).Read(raw, scalar.ReadExact)
		if err != nil {
			return fmt.Errorf("%s %w", v.Field, err)
		}
		if err := v.Take(text); err != nil {
			return err
		}
		values[at[i]] = text
	}
	return nil
}
