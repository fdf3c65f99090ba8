package typed

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ordered is the registry of the driver, except that it encodes Go maps in the order of their keys.
// The driver's order is random, but a transformer must return equal bytes for equal records.
var ordered = func() *bson.Registry {
	r := bson.NewRegistry()
	r.RegisterKindEncoder(reflect.Map, bson.ValueEncoderFunc(encodeMap))
	return r
}()

// encodeMap writes a map as a document in the order of its keys. A nil map becomes null.
func encodeMap(ec bson.EncodeContext, vw bson.ValueWriter, m reflect.Value) error {
	if m.IsNil() {
		return vw.WriteNull()
	}
	d := make(bson.D, 0, m.Len())
	for entries := m.MapRange(); entries.Next(); {
		var key string
		switch k := entries.Key(); k.Kind() {
		case reflect.String:
			key = k.String()
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
			reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			key = fmt.Sprint(k.Interface())
		default:
			return fmt.Errorf("map with keys of type %s: only strings and integers name fields", k.Type())
		}
		d = append(d, bson.E{Key: key, Value: entries.Value().Interface()})
	}
	slices.SortFunc(d, func(a, b bson.E) int { return cmp.Compare(a.Key, b.Key) })
	// The encoder of bson.D uses the same registry for the values, so nested maps are ordered too.
	enc, err := ec.LookupEncoder(reflect.TypeFor[bson.D]())
	if err != nil {
		return err
	}
	return enc.EncodeValue(ec, vw, reflect.ValueOf(d))
}

func marshal(v any) (bson.Raw, error) {
	var b bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&b))
	enc.SetRegistry(ordered)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
