// Package names puts the names of collections of one place into commands of an application, and the
// application's names into the replies.
package names

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Map holds the names of one application's collections. The application always uses the same names, and
// the data has other ones in each version.
type Map struct {
	Database string            // of the application
	Place    string            // database that holds the data now
	To       map[string]string // name of a collection in Place, by the application's name

	seen func(Stage) // not nil: called instead of giving names
}

// StrayError means that a command names a collection that is not where its other ones are.
type StrayError struct{ Database, Collection, Stage string }

func (e *StrayError) Error() string {
	return fmt.Sprintf("%s names %s.%s, which is not where the data of this command is: all must belong to one deployment, or none, and the served version must have the kind",
		e.Stage, e.Database, e.Collection)
}

// to returns the name in the place of a collection that a stage of a pipeline names.
func (m Map) to(database, collection, stage string) (string, string, error) {
	if m.seen != nil {
		m.seen(Stage{stage, database, collection})
		return database, collection, nil
	}
	name, ok := m.To[collection]
	if database != m.Database || !ok {
		return "", "", &StrayError{database, collection, stage}
	}
	return m.Place, name, nil
}

// Same reports whether the place has the names that the application uses.
func (m Map) Same() bool {
	if m.Database != m.Place {
		return false
	}
	for face, name := range m.To {
		if face != name {
			return false
		}
	}
	return true
}

// from returns the application's namespace for one of the place. Other namespaces stay.
func (m Map) from(ns string) string {
	collection, ok := strings.CutPrefix(ns, m.Place+".")
	if !ok {
		return ns
	}
	for face, name := range m.To {
		if name == collection {
			return m.Database + "." + face
		}
	}
	// Not of a collection that moves: $cmd.aggregate, $cmd.listCollections.
	if strings.HasPrefix(collection, "$cmd.") {
		return m.Database + "." + collection
	}
	return ns
}

// named are the commands whose first element is the name of their collection.
var named = map[string]bool{
	"find": true, "insert": true, "update": true, "delete": true, "findAndModify": true, "findandmodify": true,
	"aggregate": true, "count": true, "distinct": true, "create": true, "createIndexes": true, "listIndexes": true, "drop": true,
	"dropIndexes": true, "deleteIndexes": true, "collMod": true, "collStats": true, "validate": true, "killCursors": true,
}

// Named reports whether the first element of a command names its collection.
func Named(verb string) bool { return named[verb] }

// Command returns a command with the names of the place.
func (m Map) Command(body bsoncore.Document) (bsoncore.Document, error) {
	elems, err := body.Elements()
	if err != nil {
		return nil, err
	}
	if len(elems) == 0 {
		return body, nil
	}
	verb := elems[0].Key()
	start, out := bsoncore.AppendDocumentStart(make([]byte, 0, len(body)+64))
	for i, e := range elems {
		key, v := e.Key(), e.Value()
		text, isText := v.StringValueOK()
		switch {
		case i == 0 && named[verb] && isText, verb == "getMore" && key == "collection" && isText:
			name, ok := m.To[text]
			if !ok && !strings.HasPrefix(text, "$cmd.") {
				return nil, &StrayError{m.Database, text, verb}
			}
			if ok {
				text = name
			}
			out = bsoncore.AppendStringElement(out, key, text)
		case key == "$db":
			out = bsoncore.AppendStringElement(out, key, m.Place)
		case key == "pipeline" && v.Type == bsoncore.TypeArray:
			array, err := m.pipeline(v.Array())
			if err != nil {
				return nil, err
			}
			out = bsoncore.AppendArrayElement(out, key, array)
		case i == 0 && verb == "explain" && v.Type == bsoncore.TypeEmbeddedDocument:
			inner, err := m.Command(v.Document())
			if err != nil {
				return nil, err
			}
			out = bsoncore.AppendDocumentElement(out, key, inner)
		case key == "nsInfo" && verb == "bulkWrite" && v.Type == bsoncore.TypeArray:
			array, err := m.Infos(v.Array())
			if err != nil {
				return nil, err
			}
			out = bsoncore.AppendArrayElement(out, key, array)
		default:
			out = append(out, e...)
		}
	}
	return bsoncore.AppendDocumentEnd(out, start)
}

