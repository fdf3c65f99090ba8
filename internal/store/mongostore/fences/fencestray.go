package fences

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

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Unowned collections, called strays here. The server can end an applyOps between a rename and the
// creation of its view (see fenceviews.go). The kind's name is then free. The same happens between
// the removal of a view and the rename back. The next insert of the application then creates a new
// collection under the name, and is acknowledged.
//
// A fence that finds a stray fails (record.ErrTaken), and the switch is aborted. The operation that
// gives the kind its name back renames both collections in one step and puts the stray aside.
// Clients can then write to the kind at once. After that, the controller moves the stray's
// documents into the kind. Each transaction inserts a document in the kind and deletes it from the
// stray, so another process can continue and still move each document once.
//
// The documents are not moved earlier, while the kind has its hidden name, because followers of the
// kind's changes would miss them. Until they are moved, which takes milliseconds, the application
// does not find them.
//
// A document stays in the stray if the kind has another document with its key, or refuses it (a
// unique index, a validator). Such documents are reported and kept.

// strayNote is the note about strays, written before they are renamed.
type strayNote struct {
	ID    string   `bson:"_id"`
	Aside []string `bson:"aside"` // their names
	Kept  []string `bson:"kept"`  // those of Aside that need an operator
}

// opens reports whether a rename gives an application its collection back, in place of the fence's
// view.
func opens(f record.Fence) bool {
	return f.Ends != "" && f.Token.Fixed && f.To == f.Token.Kind
}

// overStray gives a kind under a hidden name its own name back, and renames the stray under that
// name in the same step. The command names both collections by UUID. It does nothing unless a
// collection has the hidden name, which is never used twice. A late command therefore moves nothing
// away.
func (n *Fences) overStray(ctx context.Context, tok record.Token, hidden string, stray *conn.Collection) error {
	own := stray.Name
	uuid, err := conn.CollectionUUID(tok.ID)
	if err != nil {
		return err
	}
	if stray.Is(uuid) {
		return errors.New("the names changed during the read")
	}
	// A collection with an ownership mark belongs to another namespace, not to the application.
	owner, err := n.owners().CountDocuments(ctx, bson.D{{Key: "_id", Value: ownerCollected + stray.ID()}})
	if err != nil {
		return err
	}
	if stray.Type != "collection" || owner > 0 {
		return conn.Permanent(fmt.Errorf("the name %q is taken by a %s that does not belong to the application; rename or drop it: %w", own, stray.Type, record.ErrBroken))
	}
	// An index build during the applyOps would abort the server.
	for _, name := range []string{own, hidden} {
		if err := n.stopBuilds(ctx, name); err != nil {
			return err
		}
	}
	// The name follows from the UUID, so every retry uses the same one.
	aside := conn.AsidePrefix + tok.Kind + "." + stray.ShortID()
	// Note the stray before the rename, or a crash in between would lose track of it.
	err = n.Note(ctx, conn.NoteStrays+hidden, bson.D{
		{Key: "$addToSet", Value: bson.D{{Key: "aside", Value: aside}}},
		{Key: "$set", Value: bson.D{{Key: "kind", Value: tok.Kind}}},
	})
	if err != nil {
		return err
	}
	n.Log.Warn("a collection was created under the name of a kind whose fence was set or removed only halfway; it is renamed, and its documents are moved to the kind",
		zap.String("collection", n.Name+"."+own), zap.String("aside", aside))
	err = n.applyWhole(ctx, bson.A{
		n.existsOp(hidden, bson.NewObjectID(), bson.D{}),
		n.renameOfOp(stray.Info.UUID, own, aside),
		n.renameOfOp(uuid, hidden, own),
	})
	if partly(err) {
		return nil // existsOp found no document; the other operations were tried
	}
	return err
}

// renameOfOp renames the collection with a UUID, whatever its current name is.
func (n *Fences) renameOfOp(uuid bson.Binary, from, to string) bson.D {
	return append(n.renameOp(from, to), bson.E{Key: "ui", Value: uuid})
}

