package mongostore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// A rename that was announced, sent or not, is made impossible by an empty collection
// under its destination: the server refuses a rename to a name that is taken (48), however
// late it comes. Making one needs no lock on the kind, so it passes whatever holds up the
// rename.
//
// The collection stays until the kind is dropped. The name is never used otherwise, and
// a reader of the changes of the database would take the drop of a collection that is
// called like a kind's for the end of the kind.

// occupiedPrefix stands before the identity in the validator of what occupies a name.
const occupiedPrefix = "dbc-occupied:"

// occupation is the validator of an empty collection that keeps a name from a kind; no
// document satisfies it.
func occupation(id string) bson.D {
	return bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{occupiedPrefix + id, ""}}}}}
}

// occupies returns the identity from which the collection keeps its name, or "".
func (c collection) occupies() string {
	text, _ := c.Options.Lookup("validator", "$expr", "$eq", "0").StringValueOK()
	id, ok := strings.CutPrefix(text, occupiedPrefix)
	if !ok {
		return ""
	}
	return id
}

// Prevent resolves a rename that was announced.
func (n *Namespace) Prevent(ctx context.Context, f record.Fence) (moved bool, err error) {
	if f.Class != record.FenceUUID && f.Class != "" {
		return false, fmt.Errorf("prevent %s: a fence of class %s is removed instead", f.To, f.Class)
	}
	uuid, err := collectionUUID(f.Token.ID)
	if err != nil {
		return false, err
	}
	// Nothing is killed: the name is the only thing that it waits for.
	err = n.untilDone(ctx, "", func(ctx context.Context) error {
		moved, err = n.prevent(ctx, f, uuid)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("keep %s.%s from becoming %s: %w", n.name, f.Token.Name, f.To, err)
	}
	return moved, nil
}

// prevent is one attempt: an error means that it is not resolved yet.
func (n *Namespace) prevent(ctx context.Context, f record.Fence, uuid bson.Binary) (moved bool, err error) {
	at, err := n.preventedAt(ctx, f, uuid)
	if err != nil {
		return false, err
	}
	if !at.moved && !at.occupied {
		// The server reports success where the very same collection is there already.
		err := n.change(ctx, n.db, bson.D{{Key: "create", Value: f.To}, {Key: "validator", Value: occupation(f.Token.ID)}})
		if err != nil && !hasCode(err, codeNamespaceExists) {
			return false, err
		}
	}
	// What a majority has of it: the list of a primary that was deposed may be an old one.
	if err := n.mark(ctx, f); err != nil {
		return false, err
	}
	if at, err = n.preventedAt(ctx, f, uuid); err != nil {
		return false, err
	}
	switch {
	case at.moved:
		place := func(ctx context.Context) (placement, error) { return n.placement(ctx, f, uuid) }
		return true, n.confirmRename(ctx, f, uuid, place)
	case !at.occupied:
		return false, errors.New("the name was not taken when it was checked again")
	}
	return false, nil
}

// resolved is what has the two names of a rename.
type resolved struct{ moved, occupied bool }

func (n *Namespace) preventedAt(ctx context.Context, f record.Fence, uuid bson.Binary) (resolved, error) {
	found, err := n.named(ctx, f.Token.Name, f.To)
	if err != nil {
		return resolved{}, err
	}
	var s resolved
	there := false
	for _, c := range found {
		switch {
		case c.is(uuid):
			there, s.moved = true, c.Name == f.To
		case c.Name == f.To && c.occupies() == f.Token.ID:
			s.occupied = true
		case c.Name == f.To:
			return s, permanent(fmt.Errorf("the name %q is taken by a %s of somebody else; rename or drop that one", f.To, c.Type))
		}
	}
	if there {
		return s, nil
	}
	name, err := n.Locate(ctx, f.Token.ID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return s, permanent(fmt.Errorf("collection %s no longer exists: %w: %w", f.Token.ID, record.ErrBroken, err))
	case err != nil:
		return s, err
	case name == f.To || name == f.Token.Name:
		return s, errors.New("collection moved while it was looked for")
	}
	return s, permanent(fmt.Errorf("collection %s has the name %q, which nobody announced: %w", f.Token.ID, name, record.ErrBroken))
}

// dropOccupations drops what keeps names from a kind that is dropped itself.
func (n *Namespace) dropOccupations(ctx context.Context, tok record.Token) error {
	if tok.ID == "" {
		return nil
	}
	found, err := n.list(ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^` + regexp.QuoteMeta(tok.Kind) + `\.n[0-9]+$`}}})
	if err != nil {
		return err
	}
	for _, c := range found {
		if c.occupies() != tok.ID {
			continue
		}
		if err := n.dropNamed(ctx, c.Name); err != nil {
			return err
		}
	}
	return nil
}
