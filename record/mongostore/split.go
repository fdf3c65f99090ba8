package mongostore

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

const (
	// samplesPerRange makes ranges that differ by some 20 % in size where the server's samples
	// are even. Those of a collection that is in its cache are not: there they differ by several times.
	samplesPerRange = 20
	// leastRange is how many documents are worth a range of their own.
	leastRange = 500
	// purgeSize bounds one delete of tombstones.
	purgeSize = 1000
)

// Split cuts the ids, of whatever types, at a sorted random sample of them. The server
// sorts, since only it knows the order.
func (n *Namespace) Split(ctx context.Context, tok record.Token, count int) ([]record.Range, error) {
	whole := []record.Range{{}}
	if count <= 1 {
		return whole, nil
	}
	total, err := n.sizeOf(ctx, tok)
	if err != nil {
		return nil, classify("split "+tok.Name, err)
	}
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

// Purge removes tombstones, a batch at a time. A tombstone that a client created over in
// the meantime is no longer one and stays.
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
	// One pass over the collection: what becomes a tombstone behind the cursor belongs to
	// a direction that has not ended.
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
		for len(ids) < purgeSize && cursor.RemainingBatchLength() > 0 && cursor.Next(ctx) {
			ids = append(ids, cursor.Current.Lookup("_id"))
		}
		remove, err := withUUID(bson.D{
			{Key: "delete", Value: from.Name},
			{Key: "deletes", Value: bson.A{bson.D{
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

// purgeBatch sends one delete. The guards of fixed-name kinds have no identity that a
// fence moves, so that the look at the kind itself in the same transaction is what stops
// a purge with an old token.
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

// Drop removes a collection by its identity and, for fixed-name kinds, the guards
// next to it. A view that a fence left under the application's name stays, so that a late
// writer still fails instead of making a new collection.
func (n *Namespace) Drop(ctx context.Context, tok record.Token) error {
	kill := func(ctx context.Context, ns string) (int, error) {
		// The server locks the name before it looks at the identity: those who hold another
		// collection that bears the name by now are left alone.
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
	case mongos: // takes longer than for its locks alone, and nobody can say who holds them
		err = n.db.RunCommand(ctx, append(cmd, bson.E{Key: "writeConcern", Value: majorityWithin(concernWait)})).Err()
	default:
		// It waits only briefly for locks, so that a transaction that was left open is ended.
		err = n.change(ctx, n.db, cmd)
	}
	switch {
	case err == nil || hasCode(err, codeNamespaceNotFound):
	case hasCode(err, codeUUIDMismatch):
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
		if err := n.dropNamed(ctx, gateOf(tok.Name)); err != nil { // that a fence which died has left
			return err
		}
	}
	if err := n.disclaim(ctx, tok); err != nil {
		return err
	}
	notes := bson.A{ownOnce(tok)}
	if tok.ID != "" {
		notes = append(notes, noteProvisioned+tok.ID, noteRestore+tok.ID)
	}
	return n.deleteMarks(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: notes}}}})
}

// dropNamed drops whatever has a name; that nothing has it is fine.
func (n *Namespace) dropNamed(ctx context.Context, name string) error {
	err := n.db.RunCommand(ctx, bson.D{
		{Key: "drop", Value: name}, {Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
	if hasCode(err, codeNamespaceNotFound) {
		return nil
	}
	return err
}

// deleteMarks deletes what is noted next to the kinds, by a filter.
func (n *Namespace) deleteMarks(ctx context.Context, filter bson.D) error {
	return n.db.RunCommand(ctx, bson.D{
		{Key: "delete", Value: marksCollection},
		{Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: filter}, {Key: "limit", Value: 0}}}},
		{Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
}

// withUUID adds the identity of a token to a command.
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
