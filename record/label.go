package record

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Label is what documents of a managed kind must hold in a top-level field: bytes that begin with
// one of Begins. With Absent, those without the field have it, too.
type Label struct {
	Field  string   `bson:"field"`
	Begins [][]byte `bson:"begins"`
	Absent bool     `bson:"absent"`
}

// On reports whether a document has the label.
func (l Label) On(doc bson.Raw) bool {
	v, err := doc.LookupErr(l.Field)
	if err != nil {
		return l.Absent
	}
	_, data, _ := v.BinaryOK()
	return slices.ContainsFunc(l.Begins, func(begin []byte) bool { return bytes.HasPrefix(data, begin) })
}

// ErrLabel: a document lacks the label that the database requires of its kind by now, and this
// attempt had no effect. Find out which one that is, and make the document anew.
var ErrLabel = errors.New("the database no longer takes documents of this kind that are made so")

// Labeler is the database itself keeping late writers out that make their documents as they had to
// be made before, whatever their tokens are.
type Labeler interface {
	// Require has the database refuse, with ErrLabel, each write of a document without the label,
	// from any process and however late: once it has returned nil, none takes effect any more.
	// Deletes and tombstones need none. Of a record that is there and lacks the label it is left
	// open whether another one without it may take its place. The label before is forgotten, and
	// the collections keep the new one through fences. A stale token is ErrFenced. Idempotent, and
	// cheap where nothing is to be changed.
	//
	// Nothing orders two callers: who calls it must look afterwards whether its label still is the
	// one that is wanted.
	Require(ctx context.Context, toks []Token, l Label) error
}