// Infos returns the nsInfo of a bulkWrite with the names of the place.
func (m Map) Infos(list bsoncore.Array) (bsoncore.Array, error) {
	values, err := list.Values()
	if err != nil {
		return nil, err
	}
	start, out := bsoncore.AppendArrayStart(nil)
	for i, v := range values {
		doc, ok := v.DocumentOK()
		if !ok {
			return nil, fmt.Errorf("nsInfo has an entry that is no document")
		}
		info, err := m.Info(doc)
		if err != nil {
			return nil, err
		}
		out = bsoncore.AppendDocumentElement(out, fmt.Sprint(i), info)
	}
	return bsoncore.AppendArrayEnd(out, start)
}

// Info returns one entry of nsInfo with the names of the place.
func (m Map) Info(doc bsoncore.Document) (bsoncore.Document, error) {
	return each(doc, func(out []byte, e bsoncore.Element) ([]byte, error) {
		ns, ok := e.Value().StringValueOK()
		if e.Key() != "ns" || !ok {
			return append(out, e...), nil
		}
		database, collection, _ := strings.Cut(ns, ".")
		database, collection, err := m.to(database, collection, "nsInfo")
		return bsoncore.AppendStringElement(out, "ns", database+"."+collection), err
	})
}

// each builds a document from the elements of another one.
func each(doc bsoncore.Document, element func(out []byte, e bsoncore.Element) ([]byte, error)) (bsoncore.Document, error) {
	return appendEach(make([]byte, 0, len(doc)+32), doc, element)
}

// appendEach is each for a document that is appended to out.
func appendEach(out []byte, doc bsoncore.Document, element func(out []byte, e bsoncore.Element) ([]byte, error)) ([]byte, error) {
	elems, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	start, out := bsoncore.AppendDocumentStart(out)
	for _, e := range elems {
		if out, err = element(out, e); err != nil {
			return nil, err
		}
	}
	return bsoncore.AppendDocumentEnd(out, start)
}

// pipeline returns the stages of an aggregation with the names of the place.
func (m Map) pipeline(stages bsoncore.Array) (bsoncore.Array, error) {
	values, err := stages.Values()
	if err != nil {
		return nil, err
	}
	start, out := bsoncore.AppendArrayStart(make([]byte, 0, len(stages)+64))
	for i, v := range values {
		doc, ok := v.DocumentOK()
		if !ok { // the server refuses it
			out = bsoncore.AppendValueElement(out, fmt.Sprint(i), v)
			continue
		}
		stage, err := each(doc, m.stage)
		if err != nil {
			return nil, err
		}
		out = bsoncore.AppendDocumentElement(out, fmt.Sprint(i), stage)
	}
	return bsoncore.AppendArrayEnd(out, start)
}

// fields are the elements of a stage that name a collection, or hold a pipeline.
var fields = map[string]string{"$lookup": "from", "$graphLookup": "from", "$unionWith": "coll", "$merge": "into"}

func (m Map) stage(out []byte, e bsoncore.Element) ([]byte, error) {
	stage, v := e.Key(), e.Value()
	field, names := fields[stage]
	_, isText := v.StringValueOK()
	switch {
	case isText && (stage == "$out" || stage == "$merge" || stage == "$unionWith"):
		value, err := m.target(v, stage)
		if err != nil {
			return nil, err
		}
		return bsoncore.AppendValueElement(out, stage, value), nil
	case stage == "$out" && v.Type == bsoncore.TypeEmbeddedDocument:
		value, err := m.target(v, stage)
		if err != nil {
			return nil, err
		}
		return bsoncore.AppendValueElement(out, stage, value), nil
	case names && v.Type == bsoncore.TypeEmbeddedDocument:
		doc, err := each(v.Document(), func(out []byte, e bsoncore.Element) ([]byte, error) {
			switch {
			case e.Key() == field:
				value, err := m.target(e.Value(), stage)
				if err != nil {
					return nil, err
				}
				return bsoncore.AppendValueElement(out, field, value), nil
			case e.Key() == "pipeline" && e.Value().Type == bsoncore.TypeArray:
				array, err := m.pipeline(e.Value().Array())
				return bsoncore.AppendArrayElement(out, "pipeline", array), err
			}
			return append(out, e...), nil
		})
		return bsoncore.AppendDocumentElement(out, stage, doc), err
	case stage == "$facet" && v.Type == bsoncore.TypeEmbeddedDocument:
		doc, err := each(v.Document(), func(out []byte, e bsoncore.Element) ([]byte, error) {
			if e.Value().Type != bsoncore.TypeArray {
				return append(out, e...), nil
			}
			array, err := m.pipeline(e.Value().Array())
			return bsoncore.AppendArrayElement(out, e.Key(), array), err
		})
		return bsoncore.AppendDocumentElement(out, stage, doc), err
	}
	return append(out, e...), nil
}

