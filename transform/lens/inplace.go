package lens

import (
	"bytes"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// InPlace returns the lens as an update of the records of one kind in place. change converts an old
// document and leaves a converted one alone. So it may run on a record any number of times.
// revision is a digest of the update's effect.
//
// A document counts as converted if Down and then Up give the same document. change then only adds
// missing fields with defaults. If a lens maps old and new values to the same form, an old document
// looks converted. A table with one value on both sides does that.
//
// InPlace returns an error for a lens that makes or follows other records or other keys.
func (l *Lens) InPlace(kind string) (change func(doc bson.Raw) (bson.Raw, error), revision string, err error) {
	refuse := func(format string, args ...any) (func(bson.Raw) (bson.Raw, error), string, error) {
		return nil, "", fmt.Errorf("%s: %s: a data update changes records of %s where they are", l.file, fmt.Sprintf(format, args...), kind)
	}
	for _, named := range []string{l.kinds.from, l.kinds.to} {
		if named != "" && named != kind {
			return refuse("kinds names %s", named)
		}
	}
	switch {
	case l.keys != nil:
		return refuse("key changes names")
	case len(l.fans) > 0 && l.fans[0].Gather:
		return refuse("gather takes records of %s in", l.fans[0].Kind)
	case len(l.fans) > 0:
		return refuse("fanOut makes records of %s", l.fans[0].Kind)
	case len(l.references) > 0:
		return refuse("reference follows keys that change")
	}
	return l.bringUp, "lens " + l.digest, nil
}

// bringUp returns the new form of a document that may be in either form.
func (l *Lens) bringUp(doc bson.Raw) (bson.Raw, error) {
	down, err := l.Down(doc, nil)
	if err != nil {
		return l.Up(doc, nil)
	}
	// The document itself supplies the fields that only the new side has; a record that is new gets
	// defaults. Forms are not kept, because changing them is the purpose of the update.
	up := l.up
	up.Forms = nil
	if held, err := up.Run(down, doc); err != nil || !bytes.Equal(held, doc) {
		return l.Up(doc, nil)
	}
	// A conversion without a complement shows the defaults that the document may lack.
	fresh, err := l.Up(down, nil)
	if err != nil {
		return nil, err
	}
	return fillIn(doc, fresh)
}

// fillIn adds the fields of more that doc and its objects lack. Lists of equal length are filled
// item by item.
func fillIn(doc, more bson.Raw) (bson.Raw, error) {
	return fillElements(doc, more, true)
}

func fillElements(doc, more bson.Raw, add bool) (bson.Raw, error) {
	have, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	extra, err := more.Elements()
	if err != nil {
		return nil, err
	}
	// Items of lists with different lengths cannot be matched.
	if !add && len(have) != len(extra) {
		return doc, nil
	}
	// rest holds the fields of more that doc lacks so far.
	rest := make(map[string]bson.RawValue, len(extra))
	for _, e := range extra {
		rest[e.Key()] = e.Value()
	}
	start, out := bsoncore.AppendDocumentStart(make([]byte, 0, len(more)))
	for _, e := range have {
		v := e.Value()
		other, both := rest[e.Key()]
		delete(rest, e.Key())
		if both && v.Type == other.Type && (v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray) {
			filled, err := fillElements(v.Value, other.Value, v.Type == bson.TypeEmbeddedDocument)
			if err != nil {
				return nil, err
			}
			v.Value = filled
		}
		out = bsoncore.AppendValueElement(out, e.Key(), bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
	}
	for _, e := range extra {
		if v, missing := rest[e.Key()]; missing {
			out = bsoncore.AppendValueElement(out, e.Key(), bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
		}
	}
	out, err = bsoncore.AppendDocumentEnd(out, start)
	return bson.Raw(out), err
}
