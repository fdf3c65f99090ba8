package record

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Swap is a new document for a record that other clients may write too.
type Swap struct {
	Key Key
	Was bson.Raw // the record as the caller read it
	Doc bson.Raw // the new document, with the identical _id
}

// Swapper changes records of the current version while clients write them.
type Swapper interface {
	// Swap replaces each record that still equals Was byte for byte. The types and the order of
	// fields count, unlike in a comparison by the database. The write is a client's write:
	// validators and fences apply, and the record has no guard afterwards.
	//
	// Each swap is independent. The results come in their order: Applied, Changed (the record
	// differs now, or is absent) or Refused. A key occurs in swaps at most once. After an error the
	// outcome of all swaps is unknown; read again before a retry.
	Swap(ctx context.Context, tok Token, swaps []Swap) ([]Result, error)
}

// CheckSwap refuses a swap that would change the record's key. Backends call it.
func CheckSwap(w Swap) error {
	was, err := w.Was.LookupErr("_id")
	if err != nil {
		return fmt.Errorf("document as it was: %w", err)
	}
	if err := w.Doc.Validate(); err != nil {
		return fmt.Errorf("new document: %w", err)
	}
	id, err := w.Doc.LookupErr("_id")
	if err != nil {
		return fmt.Errorf("new document has no _id: %w", err)
	}
	// An equal _id of another type would be another document for an application.
	if id.Type != was.Type || !bytes.Equal(id.Value, was.Value) {
		return fmt.Errorf("new document has the _id %s, the record has %s", id, was)
	}
	if key, err := KeyOf(id); err != nil || key != w.Key {
		return fmt.Errorf("documents have the _id %s, the swap is of %s", id, w.Key)
	}
	return nil
}