// target returns the collection that a stage names, as a text or as a document with db and coll, with
// the names of the place. Other values stay: the server refuses them, or they name nothing.
func (m Map) target(v bsoncore.Value, stage string) (bsoncore.Value, error) {
	if text, ok := v.StringValueOK(); ok {
		_, name, err := m.to(m.Database, text, stage)
		return bsoncore.Value{Type: bsoncore.TypeString, Data: bsoncore.AppendString(nil, name)}, err
	}
	doc, ok := v.DocumentOK()
	if !ok {
		return v, nil
	}
	database := m.Database
	if text, ok := lookupText(doc, "db"); ok {
		database = text
	}
	collection, ok := lookupText(doc, "coll")
	if !ok {
		return v, nil
	}
	database, name, err := m.to(database, collection, stage)
	if err != nil {
		return v, err
	}
	doc, err = each(doc, func(out []byte, e bsoncore.Element) ([]byte, error) {
		switch e.Key() {
		case "db":
			return bsoncore.AppendStringElement(out, "db", database), nil
		case "coll":
			return bsoncore.AppendStringElement(out, "coll", name), nil
		}
		return append(out, e...), nil
	})
	return bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: doc}, err
}

func lookupText(doc bsoncore.Document, key string) (string, bool) {
	v, err := doc.LookupErr(key)
	if err != nil {
		return "", false
	}
	return v.StringValueOK()
}

// Stage is a stage of a pipeline that names a collection.
type Stage struct{ Name, Database, Collection string }

// Stages returns the stages of a command's pipeline that name collections, also in pipelines within
// them. database is that of the command.
func Stages(database string, body bsoncore.Document) (out []Stage) {
	v, err := body.LookupErr("pipeline")
	if err != nil || v.Type != bsoncore.TypeArray {
		return nil
	}
	_, _ = (Map{Database: database, seen: func(s Stage) { out = append(out, s) }}).pipeline(v.Array())
	return out
}

// Writes reports whether a pipeline ends with a stage that writes.
func Writes(body bsoncore.Document) bool {
	v, err := body.LookupErr("pipeline")
	if err != nil {
		return false
	}
	stages, ok := v.ArrayOK()
	if !ok {
		return false
	}
	values, err := stages.Values()
	if err != nil || len(values) == 0 {
		return false
	}
	doc, ok := values[len(values)-1].DocumentOK()
	if !ok {
		return false
	}
	first, err := doc.IndexErr(0)
	return err == nil && (first.Key() == "$out" || first.Key() == "$merge")
}

// Watches reports whether a pipeline is a change stream, whose documents name collections.
func Watches(body bsoncore.Document) bool {
	v, err := body.LookupErr("pipeline")
	if err != nil {
		return false
	}
	stages, ok := v.ArrayOK()
	if !ok {
		return false
	}
	one, err := stages.IndexErr(0)
	if err != nil {
		return false
	}
	doc, ok := one.DocumentOK()
	if !ok {
		return false
	}
	first, err := doc.IndexErr(0)
	return err == nil && first.Key() == "$changeStream"
}

