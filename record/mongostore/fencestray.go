package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// Strays. The operations of an applyOps replicate apart. A primary that dies between a
// rename and the view that belongs to it leaves the name of a kind free, and so does one that
// dies between the removal of a view and the rename back. The next insert of the application
// then makes a collection of its own under the name, and is acknowledged.
//
// A fence that finds one fails (record.ErrTaken), and the switch is aborted. What gives the
// kind its name back renames both in one step, the stray aside, so that clients write to
// the kind again at once. Then the stray's documents are moved into the kind, each in a
// transaction that inserts it here and deletes it there: if one dies, and another process goes on
// with it, each document is moved once. It is not done before, under the hidden name, because
// nobody who follows the kind's changes would hear of it. Until it is moved, which takes
// milliseconds, the application does not find what it wrote to the stray.
//
// What the kind has otherwise under the same key, or refuses (a unique index, a validator),
// stays in the stray. It is reported and kept.

// strayNote is what is noted of strays before they are renamed.
type strayNote struct {
	ID    string   `bson:"_id"`
	Aside []string `bson:"aside"` // where they are
	Kept  []string `bson:"kept"`  // those of them whose rest is for a person
}

// opens reports whether a rename gives an application its collection back, whose view stood
// under the name until then.
func opens(f record.Fence) bool {
	return f.Ends != "" && f.Token.Fixed && f.To == f.Token.Kind
}

// overStray gives a kind that is under a hidden name its own one, and in the same step renames
// what was made under that. The collections are named by identity, and without one under the
// hidden name, which is never used twice, nothing is done: so a command that comes late, after
// whatever else, moves nothing away.
func (n *Namespace) overStray(ctx context.Context, tok record.Token, hidden string, stray *collection) error {
	own := stray.Name
	uuid, err := collectionUUID(tok.ID)
	if err != nil {
		return err
	}
	if stray.is(uuid) {
		return errors.New("the names changed while they were read")
	}
	owner, err := n.owners().CountDocuments(ctx, bson.D{{Key: "_id", Value: ownerCollected + stray.id()}})
	if err != nil {
		return err
	}
	if stray.Type != "collection" || owner > 0 {
		return permanent(fmt.Errorf("the name %q is taken by a %s that is not the application's; rename or drop that one: %w", own, stray.Type, record.ErrBroken))
	}
	for _, name := range []string{own, hidden} {
		if err := n.stopBuilds(ctx, name); err != nil {
			return err
		}
	}
	aside := asidePrefix + tok.Kind + "." + stray.id()[:12]
	err = n.note(ctx, noteStrays+hidden, bson.D{
		{Key: "$addToSet", Value: bson.D{{Key: "aside", Value: aside}}},
		{Key: "$set", Value: bson.D{{Key: "kind", Value: tok.Kind}}},
	})
	if err != nil {
		return err
	}
	n.log.Warn("a collection was made under the name of a kind that was free in a failover; it is moved away, and what is in it to the kind",
		zap.String("collection", n.name+"."+own), zap.String("aside", aside))
	err = n.applyOps(ctx, bson.A{
		n.existsOp(hidden, bson.NewObjectID(), bson.D{}),
		n.renameOfOp(stray.Info.UUID, own, aside),
		n.renameOfOp(uuid, hidden, own),
	})
	if hasCode(err, codeUnknownError) {
		return nil // the update of existsOp found no document; the rest was tried
	}
	return err
}

// renameOfOp renames the collection of an identity, whatever it is called.
func (n *Namespace) renameOfOp(uuid bson.Binary, from, to string) bson.D {
	return append(n.renameOp(from, to), bson.E{Key: "ui", Value: uuid})
}

// notedStrays reads the notes of those who were asked for.
func (n *Namespace) notedStrays(ctx context.Context, asked []string) (found []strayNote, err error) {
	ids := make(bson.A, len(asked))
	for i, hidden := range asked {
		ids[i] = noteStrays + hidden
	}
	marks := n.db.Collection(marksCollection, options.Collection().SetReadConcern(readconcern.Majority()))
	cursor, err := marks.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("read marks of strays: %w", err)
	}
	return found, nil
}

