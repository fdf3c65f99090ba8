package record

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Swap is a new document for a record that others may write too.
type Swap struct {
	Key Key
	Was bson.Raw // the record as it was read
	Doc bson.Raw // what it must become, with the very _id of Was
}

// Swapper changes records of the current version while others write them.
type Swapper interface {
	// Swap replaces each record that still is Was, byte for byte: a field's type and the
	// order of fields count, which a comparison by the database would not see. It is a
	// client's write: it meets validators and fences, and the record has no guard after it.
	//
	// Each swap stands for itself, and the results stand in their order: Applied; Changed,
	// the record is another by now, or none; Refused. A key stands in swaps at most once.
	// With an error nothing is known of them; read again before anything is repeated.
	Swap(ctx context.Context, tok Token, swaps []Swap) ([]Result, error)
}

// CheckSwap refuses a swap that would not leave the record under its key. Backends call it.
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
	if id.Type != was.Type || !bytes.Equal(id.Value, was.Value) {
		return fmt.Errorf("new document has the _id %s, the record has %s", id, was)
	}
	if key, err := KeyOf(id); err != nil || key != w.Key {
		return fmt.Errorf("documents have the _id %s, the swap is of %s", id, w.Key)
	}
	return nil
}