// Reply returns a reply with the application's names. watches says that the documents of its batch are
// events of a change stream.
func (m Map) Reply(body bsoncore.Document, watches bool) (bsoncore.Document, error) {
	if m.Same() {
		return body, nil
	}
	return each(body, func(out []byte, e bsoncore.Element) ([]byte, error) {
		key, v := e.Key(), e.Value()
		text, isText := v.StringValueOK()
		switch {
		case key == "cursor" && v.Type == bsoncore.TypeEmbeddedDocument:
			// In the memory of the reply, because a batch can have 16 MB.
			return m.cursor(bsoncore.AppendHeader(out, bsoncore.TypeEmbeddedDocument, key), v.Document(), watches)
		case key == "ns" && isText:
			return bsoncore.AppendStringElement(out, key, m.from(text)), nil
		case key == "errmsg" && isText:
			return bsoncore.AppendStringElement(out, key, m.text(text)), nil
		case key == "writeErrors" && v.Type == bsoncore.TypeArray:
			list, err := each(bsoncore.Document(v.Array()), m.failure)
			return bsoncore.AppendArrayElement(out, key, bsoncore.Array(list)), err
		case key == "writeConcernError":
			return m.failure(out, e)
		}
		return append(out, e...), nil
	})
}

// failure appends an error of a reply with the application's names in its message. What the message is
// about, such as a duplicate key, is data.
func (m Map) failure(out []byte, e bsoncore.Element) ([]byte, error) {
	doc, ok := e.Value().DocumentOK()
	if !ok {
		return append(out, e...), nil
	}
	doc, err := each(doc, func(out []byte, e bsoncore.Element) ([]byte, error) {
		if text, ok := e.Value().StringValueOK(); ok && e.Key() == "errmsg" {
			return bsoncore.AppendStringElement(out, "errmsg", m.text(text)), nil
		}
		return append(out, e...), nil
	})
	return bsoncore.AppendDocumentElement(out, e.Key(), doc), err
}

// text replaces the namespaces of the place in the message of an error.
func (m Map) text(message string) string {
	// The longest first, and each place once: one name can begin with another, and two can be exchanged.
	faces := slices.SortedFunc(maps.Keys(m.To), func(a, b string) int {
		return cmp.Or(len(m.To[b])-len(m.To[a]), strings.Compare(a, b))
	})
	var pairs []string
	for _, face := range faces {
		pairs = append(pairs, m.Place+"."+m.To[face], m.Database+"."+face)
	}
	return strings.NewReplacer(pairs...).Replace(message)
}

func (m Map) cursor(out []byte, doc bsoncore.Document, watches bool) ([]byte, error) {
	return appendEach(out, doc, func(out []byte, e bsoncore.Element) ([]byte, error) {
		key, v := e.Key(), e.Value()
		switch {
		case key == "ns":
			if text, ok := v.StringValueOK(); ok {
				return bsoncore.AppendStringElement(out, key, m.from(text)), nil
			}
		case watches && (key == "firstBatch" || key == "nextBatch") && v.Type == bsoncore.TypeArray:
			batch, err := m.events(v.Array())
			return bsoncore.AppendArrayElement(out, key, batch), err
		}
		return append(out, e...), nil
	})
}

// events replaces the names in events of a change stream.
func (m Map) events(batch bsoncore.Array) (bsoncore.Array, error) {
	out, err := each(bsoncore.Document(batch), func(out []byte, e bsoncore.Element) ([]byte, error) {
		doc, ok := e.Value().DocumentOK()
		if !ok {
			return append(out, e...), nil
		}
		event, err := each(doc, func(out []byte, e bsoncore.Element) ([]byte, error) {
			inner, ok := e.Value().DocumentOK()
			if !ok || e.Key() != "ns" && e.Key() != "to" {
				return append(out, e...), nil
			}
			database, _ := lookupText(inner, "db")
			collection, has := lookupText(inner, "coll")
			if database != m.Place {
				return append(out, e...), nil
			}
			start, ns := bsoncore.AppendDocumentStart(nil)
			ns = bsoncore.AppendStringElement(ns, "db", m.Database)
			if has {
				_, face, _ := strings.Cut(m.from(database+"."+collection), ".")
				ns = bsoncore.AppendStringElement(ns, "coll", face)
			}
			ns, err := bsoncore.AppendDocumentEnd(ns, start)
			return bsoncore.AppendDocumentElement(out, e.Key(), ns), err
		})
		return bsoncore.AppendDocumentElement(out, e.Key(), event), err
	})
	return bsoncore.Array(out), err
}
