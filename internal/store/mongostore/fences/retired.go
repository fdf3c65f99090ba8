package fences

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// The name of an application's collection after its version was completed. A forgotten client may
// still use the name. It would find nothing, because a missing collection is empty, and its insert
// would create the collection again. So a view stays under the name, with a pipeline that always
// fails. Reads get 241 and writes 166, and both errors give the reason.
//
// If a later version takes the name, opening it replaces this view like the view of a fence.

// retiredPipeline fails when the server prepares it, because the text is not a number. The error
// quotes the text.
func retiredPipeline(f record.Fence, said string) bson.A {
	return bson.A{bson.D{{Key: "$match", Value: bson.D{
		{Key: "$comment", Value: conn.FencePrefix + conn.RetiredMark + f.To},
		{Key: "$expr", Value: bson.D{{Key: "$toInt", Value: said}}},
	}}}}
}

// CloseName gives clients that still use a kind's own name an error with the text said. f.To is the
// name that the collection has from now on, or had. The fence f.Ends can no longer be set or
// repaired afterwards. CloseName may be repeated. It does nothing while the collection itself has
// the name.
//
// CloseName sets aside and returns collections that others created under the name, as Uphold does.
// A collection whose UUID is in known belongs to another kind and is left alone.
func (n *Fences) CloseName(ctx context.Context, f record.Fence, said string, known []string) (found []record.Breach, err error) {
	own := f.Token.Kind
	// An open transaction's writes under the name belong to no version. If its client left it open,
	// it would block 'complete' until the server ends it after a minute.
	err = n.UntilDoneBy(ctx, n.Name+"."+own, n.KillExactHolders, func(ctx context.Context) error {
		if f.Ends != "" {
			if err := n.closeFence(ctx, own, f.Ends); err != nil {
				return err
			}
		}
		there, stood, err := n.standing(ctx, f)
		if err != nil {
			return err
		}
		found = there
		at := stood.under
		for i := range found {
			if f.Class != record.FenceView {
				found[i].What = fmt.Sprintf("a collection %s was created when its version was completed, and received %d documents that no version has; they are kept in %s",
					own, found[i].Count, found[i].Aside)
			}
		}
		view := bson.D{{Key: "viewOn", Value: f.To}, {Key: "pipeline", Value: retiredPipeline(f, said)}}
		switch {
		case at == nil:
			// A deposed primary may not list the existing collection. Then this fails, and the next
			// attempt sees another list.
			return n.Change(ctx, n.DB, append(bson.D{{Key: "create", Value: own}}, view...))
		case at.ID() != "" && at.ID() == f.Token.ID:
			return nil
		case at.Retired() && at.FenceMark() == conn.RetiredMark+f.To:
			f.Class = record.FenceUUID // this mark is nobody's marker
			return n.Mark(ctx, f)
		case at.Type == "view" && at.FenceMark() != "":
			return n.Change(ctx, n.DB, append(bson.D{{Key: "collMod", Value: own}}, view...))
		case at.Type != "collection" || slices.Contains(known, at.ID()):
			n.Log.Warn("somebody else uses the name of a retired version's kind; it stays",
				zap.String("collection", own), zap.String("is a", at.Type))
			return nil
		}
		// The application created a collection; it is never dropped, only renamed.
		if err := n.Rename(ctx, own, conn.AsidePrefix+own+"."+at.ShortID()); err != nil {
			return err
		}
		return errors.New("a collection was created under the name, and is renamed")
	})
	if err != nil {
		return found, fmt.Errorf("close the name %s.%s: %w", n.Name, own, conn.WithPrivilege(err))
	}
	return found, nil
}
