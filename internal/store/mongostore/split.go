package mongostore

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

const (
	// samplesPerRange makes ranges that differ in size by about 20 % if the server samples evenly.
	// It does not for a collection in its cache; there the sizes differ by several times.
	samplesPerRange = 20
	// leastRange is the least number of documents for a range of its own.
	leastRange = 500
	// purgeSize bounds one delete of tombstones.
	purgeSize = 1000
)

// Split cuts a collection into at most count ranges, at a sorted random sample of its ids of all
// types. The server sorts, because only it knows the order.
func (n *Namespace) Split(ctx context.Context, tok record.Token, count int) ([]record.Range, error) {
	whole := []record.Range{{}}
	if count <= 1 {
		return whole, nil
	}
	total, err := n.sizeOf(ctx, tok)
	if err != nil {
		return nil, classify("split "+tok.Name, err)
	}
	// Small ranges cost more than they save.
	if count = min(count, int(total.Records/leastRange)); count <= 1 {
		return whole, nil
	}
	cmd, err := withUUID(bson.D{
		{Key: "aggregate", Value: tok.Name},
		{Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$sample", Value: bson.D{{Key: "size", Value: count * samplesPerRange}}}},
			bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}},
			bson.D{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
		}},
		{Key: "cursor", Value: bson.D{}},
		{Key: "allowDiskUse", Value: true},
	}, tok)
	if err != nil {
		return nil, fmt.Errorf("split %s: %w", tok.Name, err)
	}
	cursor, err := n.db.RunCommandCursor(ctx, cmd)
	if err != nil {
		return nil, classify("split "+tok.Name, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	var sample []record.Cursor
	for cursor.Next(ctx) {
		// A longer cut could not be stored in a checkpoint.
		if at := cursorAt(cursor.Current.Lookup("_id")); len(at) <= record.MaxCut {
			sample = append(sample, at)
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, classify("split "+tok.Name, err)
	}
	var cuts []record.Cursor
	for i := 1; i < count && len(sample) > 0; i++ {
		cut := sample[i*len(sample)/count]
		// Equal cuts would make an empty range.
		if len(cuts) == 0 || !bytes.Equal(cuts[len(cuts)-1], cut) {
			cuts = append(cuts, cut)
		}
	}
	ranges := make([]record.Range, 0, len(cuts)+1)
	var from record.Cursor
	for _, cut := range cuts {
		ranges = append(ranges, record.Range{From: from, To: cut})
		from = cut
	}
	return append(ranges, record.Range{From: from}), nil
}

// Purge deletes the tombstones of a kind in batches. If a client has created a record over a
// tombstone, it stays. Purge returns record.ErrFenced for an old token.
func (n *Namespace) Purge(ctx context.Context, tok record.Token) error {
	if err := n.purge(ctx, tok); err != nil {
		return fmt.Errorf("purge %s: %w", tok.Name, err)
	}
	return nil
}

func (n *Namespace) purge(ctx context.Context, tok record.Token) error {
	from, tombstone := tok, bson.E{Key: guardField + ".x", Value: true}
	if tok.Fixed {
		from, tombstone = record.Token{Name: GuardsName(tok.Kind)}, bson.E{Key: "x", Value: true}
	}
	// One pass is enough: a tombstone that appears behind the cursor belongs to a direction that
	// has not ended.
	find, err := withUUID(bson.D{
		{Key: "find", Value: from.Name},
		{Key: "filter", Value: bson.D{tombstone}},
		{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "batchSize", Value: purgeSize},
	}, from)
	if err != nil {
		return err
	}
	cursor, err := n.db.RunCommandCursor(ctx, find)
	if err != nil {
		return classify("find tombstones", err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for cursor.Next(ctx) {
		ids := bson.A{cursor.Current.Lookup("_id")}
		// Delete a whole reply at once, but do not wait for the next one.
		for len(ids) < purgeSize && cursor.RemainingBatchLength() > 0 && cursor.Next(ctx) {
			ids = append(ids, cursor.Current.Lookup("_id"))
		}
		remove, err := withUUID(bson.D{
			{Key: "delete", Value: from.Name},
			{Key: "deletes", Value: bson.A{bson.D{
				// The condition protects a record that was created over the tombstone.
				{Key: "q", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, tombstone}},
				{Key: "limit", Value: 0},
			}}},
		}, from)
		if err != nil {
			return err
		}
		if err := n.purgeBatch(ctx, tok, remove); err != nil {
			return err
		}
	}
	if err := cursor.Err(); err != nil {
		return classify("find tombstones", err)
	}
	return nil
}

// purgeBatch sends one delete. No fence renames the side collection of a fixed-name kind. So the
// same transaction also reads the kind's collection, which stops a purge with an old token.
func (n *Namespace) purgeBatch(ctx context.Context, tok record.Token, remove bson.D) error {
	if !tok.Fixed {
		remove = append(remove, bson.E{Key: "writeConcern", Value: majorityWithin(concernWait)})
		return classifyWrite("delete tombstones", n.db.RunCommand(ctx, remove).Err())
	}
	look, err := withUUID(bson.D{{Key: "find", Value: tok.Name}, {Key: "limit", Value: 1}, {Key: "singleBatch", Value: true}}, tok)
	if err != nil {
		return err
	}
	return n.transact(ctx, "delete tombstones", func(ctx context.Context) error {
		if err := n.db.RunCommand(ctx, look).Err(); err != nil {
			return classify("look at the kind", err)
		}
		return classify("delete tombstones", n.db.RunCommand(ctx, remove).Err())
	})
}

// Drop removes a collection by its UUID, and the guards of a fixed-name kind. A fence's view under
// the application's name stays, so that a late writer fails instead of creating a new collection.
// Drop may be repeated. It returns record.ErrFenced if the collection has another name.
func (n *Namespace) Drop(ctx context.Context, tok record.Token) error {
	kill := func(ctx context.Context, ns string) (int, error) {
		// The server locks the name before it compares the UUID. If another collection has the name
		// now, do not kill the transactions on that one.
		c, err := n.collectionNamed(ctx, tok.Name)
		if err != nil || c == nil || tok.ID != "" && c.id() != tok.ID {
			return 0, err
		}
		return n.killExactHolders(ctx, ns)
	}
	err := n.untilDoneBy(ctx, n.name+"."+tok.Name, kill, func(ctx context.Context) error { return n.drop(ctx, tok) })
	if err != nil {
		return fmt.Errorf("drop %s.%s: %w", n.name, tok.Name, err)
	}
	return nil
}

func (n *Namespace) drop(ctx context.Context, tok record.Token) error {
	cmd, err := withUUID(bson.D{{Key: "drop", Value: tok.Name}}, tok)
	if err != nil {
		return permanent(err)
	}
	mongos, err := n.isMongos(ctx)
	switch {
	case err != nil:
		return err
	case mongos: // takes longer than its locks, and nobody can name their holders
		err = n.db.RunCommand(ctx, append(cmd, bson.E{Key: "writeConcern", Value: majorityWithin(concernWait)})).Err()
	default:
		// Wait only briefly for locks, so that an abandoned transaction can be killed.
		err = n.change(ctx, n.db, cmd)
	}
	switch {
	case err == nil || hasCode(err, codeNamespaceNotFound):
	case hasCode(err, codeUUIDMismatch):
		// Gone or renamed? Only a missing collection counts as dropped.
		if name, err := n.Locate(ctx, tok.ID); err == nil {
			return permanent(fmt.Errorf("collection has the name %q now: %w", name, record.ErrFenced))
		} else if ctx.Err() != nil {
			return err
		}
	default:
		return err
	}
	if err := n.dropOccupations(ctx, tok); err != nil {
		return err
	}
	if tok.Fixed {
		if err := n.dropNamed(ctx, GuardsName(tok.Kind)); err != nil {
			return err
		}
		if err := n.dropNamed(ctx, gateOf(tok.Name)); err != nil { // left by a fence that died
			return err
		}
	}
	if err := n.disclaim(ctx, tok); err != nil {
		return err
	}
	// Delete the notes last: a retry after a crash still finds the rest by them.
	notes := bson.A{ownOnce(tok)}
	// Without a UUID, such notes do not exist.
	if tok.ID != "" {
		notes = append(notes, noteProvisioned+tok.ID, noteRestore+tok.ID)
	}
	return n.deleteMarks(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: notes}}}})
}

// dropNamed drops the collection or view with a name. A missing one is no error.
func (n *Namespace) dropNamed(ctx context.Context, name string) error {
	err := n.db.RunCommand(ctx, bson.D{
		{Key: "drop", Value: name}, {Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
	if hasCode(err, codeNamespaceNotFound) {
		return nil
	}
	return err
}

// deleteMarks deletes documents of dbc_marks.
func (n *Namespace) deleteMarks(ctx context.Context, filter bson.D) error {
	return n.db.RunCommand(ctx, bson.D{
		{Key: "delete", Value: marksCollection},
		{Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "limit", Value: 0}}}},
		{Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
}

// withUUID adds the UUID of a token to a command. It adds none if the token has none.
func withUUID(cmd bson.D, tok record.Token) (bson.D, error) {
	if tok.ID == "" {
		return cmd, nil
	}
	uuid, err := collectionUUID(tok.ID)
	if err != nil {
		return nil, err
	}
	return append(cmd, bson.E{Key: "collectionUUID", Value: uuid}), nil
}
