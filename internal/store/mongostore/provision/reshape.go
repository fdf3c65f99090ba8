package provision

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Reshape drops indexes and, for a fixed-name kind, changes options. Its commands carry the token's
// UUID, so that a late one changes no other collection. It may be repeated.
func (n *Collections) Reshape(ctx context.Context, tok record.Token, kind record.KindSpec, drop []string) error {
	err := n.UntilDone(ctx, "", func(ctx context.Context) error {
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
		return fmt.Errorf("reshape %s.%s: %w", n.Name, tok.Name, conn.WithPrivilege(err))
	}
	return nil
}

func (n *Collections) dropIndex(ctx context.Context, tok record.Token, name string) error {
	listed, err := n.ListIndexes(ctx, tok)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(listed, func(ix conn.ListedIndex) bool { return ix.Name == name }) {
		return nil
	}
	cmd, err := conn.WithUUID(bson.D{{Key: "dropIndexes", Value: tok.Name}, {Key: "index", Value: name}}, tok)
	if err != nil {
		return conn.Permanent(err)
	}
	return reshaped(n.Change(ctx, n.DB, cmd))
}

func (n *Collections) changeOptions(ctx context.Context, tok record.Token, kind record.KindSpec) error {
	c, err := n.CollectionNamed(ctx, tok.Name)
	switch {
	case err != nil:
		return err
	case c == nil || tok.ID != "" && c.ID() != tok.ID:
		return conn.Permanent(record.ErrNotFound)
	case c.FenceMark() != "":
		// A change now would remove the fence.
		return conn.Permanent(fmt.Errorf("its validator is a fence's: %w", record.ErrConflict))
	}
	have, err := n.optionsOf(ctx, kind, c)
	if err != nil || len(record.DifferentOptions(have, kind.Shape.Options)) == 0 {
		return err
	}
	cmd, err := conn.WithUUID(append(bson.D{{Key: "collMod", Value: tok.Name}}, record.ChangeableOptions(kind.Shape.Options)...), tok)
	if err != nil {
		return conn.Permanent(err)
	}
	return reshaped(n.Change(ctx, n.DB, cmd))
}

// reshaped maps the errors of commands that change a collection's shape.
func reshaped(err error) error {
	switch {
	case conn.HasCode(err, conn.CodeIndexNotFound):
		return nil
	case conn.HasCode(err, conn.CodeUUIDMismatch):
		return conn.Permanent(fmt.Errorf("%w: %w", record.ErrFenced, err))
	case conn.HasCode(err, conn.CodeNamespaceNotFound):
		return conn.Permanent(fmt.Errorf("%w: %w", record.ErrNotFound, err))
	}
	return err
}
