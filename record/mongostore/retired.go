package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// The name of an application's collection when its version was completed. Who was forgotten
// still uses it, and would find nothing: a missing collection, and a view on one, are empty, and
// an insert makes the collection anew. So a view stays under the name whose pipeline fails at
// whatever it is on: reads get 241, writes 166, and both say why.
//
// A later version that takes the name has the view replaced when it is opened, as it replaces
// the view of a fence.

// retiredMark begins the mark of such a view.
const retiredMark = "retired/"

// retiredPipeline fails when the server prepares it: no text is a number.
func retiredPipeline(f record.Fence, said string) bson.A {
	return bson.A{bson.D{{Key: "$match", Value: bson.D{
		{Key: "$comment", Value: fencePrefix + retiredMark + f.To},
		{Key: "$expr", Value: bson.D{{Key: "$toInt", Value: said}}},
	}}}}
}

// retired reports whether it is the view that is left of a version that was completed.
func (c collection) retired() bool {
	return c.Type == "view" && strings.HasPrefix(c.fenceMark(), retiredMark)
}

// CloseName has clients that still use a kind's own name get an error that says said. f.To is the
// name that the collection bears from now on, or bore; the fence that stood, f.Ends, can no longer be set or
// put back. It may be repeated. While the collection itself bears the name nothing is done.
//
// What somebody made under the name meanwhile is set aside and returned, as Uphold does; what is
// known is another kind's, and is left alone.
func (n *Namespace) CloseName(ctx context.Context, f record.Fence, said string, known []string) (found []record.Breach, err error) {
	own := f.Token.Kind
	// What an open transaction wrote under the name belongs to no version. One that its client left
	// open would hold up 'complete' until the server ends it, after a minute.
	err = n.untilDoneBy(ctx, n.name+"."+own, n.killExactHolders, func(ctx context.Context) error {
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
				found[i].What = fmt.Sprintf("a collection %s was made when its version was completed, and took %d documents that no version has; they are kept in %s",
					own, found[i].Count, found[i].Aside)
			}
		}
		view := bson.D{{Key: "viewOn", Value: f.To}, {Key: "pipeline", Value: retiredPipeline(f, said)}}
		switch {
		case at == nil:
			// A primary that was deposed may not list what is there: then this fails, and the next
			// look is at another one.
			return n.change(ctx, n.db, append(bson.D{{Key: "create", Value: own}}, view...))
		case at.id() != "" && at.id() == f.Token.ID:
			return nil
		case at.retired() && at.fenceMark() == retiredMark+f.To:
			f.Class = record.FenceUUID // a mark that nobody waits for
			return n.mark(ctx, f)
		case at.Type == "view" && at.fenceMark() != "":
			return n.change(ctx, n.db, append(bson.D{{Key: "collMod", Value: own}}, view...))
		case at.Type != "collection" || slices.Contains(known, at.id()):
			n.log.Warn("the name of a retired version's kind is used by somebody else and left alone",
				zap.String("collection", own), zap.String("is a", at.Type))
			return nil
		}
		if err := n.rename(ctx, own, asidePrefix+own+"."+at.id()[:12]); err != nil {
			return err
		}
		return errors.New("a collection was made under the name, and is moved away")
	})
	if err != nil {
		return found, fmt.Errorf("close the name %s.%s: %w", n.name, own, withPrivilege(err))
	}
	return found, nil
}
