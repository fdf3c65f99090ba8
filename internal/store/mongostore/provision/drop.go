package provision

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
	"dbcontroller.dev/record"
)

// Drop removes a collection by its UUID, and the guards of a fixed-name kind. A fence's view under
// the application's name stays, so that a late writer fails instead of creating a new collection.
// Drop may be repeated. It returns record.ErrFenced if the collection has another name.
func (n *Collections) Drop(ctx context.Context, tok record.Token) error {
	kill := func(ctx context.Context, ns string) (int, error) {
		// The server locks the name before it compares the UUID. If another collection has the name
		// now, do not kill the transactions on that one.
		c, err := n.CollectionNamed(ctx, tok.Name)
		if err != nil || c == nil || tok.ID != "" && c.ID() != tok.ID {
			return 0, err
		}
		return n.KillExactHolders(ctx, ns)
	}
	err := n.UntilDoneBy(ctx, n.Name+"."+tok.Name, kill, func(ctx context.Context) error { return n.drop(ctx, tok) })
	if err != nil {
		return fmt.Errorf("drop %s.%s: %w", n.Name, tok.Name, err)
	}
	return nil
}

func (n *Collections) drop(ctx context.Context, tok record.Token) error {
	cmd, err := conn.WithUUID(bson.D{{Key: "drop", Value: tok.Name}}, tok)
	if err != nil {
		return conn.Permanent(err)
	}
	mongos, err := n.IsMongos(ctx)
	switch {
	case err != nil:
		return err
	case mongos: // takes longer than its locks, and nobody can name their holders
		err = n.DB.RunCommand(ctx, append(cmd, bson.E{Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)})).Err()
	default:
		// Wait only briefly for locks, so that an abandoned transaction can be killed.
		err = n.Change(ctx, n.DB, cmd)
	}
	switch {
	case err == nil || conn.HasCode(err, conn.CodeNamespaceNotFound):
	case conn.HasCode(err, conn.CodeUUIDMismatch):
		// Gone or renamed? Only a missing collection counts as dropped.
		if name, err := n.Locate(ctx, tok.ID); err == nil {
			return conn.Permanent(fmt.Errorf("collection has the name %q now: %w", name, record.ErrFenced))
		} else if ctx.Err() != nil {
			return err
		}
	default:
		return err
	}
	if err := n.fences.DropOccupations(ctx, tok); err != nil {
		return err
	}
	if tok.Fixed {
		if err := n.DropNamed(ctx, conn.GuardsName(tok.Kind)); err != nil {
			return err
		}
		if err := n.DropNamed(ctx, fences.GateOf(tok.Name)); err != nil { // left by a fence that died
			return err
		}
	}
	if err := n.fences.Disclaim(ctx, tok); err != nil {
		return err
	}
	// Delete the notes last: a retry after a crash still finds the rest by them.
	notes := bson.A{conn.OwnOnce(tok)}
	// Without a UUID, such notes do not exist.
	if tok.ID != "" {
		notes = append(notes, conn.NoteProvisioned+tok.ID, conn.NoteRestore+tok.ID)
	}
	return n.DeleteMarks(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: notes}}}})
}
