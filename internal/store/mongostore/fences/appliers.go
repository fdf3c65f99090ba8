package fences

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/wire"
	"dbcontroller.dev/record"
)

// The end of appliers. Under a validator or a write block a kind keeps its name and its UUID. So the
// token of an applier of the way back stays valid after the rollback. An applier that sleeps over
// the rollback would write its old image over a write of the application, which leaves no guard.
// Therefore such tokens carry the mark of the fence (record.Token.Mark), and a seal ends the former
// marks: it writes documents into the side collection that Apply reads with its guards.
//
//   - A transaction may read at a snapshot from before that document, and not see it. The seal
//     therefore changes the options of the side collection afterwards, to the same values. Each
//     write of an Apply has an entry there. A transaction with an older snapshot fails at its entry
//     with a write conflict. One that has touched the collection makes the change wait. It commits
//     before the seal is confirmed, and thus before a client may write, or it is killed.
//   - The new fence stands before. If the driver dies in between, the record still has the seal as
//     announced. Nobody may apply, and the next driver repeats all steps. The same holds for a lost
//     answer.
//   - The document is only inserted, one for each mark, and no mark is used twice. So a late command
//     of another driver undoes nothing, and a repetition changes nothing.
//   - After an abort the direction goes on with the mark of the seal. The guards stay as they are.
//
// Managed kinds have no such tokens: class validator serves them only on servers without UUIDs.

// endFormer ends the appliers of the fence that a new one has replaced, and of all earlier ones. The
// earlier seal may have died before it ended its predecessor.
func (n *validators) endFormer(ctx context.Context, f record.Fence) error {
	if f.Ends == "" || !f.Token.Fixed {
		return nil
	}
	return n.UntilDone(ctx, n.sideOf(f), func(ctx context.Context) error {
		return n.endEarlier(ctx, f, f.Ends)
	})
}

// endBefore ends the appliers of a fence that is about to be removed, and of all earlier ones of the
// kind, if the caller asks for it. A seal may have died before it ended the former fence, and then a
// recovered record knows only the new one.
func (n *validators) endBefore(ctx context.Context, f record.Fence) error {
	if f.Ends == "" || !f.Token.Fixed {
		return nil
	}
	return n.UntilDone(ctx, n.sideOf(f), func(ctx context.Context) error {
		return n.endEarlier(ctx, f, f.To, f.Ends)
	})
}

// endEarlier ends the appliers with the given marks, and those of all fences before f.To.
func (n *validators) endEarlier(ctx context.Context, f record.Fence, marks ...string) error {
	earlier, err := n.earlierFences(ctx, f)
	if err != nil {
		return err
	}
	marks = append(marks, earlier...)
	slices.Sort(marks)
	return n.endAppliers(ctx, f.Token.Kind, slices.Compact(marks))
}

// sideOf returns the side collection of a kind in the form that UntilDone takes.
func (n *validators) sideOf(f record.Fence) string {
	return n.Name + "." + conn.GuardsName(f.Token.Kind)
}

// earlierFences returns the fences of a kind before f.To that are noted as set or as ended. A fence
// is noted as ended before another one replaces it. A late driver finds no later fence here, because
// the numbers only grow.
func (n *validators) earlierFences(ctx context.Context, f record.Fence) (marks []string, err error) {
	_, seq, ok := record.KindOfPhysical(f.To)
	if !ok {
		return nil, nil
	}
	all, err := n.noted(ctx, f.Token.Kind)
	if err != nil {
		return nil, err
	}
	for _, mark := range all {
		if _, n, ok := record.KindOfPhysical(mark); ok && n < seq {
			marks = append(marks, mark)
		}
	}
	return marks, nil
}

// Marked returns the marks of all fences that the database knows of a kind: those that are noted as
// set or as ended, and those whose appliers have ended.
func (n *validators) Marked(ctx context.Context, kind string) (marks []string, err error) {
	if marks, err = n.noted(ctx, kind); err != nil {
		return nil, fmt.Errorf("read marks of fences of %s: %w", kind, err)
	}
	// Strings sort before documents.
	ended := bson.D{{Key: "$gte", Value: wire.EndedID("")}, {Key: "$lt", Value: bson.D{{Key: wire.EndedField, Value: bson.D{}}}}}
	cursor, err := n.DB.Collection(conn.GuardsName(kind)).Find(ctx, bson.D{{Key: "_id", Value: ended}}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("read ends of appliers of %s: %w", kind, err)
	}
	var docs []struct {
		ID bson.D `bson:"_id"`
	}
	if err := conn.All(ctx, cursor, &docs); err != nil {
		return nil, fmt.Errorf("read ends of appliers of %s: %w", kind, err)
	}
	for _, d := range docs {
		if mark, is := d.ID[0].Value.(string); is {
			marks = append(marks, mark)
		}
	}
	return marks, nil
}

// noted returns the fences of a kind that are noted as set or as ended.
func (n *validators) noted(ctx context.Context, kind string) (marks []string, err error) {
	notes := n.DB.Collection(conn.MarksCollection, options.Collection().SetReadConcern(readconcern.Majority()))
	var ids []string
	pattern := "^(" + regexp.QuoteMeta(conn.UnfencedNotes) + ")?" + regexp.QuoteMeta(kind) + "\\.n[0-9]+$"
	if err := notes.Distinct(ctx, "_id", bson.D{{Key: "_id", Value: bson.Regex{Pattern: pattern}}}).Decode(&ids); err != nil {
		return nil, err
	}
	for _, id := range ids {
		marks = append(marks, strings.TrimPrefix(id, conn.UnfencedNotes))
	}
	return marks, nil
}

// endAppliers ends the appliers with the given marks.
func (n *validators) endAppliers(ctx context.Context, kind string, marks []string) error {
	if err := n.EnsureSide(ctx, kind); err != nil {
		return err
	}
	side := conn.GuardsName(kind)
	updates := make(bson.A, len(marks))
	for i, mark := range marks {
		updates[i] = bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: wire.EndedID(mark)}}}}},
			{Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "ended", Value: true}}}}},
			{Key: "upsert", Value: true},
		}
	}
	// With a majority, or a failover could let the appliers in again. A repetition that changes
	// nothing also waits for it.
	err := n.DB.RunCommand(ctx, bson.D{
		{Key: "update", Value: side},
		{Key: "updates", Value: updates},
		{Key: "writeConcern", Value: conn.MajorityWithin(conn.ConcernWait)},
	}).Err()
	if err != nil {
		return err
	}
	// A side collection has no validation, so this changes none.
	return n.SetValidator(ctx, record.Token{Name: side}, Restoration{})
}
