package typed

import (
	"bytes"
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Codec converts between documents and values of type T. BSON returns the Codec of a Go struct.
// Package protodoc has a Codec for protobuf messages.
type Codec[T any] interface {
	// Decode reads the fields that T knows. It must not keep doc.
	Decode(doc bson.Raw) (T, error)
	// Encode writes the fields of v, including _id if T has one.
	Encode(v T) (bson.Raw, error)
	// Shape returns the shape of T. It must be an object.
	Shape() (Shape, error)
}

// Merger is an optional interface of a Codec. Merge writes a value over a document and keeps all
// fields that T does not know, at any depth. Without a Merger only unknown fields at the top of a
// document are kept. Unknown fields inside a changed field are lost.
type Merger[T any] interface {
	Merge(doc bson.Raw, v T) (bson.Raw, error)
}

// BSON returns the Codec of a Go struct whose bson tags have the meaning that the MongoDB driver
// gives them.
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

// Rest is the type of a struct field that collects the fields of a document that the struct does
// not know, byte for byte. The field may have any name and needs the tag bson:"-". To carry the
// fields to the other version, copy the Rest to the other version's struct. Otherwise they do not
// reach it. The zero value holds no fields.
type Rest struct{ elements [][]byte }

// Len returns the number of fields.
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
		// The _id is the key of the record, so it is never part of the rest.
		if _, ok := known.field(e.Key()); !ok && e.Key() != "_id" {
			// Decode must not keep doc.
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
	// The elements of doc, without its length and its final zero byte.
	out = append(out, doc[4:len(doc)-1]...)
	for _, e := range rest.Interface().(Rest).elements {
		// A second field of the same name would make the document ambiguous.
		if _, err := bson.Raw(doc).LookupErr(bsoncore.Element(e).Key()); err == nil {
			return nil, fmt.Errorf("field %s is one of %s and was unknown to the other version", bsoncore.Element(e).Key(), val.Type())
		}
		out = append(out, e...)
	}
	return bsoncore.AppendDocumentEnd(out, at)
}

// restOf returns the struct field of type Rest. The result is invalid if there is none.
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
