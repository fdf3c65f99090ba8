package names

import "go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

// pipeline appends the stages of an aggregation with the names of the place.
func (m Map) pipeline(out []byte, stages bsoncore.Array) ([]byte, error) {
	return m.each(out, bsoncore.Document(stages), func(out []byte, e bsoncore.Element) ([]byte, error) {
		doc, ok := e.Value().DocumentOK()
		if !ok { // the server refuses it
			return m.keep(out, e)
		}
		return m.each(bsoncore.AppendHeader(out, bsoncore.TypeEmbeddedDocument, e.Key()), doc, m.stage)
	})
}

// fields are the elements of a stage that name a collection, or hold a pipeline.
var fields = map[string]string{"$lookup": "from", "$graphLookup": "from", "$unionWith": "coll", "$merge": "into"}

func (m Map) stage(out []byte, e bsoncore.Element) ([]byte, error) {
	stage, v := e.Key(), e.Value()
	field, names := fields[stage]
	_, isText := v.StringValueOK()
	isDoc := v.Type == bsoncore.TypeEmbeddedDocument
	switch {
	case isText && (stage == "$out" || stage == "$merge" || stage == "$unionWith"), isDoc && stage == "$out":
		return m.target(out, e, stage)
	case names && isDoc:
		return m.each(bsoncore.AppendHeader(out, v.Type, stage), v.Document(), func(out []byte, e bsoncore.Element) ([]byte, error) {
			switch {
			case e.Key() == field:
				return m.target(out, e, stage)
			case e.Key() == "pipeline" && e.Value().Type == bsoncore.TypeArray:
				return m.pipeline(bsoncore.AppendHeader(out, bsoncore.TypeArray, "pipeline"), e.Value().Array())
			}
			return m.keep(out, e)
		})
	case stage == "$facet" && isDoc:
		return m.each(bsoncore.AppendHeader(out, v.Type, stage), v.Document(), func(out []byte, e bsoncore.Element) ([]byte, error) {
			if e.Value().Type != bsoncore.TypeArray {
				return m.keep(out, e)
			}
			return m.pipeline(bsoncore.AppendHeader(out, bsoncore.TypeArray, e.Key()), e.Value().Array())
		})
	}
	return m.keep(out, e)
}

// target appends the collection that a stage names, as a text or as a document with db and coll, with
// the names of the place. Other values stay: the server refuses them, or they name nothing.
func (m Map) target(out []byte, e bsoncore.Element, stage string) ([]byte, error) {
	key, v := e.Key(), e.Value()
	if text, ok := v.StringValueOK(); ok {
		_, name, err := m.to(m.Database, text, stage)
		return bsoncore.AppendStringElement(out, key, name), err
	}
	doc, ok := v.DocumentOK()
	if !ok {
		return m.keep(out, e)
	}
	database := m.Database
	if text, ok := lookupText(doc, "db"); ok {
		database = text
	}
	collection, ok := lookupText(doc, "coll")
	if !ok {
		return m.keep(out, e)
	}
	database, name, err := m.to(database, collection, stage)
	if err != nil {
		return nil, err
	}
	return m.each(bsoncore.AppendHeader(out, v.Type, key), doc, func(out []byte, e bsoncore.Element) ([]byte, error) {
		switch e.Key() {
		case "db":
			return bsoncore.AppendStringElement(out, "db", database), nil
		case "coll":
			return bsoncore.AppendStringElement(out, "coll", name), nil
		}
		return m.keep(out, e)
	})
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
	_, _ = (Map{Database: database, seen: func(s Stage) { out = append(out, s) }}).pipeline(nil, v.Array())
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
	var last bsoncore.Element
	if err := walk(stages, func(e bsoncore.Element) error { last = e; return nil }); err != nil || last == nil {
		return false
	}
	doc, ok := last.Value().DocumentOK()
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
