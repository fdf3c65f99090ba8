package mongostore

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// Reshape drops indexes and changes options. Both commands carry the identity of the token, so that
// one that was sent long ago meets no other collection.
func (n *Namespace) Reshape(ctx context.Context, tok record.Token, kind record.KindSpec, drop []string) error {
	err := n.untilDone(ctx, "", func(ctx context.Context) error {
		for _, name := range drop {
			if err := n.dropIndex(ctx, tok, name); err != nil {
				return err
			}
		}
		if !kind.Fixed {
			return nil
		}
		return n.changeOptions(ctx, tok, kind)
	})
	if err != nil {
		return fmt.Errorf("reshape %s.%s: %w", n.name, tok.Name, withPrivilege(err))
	}
	return nil
}

func (n *Namespace) dropIndex(ctx context.Context, tok record.Token, name string) error {
	listed, err := n.listIndexes(ctx, tok)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(listed, func(ix listedIndex) bool { return ix.name == name }) {
		return nil
	}
	cmd, err := withUUID(bson.D{{Key: "dropIndexes", Value: tok.Name}, {Key: "index", Value: name}}, tok)
	if err != nil {
		return permanent(err)
	}
	return reshaped(n.change(ctx, n.db, cmd))
}

func (n *Namespace) changeOptions(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	c, err := n.collectionNamed(ctx, tok.Name)
	switch {
	case err != nil:
		return err
	case c == nil || tok.ID != "" && c.id() != tok.ID:
		return permanent(record.ErrNotFound)
	case c.fenceMark() != "":
		return permanent(fmt.Errorf("its validator is a fence's: %w", record.ErrConflict))
	}
	have, err := n.optionsOf(ctx, kind, c)
	if err != nil || len(record.DifferentOptions(have, kind.Shape.Options)) == 0 {
		return err
	}
	cmd, err := withUUID(append(bson.D{{Key: "collMod", Value: tok.Name}}, record.ChangeableOptions(kind.Shape.Options)...), tok)
	if err != nil {
		return permanent(err)
	}
	return reshaped(n.change(ctx, n.db, cmd))
}

// reshaped maps the errors of commands that change a collection's shape.
func reshaped(err error) error {
	switch {
	case hasCode(err, codeIndexNotFound):
		return nil
	case hasCode(err, codeUUIDMismatch):
		return permanent(fmt.Errorf("%w: %w", record.ErrFenced, err))
	case hasCode(err, codeNamespaceNotFound):
		return permanent(fmt.Errorf("%w: %w", record.ErrNotFound, err))
	}
	return err
}

// moderate reports whether a collection takes documents that its validator refuses where they were
// there before the validator (validationLevel moderate). What the source has of such documents is
// the source's business, and comes along.
func (n *Namespace) moderate(ctx context.Context, tok record.Token) (bool, error) {
	text, err := n.validatorOf(ctx, tok)
	if err != nil {
		return false, err
	}
	validation, err := restorationFrom(text)
	return validation.Level == "moderate", err
}
