// Package names puts the names of collections of one place into commands of an application, and the
// application's names into the replies.
package names

import (
	"cmp"
	"errors"
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
	return m.command(make([]byte, 0, len(body)+64), body)
}

// command appends a command. An explain has another one in it, which can be an explain as well.
func (m Map) command(out []byte, body bsoncore.Document) ([]byte, error) {
	verb := ""
	return m.each(out, body, func(out []byte, e bsoncore.Element) ([]byte, error) {
		key, v := e.Key(), e.Value()
		first := verb == ""
		if first {
			verb = key
		}
		text, isText := v.StringValueOK()
		switch {
		case first && named[verb] && isText, verb == "getMore" && key == "collection" && isText:
			name, ok := m.To[text]
			if !ok && !strings.HasPrefix(text, "$cmd.") {
				return nil, &StrayError{m.Database, text, verb}
			}
			if ok {
				text = name
			}
			return bsoncore.AppendStringElement(out, key, text), nil
		case key == "$db":
			return bsoncore.AppendStringElement(out, key, m.Place), nil
		case key == "pipeline" && v.Type == bsoncore.TypeArray:
			return m.pipeline(bsoncore.AppendHeader(out, v.Type, key), v.Array())
		case first && verb == "explain" && v.Type == bsoncore.TypeEmbeddedDocument:
			return m.command(bsoncore.AppendHeader(out, v.Type, key), v.Document())
		case key == "nsInfo" && verb == "bulkWrite" && v.Type == bsoncore.TypeArray:
			return m.infos(bsoncore.AppendHeader(out, v.Type, key), v.Array())
		}
		return append(out, e...), nil
	})
}

// Infos returns the nsInfo of a bulkWrite with the names of the place.
func (m Map) Infos(list bsoncore.Array) (bsoncore.Array, error) { return m.infos(nil, list) }

func (m Map) infos(out []byte, list bsoncore.Array) ([]byte, error) {
	return m.each(out, bsoncore.Document(list), func(out []byte, e bsoncore.Element) ([]byte, error) {
		doc, ok := e.Value().DocumentOK()
		if !ok {
			return nil, fmt.Errorf("nsInfo has an entry that is no document")
		}
		return m.info(bsoncore.AppendHeader(out, bsoncore.TypeEmbeddedDocument, e.Key()), doc)
	})
}

// Info returns one entry of nsInfo with the names of the place.
func (m Map) Info(doc bsoncore.Document) (bsoncore.Document, error) { return m.info(nil, doc) }

func (m Map) info(out []byte, doc bsoncore.Document) ([]byte, error) {
	return m.each(out, doc, func(out []byte, e bsoncore.Element) ([]byte, error) {
		ns, ok := e.Value().StringValueOK()
		if e.Key() != "ns" || !ok {
			return append(out, e...), nil
		}
		database, collection, _ := strings.Cut(ns, ".")
		database, collection, err := m.to(database, collection, "nsInfo")
		return bsoncore.AppendStringElement(out, "ns", database+"."+collection), err
	})
}

// each appends a document, or a list, that is built from the elements of another one. All levels of a document share
// one buffer: with one for each level, a document that is large and deep would take its size times its levels.
//
// If the names are only looked for, it builds nothing: element gets nil, and its result is dropped.
func (m Map) each(out []byte, doc bsoncore.Document, element func(out []byte, e bsoncore.Element) ([]byte, error)) ([]byte, error) {
	if m.seen != nil {
		return nil, walk(doc, func(e bsoncore.Element) error {
			_, err := element(nil, e)
			return err
		})
	}
	return appendEach(out, doc, element)
}

// keep appends an element as it is.
func (m Map) keep(out []byte, e bsoncore.Element) ([]byte, error) {
	if m.seen != nil {
		return nil, nil
	}
	return append(out, e...), nil
}

// each builds a document from the elements of another one.
func each(doc bsoncore.Document, element func(out []byte, e bsoncore.Element) ([]byte, error)) (bsoncore.Document, error) {
	return appendEach(make([]byte, 0, len(doc)+32), doc, element)
}

// appendEach is each for a document that is appended to out.
func appendEach(out []byte, doc bsoncore.Document, element func(out []byte, e bsoncore.Element) ([]byte, error)) ([]byte, error) {
	start, out := bsoncore.AppendDocumentStart(out)
	err := walk(doc, func(e bsoncore.Element) (err error) {
		out, err = element(out, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return bsoncore.AppendDocumentEnd(out, start)
}

var errMalformed = errors.New("a document is not valid BSON")

// walk calls do for each element of a document or a list, without a list of them: there can be very many.
func walk(doc []byte, do func(e bsoncore.Element) error) error {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) != len(doc) {
		return errMalformed
	}
	for len(rest) > 1 {
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return errMalformed
		}
		if err := do(e); err != nil {
			return err
		}
		rest = after
	}
	if len(rest) != 1 || rest[0] != 0 {
		return errMalformed
	}
	return nil
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
