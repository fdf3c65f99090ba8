package recordio

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
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
func (n *Records) Split(ctx context.Context, tok record.Token, count int) ([]record.Range, error) {
	whole := []record.Range{{}}
	if count <= 1 {
		return whole, nil
	}
	total, err := n.sizeOf(ctx, tok)
	if err != nil {
		return nil, conn.Classify("split "+tok.Name, err)
	}
	// Small ranges cost more than they save.
	if count = min(count, int(total.Records/leastRange)); count <= 1 {
		return whole, nil
	}
	cmd, err := conn.WithUUID(bson.D{
		{Key: "aggregate", Value: tok.Name},
		{Key: "pipeline", Value: bson.A{
			bson.D{{Key: "$sample", Value: bson.D{{Key: "size", Value: count * samplesPerRange}}}},
			bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}},
			bson.D{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}},
		}},
		// All in the first reply. The server's own first batch is small.
		{Key: "cursor", Value: bson.D{{Key: "batchSize", Value: count*samplesPerRange + 1}}},
		{Key: "allowDiskUse", Value: true},
	}, tok)
	if err != nil {
		return nil, fmt.Errorf("split %s: %w", tok.Name, err)
	}
	cursor, err := n.DB.RunCommandCursor(ctx, cmd)
	if err != nil {
		return nil, conn.Classify("split "+tok.Name, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	var sample []record.Cursor
	for cursor.Next(ctx) {
		// A longer cut could not be stored in a checkpoint.
		if at := conn.CursorAt(cursor.Current.Lookup("_id")); len(at) <= record.MaxCut {
			sample = append(sample, at)
		}
	}
	if err := cursor.Err(); err != nil {
		return nil, conn.Classify("split "+tok.Name, err)
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
func (n *Records) Purge(ctx context.Context, tok record.Token) error {
	if err := n.purge(ctx, tok); err != nil {
		return fmt.Errorf("purge %s: %w", tok.Name, err)
	}
	return nil
}

func (n *Records) purge(ctx context.Context, tok record.Token) error {
	from, tombstone := tok, bson.E{Key: wire.GuardField + ".x", Value: true}
	if tok.Fixed {
		from, tombstone = record.Token{Name: conn.GuardsName(tok.Kind)}, bson.E{Key: "x", Value: true}
	}
	// One pass is enough: a tombstone that appears behind the cursor belongs to a direction that
	// has not ended.
	find, err := conn.WithUUID(bson.D{
		{Key: "find", Value: from.Name},
		{Key: "filter", Value: bson.D{tombstone}},
		{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "batchSize", Value: purgeSize},
	}, from)
	if err != nil {
		return err
	}
	cursor, err := n.DB.RunCommandCursor(ctx, find)
	if err != nil {
		return conn.Classify("find tombstones", err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for cursor.Next(ctx) {
		ids := bson.A{cursor.Current.Lookup("_id")}
		// Delete a whole reply at once, but do not wait for the next one.
		for len(ids) < purgeSize && cursor.RemainingBatchLength() > 0 && cursor.Next(ctx) {
			ids = append(ids, cursor.Current.Lookup("_id"))
		}
		remove, err := conn.WithUUID(bson.D{
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
		return conn.Classify("find tombstones", err)
	}
	return nil
}

// purgeBatch sends one delete. No fence renames the side collection of a fixed-name kind. So the
// same transaction also reads the kind's collection, which stops a purge with an old token.
func (n *Records) purgeBatch(ctx context.Context, tok record.Token, remove bson.D) error {
	if !tok.Fixed {
		remove = append(remove, bson.E{Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)})
		return conn.ClassifyWrite("delete tombstones", n.DB.RunCommand(ctx, remove).Err())
	}
	look, err := conn.WithUUID(bson.D{{Key: "find", Value: tok.Name}, {Key: "limit", Value: 1}, {Key: "singleBatch", Value: true}}, tok)
	if err != nil {
		return err
	}
	return n.Transact(ctx, "delete tombstones", func(ctx context.Context) error {
		if err := n.DB.RunCommand(ctx, look).Err(); err != nil {
			return conn.Classify("look at the kind", err)
		}
		return conn.Classify("delete tombstones", n.DB.RunCommand(ctx, remove).Err())
	})
}
