package sealed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"dbcontroller.dev/record"
)

const (
	// Field is the top-level field for the envelope in a managed kind's documents. Documents that
	// have a field of this name already are refused.
	Field = "_sealed"
	// subtype is the BSON subtype of the envelope's binary value: user-defined.
	subtype = 0x80
	// format is the first byte of an envelope.
	format = 1
)

// ErrReserved reports a document that has a field named Field. It is a record.ErrReserved.
var ErrReserved error = record.ReservedError{Field: Field}

// envelope is the content of Field.
type envelope struct {
	name   string
	format byte
	sealed []byte
	value  bson.RawValue // stored form
}

// envelopeOf returns the envelope of a stored document. is reports whether it has one.
func envelopeOf(doc bson.Raw) (e envelope, is bool) {
	v, err := doc.LookupErr(Field)
	if err != nil {
		return e, false
	}
	e.value = v
	sub, data, ok := v.BinaryOK()
	if !ok || sub != subtype || len(data) < 1+nameSize {
		return e, true // format 0 is invalid
	}
	e.format, e.name, e.sealed = data[0], string(data[1:1+nameSize]), data[1+nameSize:]
	return e, true
}

// Under returns the name of the key that a stored document is under, or Off.
func Under(doc bson.Raw) string {
	if e, is := envelopeOf(doc); is {
		return e.name
	}
	return Off
}

// bound returns the associated data of an envelope. It stops the envelope from opening for another
// version, kind or record.
func bound(version, kind string, key record.Key) []byte {
	out := []byte("dbcontroller record 1")
	for _, part := range []string{version, kind, string(key)} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return out
}

// open returns the document in an envelope, or the stored document if it is plain and may be plain.
// An envelope under an outdated key opens too. Its writer has that key: a process that froze before
// a rotation and wrote after it. Its data must not be lost. A plain record may come from anybody.
func (e envelope) open(k *Keys, st State, version, kind string, r record.Record) (bson.Raw, error) {
	name := e.name
	key := k.named[name]
	switch {
	// The State decides about plain records, because anybody can write one.
	case name == Off && st.allows(Off):
		return r.Doc, nil
	case name == Off:
		return nil, fmt.Errorf("%w: it is not encrypted, although all records must be (%s): if a server of this deployment wrote it, accept it with 'dbcontroller keys admit-plain'", ErrTampered, st.list())
	case e.format == 0:
		return nil, fmt.Errorf("%w: its field %s is not an envelope", ErrTampered, Field)
	case e.format != format:
		return nil, fmt.Errorf("%w: its envelope has format %d, this binary knows %d: use a newer binary", record.ErrUnreadable, e.format, format)
	// Only this record fails: the State does not expect the key, so others do not need it.
	case key == nil && !st.allows(name):
		return nil, fmt.Errorf("%w: %w: it is encrypted with key %s, which no record should use (%s): if it is not forged, add the file of %s to encryption.keys", record.ErrUnreadable, ErrKey, name, st.list(), name)
	case key == nil:
		return nil, fmt.Errorf("%w: it is encrypted with key %s, which is missing from encryption.keys (%s): add the file of %s", ErrKey, name, k, name)
	}
	doc, err := key.aead.Decrypt(e.sealed, bound(version, kind, r.Key))
	if err != nil {
		return nil, fmt.Errorf("%w: it does not decrypt with key %s: the record was changed or moved, or this is another key with that name", ErrTampered, name)
	}
	return doc, nil
}

func (s State) list() string { return fmt.Sprint(s.InUse()) }

// writing holds everything that one call needs for its writes.
type writing struct {
	*Sealer
	state State
	name  string
	key   *sealing // nil: writers do not encrypt
	// compares means that a record may be encrypted, possibly since the State was read. The
	// database can then not check a condition on its content.
	compares bool
}

// seal returns a document in its stored form.
func (w writing) seal(tok record.Token, key record.Key, doc bson.Raw) (bson.Raw, error) {
	if tok.Fixed || doc == nil {
		return doc, nil
	}
	// The database sees only the envelope, so check the document here.
	if err := record.CheckReserved(tok, doc); err != nil {
		return nil, err
	}
	if _, err := doc.LookupErr(Field); err == nil {
		return nil, ErrReserved
	}
	if w.key == nil {
		return doc, nil
	}
	if err := doc.Validate(); err != nil { // encrypted bytes escape the database's own validation
		return nil, record.Refuse(err)
	}
	id, err := doc.LookupErr("_id")
	if err != nil {
		return nil, record.Refuse(fmt.Errorf("document has no _id: %w", err))
	}
	// Opening binds the envelope to the record's key, so another _id would never open again.
	if has, err := record.KeyOf(id); err != nil || has != key {
		return nil, record.Refuse(fmt.Errorf("document has the _id %s, not %s", has, key))
	}
	text, err := w.key.aead.Encrypt(doc, bound(w.version, tok.Kind, key))
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	env := append(append(make([]byte, 0, 1+nameSize+len(text)), format), w.name...)
	// The _id stays in clear and keeps its type, because it is the database's key.
	at, out := bsoncore.AppendDocumentStart(nil)
	out = bsoncore.AppendValueElement(out, "_id", bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
	out = w.appendClear(out, tok.Kind, doc)
	out = bsoncore.AppendBinaryElement(out, Field, subtype, append(env, text...))
	return bsoncore.AppendDocumentEnd(out, at)
}

// appendClear appends the fields that stay readable, in the document's order.
func (w writing) appendClear(out []byte, kind string, doc bson.Raw) []byte {
	fields := w.shows(w.state, kind)
	if len(fields) == 0 {
		return out
	}
	elems, _ := doc.Elements() // the document is valid
	for _, e := range elems {
		if e.Key() != "_id" && slices.Contains(fields, e.Key()) {
			out = append(out, e...)
		}
	}
	return out
}

// current reports whether a stored document is already in the form that w would store.
func (w writing) current(kind string, stored, plain bson.Raw) bool {
	if Under(stored) != w.name {
		return false
	}
	if w.key == nil {
		return true
	}
	has, err := stored.Elements()
	if err != nil {
		return false
	}
	// The clear fields must match too: an index may have been declared since.
	var clear []byte
	for _, e := range has {
		if e.Key() != "_id" && e.Key() != Field {
			clear = append(clear, e...)
		}
	}
	return bytes.Equal(clear, w.appendClear(nil, kind, plain))
}
