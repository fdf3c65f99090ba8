package record

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Label is a requirement for documents of a managed kind: the top-level field Field holds bytes
// with one of the prefixes Begins. With Absent, documents without the field satisfy the label too.
type Label struct {
	Field  string   `bson:"field"`
	Begins [][]byte `bson:"begins"`
	Absent bool     `bson:"absent"`
}

// On reports whether a document satisfies the label.
func (l Label) On(doc bson.Raw) bool {
	v, err := doc.LookupErr(l.Field)
	if err != nil {
		return l.Absent
	}
	_, data, _ := v.BinaryOK()
	return slices.ContainsFunc(l.Begins, func(begin []byte) bool { return bytes.HasPrefix(data, begin) })
}

// ErrLabel reports that a document lacks the label that the database now requires for its kind.
// This attempt had no effect. Look up the required label and make the document again.
var ErrLabel = errors.New("the database no longer takes documents of this kind that are made so")

// Labeler makes the database refuse late writers that still make documents in an earlier form. It
// does so whatever token they carry.
type Labeler interface {
	// Require makes the database refuse, with ErrLabel, each write of a document without the label.
	// After it returns nil, no such write takes effect, from any process and however late. Deletes
	// and tombstones need no label. If an existing record lacks the label, a write without it may
	// or may not replace that record. The label replaces the previous one, and the collections keep
	// it through fences. A stale token is ErrFenced. Idempotent, and cheap if nothing changes.
	//
	// Concurrent calls have no defined order. After the call, the caller must check that its label
	// is still the current one.
	Require(ctx context.Context, toks []Token, l Label) error
}
