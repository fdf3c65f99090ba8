package typed

import (
	"bytes"
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Codec turns documents into values of a type and back. BSON is that of Go structs; one
// for protobuf messages is made where it is known how they lie in documents.
type Codec[T any] interface {
	// Decode reads the fields that T knows. It must not keep doc.
	Decode(doc bson.Raw) (T, error)
	// Encode writes the fields of v, the _id among them if T has one.
	Encode(v T) (bson.Raw, error)
	// Shape is the shape of T, an object.
	Shape() (Shape, error)
}

// Merger is a Codec that writes a value over a document which holds more than T knows, at
// any depth, and keeps that. Without it, fields at the top of a document are kept, and what
// T does not know within one that changed is lost.
type Merger[T any] interface {
	Merge(doc bson.Raw, v T) (bson.Raw, error)
}

// BSON is the Codec of a Go struct with bson tags, as the MongoDB driver understands
// them.
func BSON[T any]() Codec[T] { return structCodec[T]{} }

type structCodec[T any] struct{}

func (structCodec[T]) Decode(doc bson.Raw) (v T, err error) {
	err = decodeStruct(doc, &v)
	return v, err
}

func (structCodec[T]) Encode(v T) (bson.Raw, error) { return encodeStruct(v) }

func (structCodec[T]) Shape() (Shape, error) {
	s, err := shapeOf(reflect.TypeFor[T]())
	if err == nil && s.Fields == nil {
		err = fmt.Errorf("%s is no struct", reflect.TypeFor[T]())
	}
	return s, err
}

// Rest is a field of a struct (of any name, tagged bson:"-") that takes the fields of a
// document which the struct does not know, byte for byte. Set in the other version's
// struct, it takes them along; without it they stay behind.
type Rest struct{ elements [][]byte }

// Len is the number of fields.
func (r Rest) Len() int { return len(r.elements) }

func decodeStruct(doc bson.Raw, into any) error {
	if err := bson.Unmarshal(doc, into); err != nil {
		return err
	}
	v := reflect.ValueOf(into).Elem()
	rest := restOf(v)
	if !rest.IsValid() {
		return nil
	}
	known, err := shapeOf(v.Type())
	if err != nil {
		return err
	}
	elems, err := bsoncore.Document(doc).Elements()
	if err != nil {
		return err
	}
	var r Rest
	for _, e := range elems {
		if _, ok := known.field(e.Key()); !ok && e.Key() != "_id" {
			r.elements = append(r.elements, bytes.Clone(e))
		}
	}
	rest.Set(reflect.ValueOf(r))
	return nil
}

func encodeStruct(v any) (bson.Raw, error) {
	doc, err := marshal(v)
	if err != nil {
		return nil, err
	}
	val := reflect.ValueOf(v)
	for val.Kind() == reflect.Pointer {
		val = val.Elem()
	}
	rest := restOf(val)
	if !rest.IsValid() || rest.Interface().(Rest).Len() == 0 {
		return doc, nil
	}
	at, out := bsoncore.AppendDocumentStart(make([]byte, 0, 2*len(doc)))
	out = append(out, doc[4:len(doc)-1]...)
	for _, e := range rest.Interface().(Rest).elements {
		if _, err := bson.Raw(doc).LookupErr(bsoncore.Element(e).Key()); err == nil {
			return nil, fmt.Errorf("field %s is one of %s and was unknown to the other version", bsoncore.Element(e).Key(), val.Type())
		}
		out = append(out, e...)
	}
	return bsoncore.AppendDocumentEnd(out, at)
}

// restOf is the field of type Rest, if the struct has one.
func restOf(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Type == restType && v.Type().Field(i).IsExported() {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}
