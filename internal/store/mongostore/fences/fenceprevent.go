package fences

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// An empty collection under its destination makes an announced rename impossible, whether or not
// the rename was sent. The server refuses to rename to a taken name (48), however late the command
// arrives. Creating the collection needs no lock on the kind, so it succeeds whatever blocks the
// rename.
//
// The empty collection stays until the kind is dropped. Nothing else ever uses its name. Readers of
// the database's changes would take a drop of a collection with the kind's name for the end of the
// kind.

// occupation returns the validator of an empty collection that keeps a name from the kind with the
// UUID id. No document satisfies it.
func occupation(id string) bson.D {
	return bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{conn.OccupiedPrefix + id, ""}}}}}
}

// Prevent resolves an announced rename: afterwards the rename has happened or can no longer happen.
// moved reports which. It retries until ctx ends, and may be repeated.
func (n *Fences) Prevent(ctx context.Context, f record.Fence) (moved bool, err error) {
	if f.Class != record.FenceUUID && f.Class != "" {
		return false, fmt.Errorf("prevent %s: a fence of class %s is removed instead", f.To, f.Class)
	}
	uuid, err := conn.CollectionUUID(f.Token.ID)
	if err != nil {
		return false, err
	}
	// Pass no collection, so nothing is killed: creating the name waits for no transaction.
	err = n.UntilDone(ctx, "", func(ctx context.Context) error {
		moved, err = n.prevent(ctx, f, uuid)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("keep %s.%s from becoming %s: %w", n.Name, f.Token.Name, f.To, err)
	}
	return moved, nil
}

// prevent is one attempt. An error means that the rename is not resolved yet.
func (n *Fences) prevent(ctx context.Context, f record.Fence, uuid bson.Binary) (moved bool, err error) {
	at, err := n.preventedAt(ctx, f, uuid)
	if err != nil {
		return false, err
	}
	// Neither name shows a result yet, so take the destination away.
	if !at.moved && !at.occupied {
		// If the same collection exists already, the server reports success.
		err := n.Change(ctx, n.DB, bson.D{{Key: "create", Value: f.To}, {Key: "validator", Value: occupation(f.Token.ID)}})
		if err != nil && !conn.HasCode(err, conn.CodeNamespaceExists) {
			return false, err
		}
	}
	// Wait for a majority: a deposed primary may list old names.
	if err := n.Mark(ctx, f); err != nil {
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
		return false, errors.New("the name was free when it was checked again")
	}
	return false, nil
}

// resolved describes the two names of a rename.
type resolved struct{ moved, occupied bool }

func (n *Fences) preventedAt(ctx context.Context, f record.Fence, uuid bson.Binary) (resolved, error) {
	found, err := n.Named(ctx, f.Token.Name, f.To)
	if err != nil {
		return resolved{}, err
	}
	var s resolved
	there := false
	for _, c := range found {
		switch {
		case c.Is(uuid):
			there, s.moved = true, c.Name == f.To
		case c.Name == f.To && c.Occupies() == f.Token.ID:
			s.occupied = true
		case c.Name == f.To:
			return s, conn.Permanent(fmt.Errorf("the name %q is taken by a %s of somebody else; rename or drop it", f.To, c.Type))
		}
	}
	// The UUID has one of the two names, so the list is enough.
	if there {
		return s, nil
	}
	// The UUID has neither name: find its name, or that it is gone.
	name, err := n.Locate(ctx, f.Token.ID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return s, conn.Permanent(fmt.Errorf("collection %s no longer exists: %w: %w", f.Token.ID, record.ErrBroken, err))
	case err != nil:
		return s, err
	case name == f.To || name == f.Token.Name:
		return s, errors.New("collection moved during the lookup")
	}
	return s, conn.Permanent(fmt.Errorf("collection %s has the name %q, which was not announced: %w", f.Token.ID, name, record.ErrBroken))
}

// DropOccupations drops the collections that occupy names of a kind, when the kind itself is
// dropped.
func (n *Fences) DropOccupations(ctx context.Context, tok record.Token) error {
	if tok.ID == "" {
		return nil
	}
	found, err := n.List(ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^` + regexp.QuoteMeta(tok.Kind) + `\.n[0-9]+$`}}})
	if err != nil {
		return err
	}
	// Every name of the kind can be occupied, once for each rename that was prevented.
	for _, c := range found {
		if c.Occupies() != tok.ID {
			continue
		}
		if err := n.DropNamed(ctx, c.Name); err != nil {
			return err
		}
	}
	return nil
}