// settleStrays moves into a kind, which has its own name again, what was written to strays
// while it had a hidden one.
func (n *Namespace) settleStrays(ctx context.Context, tok record.Token, own, hidden string) error {
	notes, err := n.strays.ask(ctx, hidden)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(notes, func(note strayNote) bool { return note.ID == noteStrays+hidden })
	if i < 0 {
		return nil
	}
	tok.Name = own
	var kept []record.Breach
	for _, aside := range notes[i].Aside {
		if !slices.Contains(notes[i].Kept, aside) {
			if err := n.settleStray(ctx, tok, hidden, aside); err != nil {
				return fmt.Errorf("move what is in %s: %w", aside, err)
			}
		}
		rest, err := n.db.Collection(aside).CountDocuments(ctx, bson.D{})
		if err != nil {
			return fmt.Errorf("count %s: %w", aside, err)
		}
		if rest > 0 {
			kept = append(kept, record.Breach{
				What: fmt.Sprintf("a collection was made under the name %s in a failover, and %s has %d documents of it that %s has otherwise or does not take: look at both",
					own, aside, rest, own),
				Aside: aside, Count: rest,
			})
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return permanent(&record.KeptError{Kept: kept})
}

// settleStray ends with the stray gone, or noted as for a person.
func (n *Namespace) settleStray(ctx context.Context, tok record.Token, hidden, aside string) error {
	moved, kept, err := n.moveStray(ctx, tok, aside)
	if err != nil {
		return err
	}
	said := []zap.Field{zap.String("collection", n.name+"."+tok.Name), zap.String("aside", aside), zap.Int("moved", moved), zap.Int("kept", kept)}
	if kept == 0 {
		if moved > 0 {
			n.log.Warn("what was written to a collection under the name of a kind is moved into the kind", said...)
		}
		return n.dropNamed(ctx, aside)
	}
	n.log.Error("not all that was written to a collection under the name of a kind can be moved into the kind: look at both", said...)
	return n.note(ctx, noteStrays+hidden, bson.D{{Key: "$addToSet", Value: bson.D{{Key: "kept", Value: aside}}}})
}

// Bounds of one transaction that moves documents: it must not hold up a fence for long.
const (
	strayBatch = 100
	strayBytes = 4 << 20
)

// moveStray goes over a stray once. Nobody else writes to it.
func (n *Namespace) moveStray(ctx context.Context, tok record.Token, aside string) (moved, kept int, err error) {
	cursor, err := n.db.Collection(aside).Find(ctx, bson.D{}, options.Find().SetBatchSize(strayBatch))
	if err != nil {
		return 0, 0, err
	}
	defer cursor.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read
	var ids bson.A
	size := 0
	move := func() error {
		m, k, err := n.moveDocuments(ctx, tok, aside, ids)
		moved, kept, ids, size = moved+m, kept+k, nil, 0
		return err
	}
	for cursor.Next(ctx) {
		id := cursor.Current.Lookup("_id")
		ids = append(ids, bson.RawValue{Type: id.Type, Value: slices.Clone(id.Value)})
		if size += len(cursor.Current); len(ids) == strayBatch || size >= strayBytes {
			if err := move(); err != nil {
				return moved, kept, err
			}
		}
	}
	if err := cursor.Err(); err != nil || len(ids) == 0 {
		return moved, kept, err
	}
	err = move()
	return moved, kept, err
}

// moveDocuments moves documents of a stray in one transaction. If the kind refuses one of
// them, each has a transaction of its own.
func (n *Namespace) moveDocuments(ctx context.Context, tok record.Token, aside string, ids bson.A) (moved, kept int, err error) {
	err = n.transact(ctx, "move from "+aside, func(ctx context.Context) (err error) {
		moved, kept, err = n.moveIn(ctx, tok, aside, ids)
		return err
	})
	switch {
	case err == nil || !refusesDocument(err):
		return moved, kept, err
	case len(ids) == 1:
		n.log.Warn("a kind does not take a document of a collection under its name", zap.String("aside", aside), zap.Error(err))
		return 0, 1, nil
	}
	moved, kept = 0, 0
	for _, id := range ids {
		m, k, err := n.moveDocuments(ctx, tok, aside, bson.A{id})
		if moved, kept = moved+m, kept+k; err != nil {
			return moved, kept, err
		}
	}
	return moved, kept, nil
}

// moveIn reads what of the documents is still in the stray: another may be moving them too.
func (n *Namespace) moveIn(ctx context.Context, tok record.Token, aside string, ids bson.A) (moved, kept int, err error) {
	theirs, err := n.documents(ctx, record.Token{Name: aside}, ids)
	if err != nil || len(theirs) == 0 {
		return 0, 0, err
	}
	ours, err := n.documents(ctx, tok, ids)
	if err != nil {
		return 0, 0, err
	}
	var inserts, deletes bson.A
	for key, doc := range theirs {
		has, there := ours[key]
		switch {
		case there && string(has) != string(doc):
			kept++
			continue
		case !there:
			inserts = append(inserts, doc)
		}
		deletes = append(deletes, doc.Lookup("_id"))
	}
	if len(inserts) > 0 {
		insert, err := withUUID(bson.D{{Key: "insert", Value: tok.Name}, {Key: "documents", Value: inserts}}, tok)
		if err != nil {
			return 0, 0, err
		}
		if _, err := n.run(ctx, mustMarshal(insert)); err != nil {
			return 0, 0, err
		}
	}
	if len(deletes) > 0 {
		_, err := n.run(ctx, mustMarshal(bson.D{{Key: "delete", Value: aside}, {Key: "deletes", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: deletes}}}}}, {Key: "limit", Value: 0},
		}}}}))
		if err != nil {
			return 0, 0, err
		}
	}
	return len(deletes), kept, nil
}

// documents reads documents by their _id.
func (n *Namespace) documents(ctx context.Context, tok record.Token, ids bson.A) (map[record.Key]bson.Raw, error) {
	find, err := withUUID(bson.D{{Key: "find", Value: tok.Name}, {Key: "filter", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}}}, tok)
	if err != nil {
		return nil, err
	}
	cursor, err := n.db.RunCommandCursor(ctx, find)
	if err != nil {
		return nil, concealed(err)
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, concealed(err)
	}
	found := make(map[record.Key]bson.Raw, len(docs))
	for _, doc := range docs {
		key, err := record.KeyOf(doc.Lookup("_id"))
		if err != nil {
			return nil, err
		}
		found[key] = doc
	}
	return found, nil
}

// refusesDocument reports that the collection does not take a document, now or later.
func refusesDocument(err error) bool {
	var refused mongo.WriteException
	return errors.As(err, &refused) && len(refused.WriteErrors) > 0 && !isTransient(err)
}
