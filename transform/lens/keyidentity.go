package lens

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/internal/edit"
	"dbcontroller.dev/transform/lens/internal/scalar"
)

// keyOf maps the key of a record. doc supplies the values that do not follow from the key.
func (k keyWay) keyOf(key record.Key, doc bson.Raw) (record.Key, error) {
	_, to, err := k.identity(key.Value(), scalar.ReadKey, doc)
	return to, err
}

// identity maps a source record's _id to the target record's _id and key.
func (k keyWay) identity(id bson.RawValue, as scalar.Reading, doc bson.Raw) (bson.RawValue, record.Key, error) {
	var values [maxVariables]string
	if err := k.readID(id, as, values[:]); err != nil {
		return bson.RawValue{}, "", err
	}
	if k.needsContent() {
		if err := k.readFields(doc, values[:]); err != nil {
			return bson.RawValue{}, "", err
		}
	}
	typ, val := k.appendTarget(nil, values[:])
	to := bson.RawValue{Type: typ, Value: val}
	key, err := record.KeyOf(to)
	return to, key, err
}

// readFields sets the variables of the target's form that are fields of the record.
func (k keyWay) readFields(doc bson.Raw, values []string) error {
	p, at := k.target()
	for i := range p.variables {
		v := &k.variables[at[i]]
		if v.field == nil {
			continue
		}
		raw, ok := edit.LookupRaw(doc, v.field)
		if !ok {
			return fmt.Errorf("the record has no %s %s, which its name in the other version holds", k.fieldType(v), v.field)
		}
		text, err := k.fieldType(v).Read(raw, scalar.ReadExact)
		if err != nil {
			return fmt.Errorf("%s %w", v.field, err)
		}
		if err := v.take(text); err != nil {
			return err
		}
		values[at[i]] = text
	}
	return nil
}
