package app

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/transform/lens"
)

// packagesKind is the name of the application's collection, in both versions.
const packagesKind = "packages"

// shapes knows a document of the application in both versions. Writers keep the v1 shape
// and write what the version at hand needs.
type shapes struct{ lens *lens.Lens }

// in returns the document in the shape of a version.
func (s shapes) in(version string, doc bson.Raw) (bson.Raw, error) {
	if version == newVersion {
		return s.lens.Up(doc, nil)
	}
	return doc, nil
}

// state is what a document prints as in both versions.
func (s shapes) state(doc bson.Raw) (state, error) {
	up, err := s.lens.Up(doc, nil)
	if err != nil {
		return state{}, err
	}
	return state{v1: printDoc(doc), v2: printDoc(up)}, nil
}

// printDoc is the canonical form of a document: fields in the order of their names, for
// $set adds new ones at the end wherever the lens would have put them.
func printDoc(doc bson.Raw) string {
	var b bytes.Buffer
	appendDoc(&b, doc)
	return b.String()
}

func appendDoc(b *bytes.Buffer, doc bson.Raw) {
	elements, err := doc.Elements()
	if err != nil {
		fmt.Fprintf(b, "broken: %v", err)
		return
	}
	slices.SortFunc(elements, func(x, y bson.RawElement) int { return strings.Compare(x.Key(), y.Key()) })
	for _, e := range elements {
		v := e.Value()
		fmt.Fprintf(b, "%q:%d:", e.Key(), v.Type)
		if v.Type == bson.TypeEmbeddedDocument {
			b.WriteByte('{')
			appendDoc(b, v.Document())
			b.WriteByte('}')
		} else {
			b.WriteString(string(v.Value))
		}
		b.WriteByte(',')
	}
}

// newPackage is the v1 document of an application's own making.
func newPackage(id any, name string, op int64) (bson.Raw, error) {
	return bson.Marshal(bson.D{
		{Key: "_id", Value: id}, {Key: "name", Value: name}, {Key: "version", Value: fmt.Sprintf("1.0-%d", op)},
		{Key: "architecture", Value: "amd64"}, {Key: "section", Value: "misc"}, {Key: "priority", Value: "optional"},
		{Key: "installed_size", Value: int32(op)}, {Key: "homepage", Value: fmt.Sprintf("https://example.com/%s", name)},
		{Key: "maintainer", Value: bson.D{{Key: "name", Value: "Demo"}, {Key: "email", Value: "demo@example.com"}}},
		{Key: "depends", Value: bson.A{bson.A{bson.D{{Key: "name", Value: "libc6"}, {Key: "op", Value: ">="}, {Key: "version", Value: "2.36"}}}}},
		{Key: opField, Value: op},
	})
}

// opField holds the number of the operation that wrote a document last.
const opField = "demo_operation"

// changes are the fields that an update sets, as the application of v1 names them, with
// the document that results.
func changes(doc bson.Raw, op int64) (set bson.D, next bson.Raw, err error) {
	set = bson.D{{Key: "version", Value: fmt.Sprintf("2.0-%d", op)}, {Key: "installed_size", Value: int32(op)}, {Key: opField, Value: op}}
	var d bson.D
	if err := bson.Unmarshal(doc, &d); err != nil {
		return nil, nil, fmt.Errorf("decode document: %w", err)
	}
	for _, f := range set {
		if i := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == f.Key }); i >= 0 {
			d[i].Value = f.Value
		} else {
			d = append(d, f)
		}
	}
	next, err = bson.Marshal(d)
	return set, next, err
}

// renamed returns the fields of an update in the shape of a version: taken out of the
// whole document in that shape, so that the lens alone knows how.
func (s shapes) renamed(version string, set bson.D, next bson.Raw) (bson.D, error) {
	if version != newVersion {
		return set, nil
	}
	up, err := s.lens.Up(next, nil)
	if err != nil {
		return nil, err
	}
	out := make(bson.D, 0, len(set))
	for _, f := range set {
		v, err := up.LookupErr(f.Key)
		if err != nil {
			return nil, fmt.Errorf("field %s in the shape of %s: %w", f.Key, version, err)
		}
		out = append(out, bson.E{Key: f.Key, Value: v})
	}
	return out, nil
}
