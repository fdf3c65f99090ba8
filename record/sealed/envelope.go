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
	// Field is the top-level field of a managed kind's documents that holds the envelope.
	// Documents that have one of their own are refused.
	Field = "_sealed"
	// subtype is of the envelope's binary value: user-defined.
	subtype = 0x80
	// format is the first byte of an envelope.
	format = 1
)

// ErrReserved refuses documents with a field of our name. It is a record.ErrReserved.
var ErrReserved error = record.ReservedError{Field: Field}

// envelope is what Field holds.
type envelope struct {
	name   string
	format byte
	sealed []byte
	value  bson.RawValue // as stored
}

// envelopeOf returns the envelope of a stored document, if it has one.
func envelopeOf(doc bson.Raw) (e envelope, is bool) {
	v, err := doc.LookupErr(Field)
	if err != nil {
		return e, false
	}
	e.value = v
	sub, data, ok := v.BinaryOK()
	if !ok || sub != subtype || len(data) < 1+nameSize {
		return e, true // format 0, which is none
	}
	e.format, e.name, e.sealed = data[0], string(data[1:1+nameSize]), data[1+nameSize:]
	return e, true
}

// Under is the name of the key that a stored document is under, or Off.
func Under(doc bson.Raw) string {
	if e, is := envelopeOf(doc); is {
		return e.name
	}
	return Off
}

// bound is what an envelope is bound to: it opens nowhere else.
func bound(version, kind string, key record.Key) []byte {
	out := []byte("dbcontroller record 1")
	for _, part := range []string{version, kind, string(key)} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return out
}

// open returns the document of an envelope, or what is stored where it is plain, and may be. An
// envelope under a key that no record should be under any more was made by somebody who has that
// key: a process that froze before a rotation, and writes after it. That is no reason to lose what was
// written, while a plain record may be anybody's.
func (e envelope) open(k *Keys, st State, version, kind string, r record.Record) (bson.Raw, error) {
	name := e.name
	key := k.named[name]
	switch {
	case name == Off && st.allows(Off):
		return r.Doc, nil
	case name == Off:
		return nil, fmt.Errorf("%w: it is not encrypted, and all records are (%s): where one of us wrote it all the same, 'dbcontroller keys admit-plain' has it taken for a record", ErrTampered, st.list())
	case e.format == 0:
		return nil, fmt.Errorf("%w: its field %s is no envelope", ErrTampered, Field)
	case e.format != format:
		return nil, fmt.Errorf("%w: its envelope has format %d, this binary knows %d: use a newer binary", record.ErrUnreadable, e.format, format)
	case key == nil && !st.allows(name):
		return nil, fmt.Errorf("%w: %w: it is under key %s, which no record should be under (%s): where it is no forgery, add the file of %s to encryption.keys", record.ErrUnreadable, ErrKey, name, st.list(), name)
	case key == nil:
		return nil, fmt.Errorf("%w: it is under key %s, which is not one of encryption.keys (%s): add the file of %s", ErrKey, name, k, name)
	}
	doc, err := key.aead.Decrypt(e.sealed, bound(version, kind, r.Key))
	if err != nil {
		return nil, fmt.Errorf("%w: it does not decrypt with key %s, so it was changed or moved, or the key is another one of that name", ErrTampered, name)
	}
	return doc, nil
}

func (s State) list() string { return fmt.Sprint(s.InUse()) }

// writing is what one call writes with.
type writing struct {
	*Sealer
	state State
	name  string
	key   *sealing // nil: nothing is encrypted
	// compares: a record may be encrypted, be it since the State was read, so that the database
	// can check no condition on what is in it.
	compares bool
}

// seal returns a document as it is to be stored.
func (w writing) seal(tok record.Token, key record.Key, doc bson.Raw) (bson.Raw, error) {
	if tok.Fixed || doc == nil {
		return doc, nil
	}
	if err := record.CheckReserved(tok, doc); err != nil {
		return nil, err
	}
	if _, err := doc.LookupErr(Field); err == nil {
		return nil, ErrReserved
	}
	if w.key == nil {
		return doc, nil
	}
	if err := doc.Validate(); err != nil { // nobody else looks into it
		return nil, record.Refuse(err)
	}
	id, err := doc.LookupErr("_id")
	if err != nil {
		return nil, record.Refuse(fmt.Errorf("document has no _id: %w", err))
	}
	if has, err := record.KeyOf(id); err != nil || has != key {
		return nil, record.Refuse(fmt.Errorf("document has the _id %s, not %s", has, key))
	}
	text, err := w.key.aead.Encrypt(doc, bound(w.version, tok.Kind, key))
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	env := append(append(make([]byte, 0, 1+nameSize+len(text)), format), w.name...)
	at, out := bsoncore.AppendDocumentStart(nil)
	out = bsoncore.AppendValueElement(out, "_id", bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
	out = w.appendClear(out, tok.Kind, doc)
	out = bsoncore.AppendBinaryElement(out, Field, subtype, append(env, text...))
	return bsoncore.AppendDocumentEnd(out, at)
}

// appendClear appends the fields that stay readable, in their order.
func (w writing) appendClear(out []byte, kind string, doc bson.Raw) []byte {
	fields := w.shows(w.state, kind)
	if len(fields) == 0 {
		return out
	}
	elems, _ := doc.Elements() // it is valid
	for _, e := range elems {
		if e.Key() != "_id" && slices.Contains(fields, e.Key()) {
			out = append(out, e...)
		}
	}
	return out
}

// current reports whether a stored document is as w would store it.
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
	var clear []byte
	for _, e := range has {
		if e.Key() != "_id" && e.Key() != Field {
			clear = append(clear, e...)
		}
	}
	return bytes.Equal(clear, w.appendClear(nil, kind, plain))
}