// notedStrays reads the notes about strays of several hidden names. A majority has each note before the
// rename that it belongs to. So a node that shows the rename has the note, also right after an
// election, when its majority reads may still lag.
func (n *Fences) notedStrays(ctx context.Context, asked []string) (found []strayNote, err error) {
	ids := make(bson.A, len(asked))
	for i, hidden := range asked {
		ids[i] = conn.NoteStrays + hidden
	}
	marks := n.DB.Collection(conn.MarksCollection, options.Collection().SetReadConcern(readconcern.Local()))
	cursor, err := marks.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err == nil {
		err = conn.All(ctx, cursor, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("read marks of strays: %w", err)
	}
	return found, nil
}

// settleStrays moves the documents of strays into a kind that has its own name again. It returns a
// record.KeptError if documents had to stay behind.
func (n *Fences) settleStrays(ctx context.Context, tok record.Token, own, hidden string) error {
	// The read is shared with other kinds that settle at the same time.
	notes, err := n.strays.Ask(ctx, hidden)
	if err != nil {
		return err
	}
	return n.settleNoted(ctx, tok, own, hidden, notes)
}

// settleNoted is settleStrays for notes that were read after the kind got its name.
func (n *Fences) settleNoted(ctx context.Context, tok record.Token, own, hidden string, notes []strayNote) error {
	i := slices.IndexFunc(notes, func(note strayNote) bool { return note.ID == conn.NoteStrays+hidden })
	if i < 0 {
		return nil
	}
	tok.Name = own
	var kept []record.Breach
	for _, aside := range notes[i].Aside {
		// Moving a kept stray again would fail again; an operator must decide.
		if !slices.Contains(notes[i].Kept, aside) {
			if err := n.settleStray(ctx, tok, hidden, aside); err != nil {
				return fmt.Errorf("move what is in %s: %w", aside, err)
			}
		}
		// What is left was refused, now or by an earlier attempt.
		rest, err := n.DB.Collection(aside).CountDocuments(ctx, bson.D{})
		if err != nil {
			return fmt.Errorf("count %s: %w", aside, err)
		}
		if rest > 0 {
			kept = append(kept, record.Breach{
				What: fmt.Sprintf("a collection was created under the name %s while a fence was being set or removed, and %s keeps %d of its documents, because %s has other contents for them or refuses them: compare both",
					own, aside, rest, own),
				Aside: aside, Count: rest,
			})
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return conn.Permanent(&record.KeptError{Kept: kept})
}

// settleStray moves one stray's documents. Afterwards the stray is dropped, or noted as one for an
// operator.
func (n *Fences) settleStray(ctx context.Context, tok record.Token, hidden, aside string) error {
	moved, kept, err := n.moveStray(ctx, tok, aside)
	if err != nil {
		return err
	}
	said := []zap.Field{zap.String("collection", n.Name+"."+tok.Name), zap.String("aside", aside), zap.Int("moved", moved), zap.Int("kept", kept)}
	if kept == 0 {
		if moved > 0 {
			n.Log.Warn("moving documents that were written to a collection under the name of a kind into the kind", said...)
		}
		return n.DropNamed(ctx, aside)
	}
	n.Log.Error("cannot move all documents of a collection under the name of a kind into the kind: compare both", said...)
	return n.Note(ctx, conn.NoteStrays+hidden, bson.D{{Key: "$addToSet", Value: bson.D{{Key: "kept", Value: aside}}}})
}

// Limits of one transaction that moves documents. A longer one would hold up a fence.
const (
	strayBatch = 100
	strayBytes = 4 << 20
)

// moveStray goes over a stray once. Nobody else writes to it any more.
func (n *Fences) moveStray(ctx context.Context, tok record.Token, aside string) (moved, kept int, err error) {
	cursor, err := n.DB.Collection(aside).Find(ctx, bson.D{}, options.Find().SetBatchSize(strayBatch))
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
		// The cursor reuses its buffer.
		ids = append(ids, bson.RawValue{Type: id.Type, Value: slices.Clone(id.Value)})
		// Commit in small batches, or the transaction would hold up a fence.
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

// moveDocuments moves documents of a stray in one transaction. If the kind refuses one of them, it
// moves each in a transaction of its own.
func (n *Fences) moveDocuments(ctx context.Context, tok record.Token, aside string, ids bson.A) (moved, kept int, err error) {
	err = n.Transact(ctx, "move from "+aside, func(ctx context.Context) (err error) {
		moved, kept, err = n.moveIn(ctx, tok, aside, ids)
		return err
	})
	switch {
	case err == nil || !refusesDocument(err):
		return moved, kept, err
	case len(ids) == 1:
		n.Log.Warn("a kind refuses a document of a collection under its name", zap.String("aside", aside), zap.Error(err))
		return 0, 1, nil
	}
	// The transaction was rolled back, so forget its counts.
	moved, kept = 0, 0
	for _, id := range ids {
		m, k, err := n.moveDocuments(ctx, tok, aside, bson.A{id})
		if moved, kept = moved+m, kept+k; err != nil {
			return moved, kept, err
		}
	}
	return moved, kept, nil
}

// moveIn moves the given documents that are still in the stray. Another process may be moving them
// too.
func (n *Fences) moveIn(ctx context.Context, tok record.Token, aside string, ids bson.A) (moved, kept int, err error) {
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
		// The kind has another document with this key. Keep both.
		case there && string(has) != string(doc):
			kept++
			continue
		case !there:
			inserts = append(inserts, doc)
		}
		// An equal document was copied already; only its delete is missing.
		deletes = append(deletes, doc.Lookup("_id"))
	}
	if len(inserts) > 0 {
		insert, err := conn.WithUUID(bson.D{{Key: "insert", Value: tok.Name}, {Key: "documents", Value: inserts}}, tok)
		if err != nil {
			return 0, 0, err
		}
		if err := n.runWith(ctx, insert); err != nil {
			return 0, 0, err
		}
	}
	if len(deletes) > 0 {
		err := n.runWith(ctx, bson.D{{Key: "delete", Value: aside}, {Key: "deletes", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: deletes}}}}}, {Key: "limit", Value: 0},
		}}}})
		if err != nil {
			return 0, 0, err
		}
	}
	return len(deletes), kept, nil
}

// runWith runs a command that contains documents of the application. A damaged one is an error.
func (n *Fences) runWith(ctx context.Context, cmd bson.D) error {
	raw, err := bson.Marshal(cmd)
	if err != nil {
		return err
	}
	_, err = n.Run(ctx, raw)
	return err
}

// documents reads documents by _id.
func (n *Fences) documents(ctx context.Context, tok record.Token, ids bson.A) (map[record.Key]bson.Raw, error) {
	// The stray's token has no UUID, so only the read of the kind is fenced.
	find, err := conn.WithUUID(bson.D{{Key: "find", Value: tok.Name}, {Key: "filter", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}}}, tok)
	if err != nil {
		return nil, err
	}
	cursor, err := n.DB.RunCommandCursor(ctx, find)
	if err != nil {
		return nil, conn.Concealed(err)
	}
	var docs []bson.Raw
	if err := conn.All(ctx, cursor, &docs); err != nil {
		return nil, conn.Concealed(err)
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

// refusesDocument reports whether the collection refuses a document for good.
func refusesDocument(err error) bool {
	var refused mongo.WriteException
	return errors.As(err, &refused) && len(refused.WriteErrors) > 0 && !conn.IsTransient(err)
}
