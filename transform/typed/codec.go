package typed

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/internal/base/rawdoc"
)

// Codec converts between documents and values of one type that is no struct with bson tags.
// protodoc.Kinds returns the Codec of a protobuf message.
type Codec interface {
	// Decode reads the fields that the type knows. It must not keep doc, and must return a value of
	// the type of the group's field.
	Decode(doc bson.Raw) (any, error)
	// Encode writes the fields of v, including _id if the type has one.
	Encode(v any) (bson.Raw, error)
	// Fields returns the names of the fields that the type knows at the top of a document.
	Fields() ([]string, error)
}

// Merger is an optional interface of a Codec. Merge returns doc with the value v written into it,
// and keeps all fields that the type does not know, at any depth. A Codec without Merge keeps
// unknown fields only at the top of a document, and loses those inside a changed field.
type Merger interface {
	Merge(doc bson.Raw, v any) (bson.Raw, error)
}

// Rest is the type of a struct field that collects the fields of a document that the struct does
// not know, byte for byte. The field may have any name and needs the tag bson:"-". To carry the
// fields to the other version, copy the Rest to the other version's struct. Otherwise they do not
// reach it. The zero value holds no fields.
type Rest struct{ elements [][]byte }

// Len returns the number of fields.
func (r Rest) Len() int { return len(r.elements) }

func decodeStruct(doc bson.Raw, into any) error {
	if err := rawdoc.Unmarshal(doc, into); err != nil {
		return err
	}
	v := reflect.ValueOf(into).Elem()
	rest := restOf(v)
	if !rest.IsValid() {
		return nil
	}
	known, err := fieldsOf(v.Type())
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
		if !slices.Contains(known, e.Key()) && e.Key() != "_id" {
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
