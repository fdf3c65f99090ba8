package provision

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/record"
)

// Forget drops the guards and gates of a kind, removes its label, and deletes its claim and all
// notes about it. Documents of clients that were set aside stay.
func (n *Collections) Forget(ctx context.Context, tok record.Token) error {
	if err := n.UntilDone(ctx, "", func(ctx context.Context) error { return n.forget(ctx, tok) }); err != nil {
		return fmt.Errorf("forget %s.%s: %w", n.Name, tok.Kind, conn.WithPrivilege(err))
	}
	return nil
}

func (n *Collections) forget(ctx context.Context, tok record.Token) error {
	if err := n.unfenced(ctx, &tok); err != nil {
		return err
	}
	if err := n.fences.DropOccupations(ctx, tok); err != nil {
		return err
	}
	// A kind's name may have any characters.
	own := regexp.QuoteMeta(tok.Kind) + `\.n[0-9]+$`
	gates, err := n.List(ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: "^" + regexp.QuoteMeta(conn.GatePrefix) + own}}})
	if err != nil {
		return err
	}
	drop := make([]string, 0, len(gates)+1)
	for _, gate := range gates {
		drop = append(drop, gate.Name)
	}
	if tok.Fixed {
		drop = append(drop, conn.GuardsName(tok.Kind))
	}
	for _, name := range drop {
		if err := n.DropNamed(ctx, name); err != nil {
			return err
		}
	}
	n.ForgetSide(tok.Kind)
	if err := n.fences.Disclaim(ctx, tok); err != nil {
		return err
	}
	// Delete the notes last, as Drop does.
	notes := bson.A{conn.OwnOnce(tok), conn.NoteMoves + tok.Kind, bson.Regex{
		Pattern: "^(" + regexp.QuoteMeta(conn.UnfencedNotes) + "|" + regexp.QuoteMeta(conn.NoteStrays) + ")?" + own,
	}}
	if tok.ID != "" {
		notes = append(notes, conn.NoteProvisioned+tok.ID, conn.NoteRestore+tok.ID)
	}
	return n.DeleteMarks(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: notes}}}})
}

// unfenced refuses a kind with a fence in force. It removes the label of its collection, and sets the
// token's name to the present one.
func (n *Collections) unfenced(ctx context.Context, tok *record.Token) error {
	name, err := n.Locate(ctx, tok.ID)
	if tok.ID == "" || errors.Is(err, record.ErrNotFound) {
		name, err = tok.Name, nil
	}
	if err != nil {
		return err
	}
	found, err := n.Named(ctx, name, tok.Kind)
	if err != nil {
		return err
	}
	for _, c := range found {
		mine := c.Type == "collection" && (tok.ID == "" || c.ID() == tok.ID)
		// The view of a completed version is no fence.
		if c.FenceMark() != "" && !c.Retired() && (mine || c.Type == "view") {
			return conn.Permanent(fmt.Errorf("%s has the fence %s: %w", c.Name, c.FenceMark(), record.ErrFenced))
		}
		has, _ := c.Options.Lookup("validator").DocumentOK()
		if !mine || !conn.IsLabel(has) {
			continue
		}
		tok.Name = c.Name
		if err := n.fences.SetValidator(ctx, *tok, fences.Restoration{}); err != nil {
			return err
		}
	}
	return nil
}

// FreeNumber returns the number after those of all fences that the database knows of a kind. Drop
// keeps the notes of their ends, because a late command could set them again.
func (n *Collections) FreeNumber(ctx context.Context, kind string) (uint64, error) {
	var marks []string
	err := n.UntilDone(ctx, "", func(ctx context.Context) (err error) {
		marks, err = n.fences.Marked(ctx, kind)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("number of %s.%s: %w", n.Name, kind, conn.WithPrivilege(err))
	}
	return record.FreeNumber(kind, marks)
}
