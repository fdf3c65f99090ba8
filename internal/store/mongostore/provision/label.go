package provision

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// labelled returns the validator that requires a label. It compares the first bytes of a field bit
// by bit, because MongoDB has no operator for bytes.
func labelled(l record.Label) bson.Raw {
	rules := bson.A{
		bson.D{{Key: wire.GuardField + ".x", Value: true}},
		bson.D{{Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{conn.LabelMark, ""}}}}},
	}
	// A document passes with any of the beginnings.
	for _, begin := range l.Begins {
		set, unset := bson.A{}, bson.A{}
		for i, b := range begin {
			// The server counts bits from the lowest of each byte.
			for bit := range 8 {
				if at := int32(8*i + bit); b>>bit&1 == 1 { //nolint:gosec // a label has few bytes
					set = append(set, at)
				} else {
					unset = append(unset, at)
				}
			}
		}
		rules = append(rules, bson.D{{Key: l.Field, Value: bson.D{
			{Key: "$type", Value: "binData"}, {Key: "$bitsAllSet", Value: set}, {Key: "$bitsAllClear", Value: unset},
		}}})
	}
	if l.Absent {
		rules = append(rules, bson.D{{Key: l.Field, Value: bson.D{{Key: "$exists", Value: false}}}})
	}
	return wire.MustMarshal(bson.D{{Key: "$or", Value: rules}})
}

// Require makes the label the validator of the collections. It returns once a majority has all
// validators. The level is moderate: existing documents without the label may be written again, but
// no new one appears. A transaction that began before the change and writes after it conflicts with
// the change. A transaction that wrote before the change blocks it, and is ended.
func (n *Collections) Require(ctx context.Context, toks []record.Token, l record.Label) error {
	if err := n.require(ctx, toks, l); err != nil {
		return fmt.Errorf("require label in %s: %w", n.Location(), conn.WithPrivilege(err))
	}
	return nil
}

func (n *Collections) require(ctx context.Context, toks []record.Token, l record.Label) error {
	if len(toks) == 0 {
		return nil
	}
	names := make([]string, len(toks))
	for i, tok := range toks {
		names[i] = tok.Name
	}
	found, err := n.Named(ctx, names...)
	if err != nil {
		return err
	}
	want, all := labelled(l), map[string]*conn.Collection{}
	for i := range found {
		all[found[i].Name] = &found[i]
	}
	for _, tok := range toks {
		c := all[tok.Name]
		// Replacing a foreign validator would lose it, so check first.
		if err := n.mayLabel(tok, c); err != nil {
			return err
		}
		// Even an equal collMod would lock the collection.
		if has, _ := c.Options.Lookup("validator").DocumentOK(); bytes.Equal(has, want) {
			continue
		}
		err := n.UntilDone(ctx, n.Name+"."+tok.Name, func(ctx context.Context) error {
			return n.fences.SetValidator(ctx, tok, fences.Restoration{Validator: want, Level: "moderate"})
		})
		// The name was renamed or replaced since the listing.
		if conn.HasCode(err, conn.CodeUUIDMismatch, conn.CodeNamespaceNotFound) {
			return fmt.Errorf("%s as %s: %w", tok.Kind, tok.Name, record.ErrFenced)
		}
		if err != nil {
			return err
		}
	}
	// A node may still lose what it lists, unless a majority has it.
	return n.fences.ConfirmMajority(ctx)
}

// mayLabel refuses a collection that has its own validator, a fence, or another UUID.
func (n *Collections) mayLabel(tok record.Token, c *conn.Collection) error {
	if tok.Fixed {
		return &record.UnsupportedError{What: "label of " + tok.Name, Reason: "it has a fixed-name kind, whose application may write anything"}
	}
	if c == nil || tok.ID != "" && c.ID() != tok.ID || c.FenceMark() != "" {
		return fmt.Errorf("%s as %s: %w", tok.Kind, tok.Name, record.ErrFenced)
	}
	if has, _ := c.Options.Lookup("validator").DocumentOK(); len(has) > len(wire.EmptyDocument) && !conn.IsLabel(has) {
		return &record.UnsupportedError{What: "label of " + n.Name + "." + tok.Name, Reason: "the collection has its own validator: remove it"}
	}
	return nil
}
