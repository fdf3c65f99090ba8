package fences

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// The view fence of fixed-name kinds. One applyOps renames the collection and creates a view on it
// under the old name. The application's writes then fail with 166. Its reads still see the data,
// which no longer changes. Another applyOps removes the view and renames the collection back.
//
// An applyOps holds the global lock over all its operations, so no insert comes between them. But it
// is not atomic: the server keeps the operations that were done when it ends the command halfway. It
// does so at the time limit (maxTimeMS), for killOp, and when the primary steps down or dies. The
// kind's name is then free, and an insert that waits for the lock creates a collection there: see
// fencestray.go. The time limit also counts the wait for the lock, so ChangeWhole keeps it away
// from the operations.
//
// Views are removed by deleting their definition from system.views, never by a drop. A second drop,
// after the rename back, would drop the application's data.
//
// A caller may pause between its check and its command, and a command may arrive late. Such a
// command must do nothing. Each applyOps therefore begins with an update, because it is the one
// operation that makes the whole command fail if its collection is missing:
//
//   - Fence updates the gate, a collection of its own. Fence creates the gate before it checks that
//     the fence was not removed, and Unfence drops the gate before it looks. A late command of a
//     removed fence finds no gate.
//   - Unfence updates the collection under its hidden name, which is never used twice. A late
//     command does not remove the view of a later fence.

// viewPipeline marks a view as one that a fence created.
func viewPipeline(mark string) bson.A {
	return bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "$comment", Value: conn.FencePrefix + mark}}}}}
}

func (n *Fences) fenceView(ctx context.Context, f record.Fence) error {
	uuid, err := conn.CollectionUUID(f.Token.ID)
	if err != nil {
		return err
	}
	look := func(ctx context.Context) (placement, error) { return n.viewPlacement(ctx, f, uuid) }
	tried := false
	return n.UntilDone(ctx, n.Name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.RefuseUnfenced(ctx, f); err != nil {
			return err
		}
		at, err := look(ctx)
		if err != nil {
			return err
		}
		if at.overView {
			return conn.Permanent(fmt.Errorf("the name %q is taken by a view; rename or drop it", f.To))
		}
		if !at.moved {
			if f.Standing {
				return conn.Permanent(record.ErrLapsed)
			}
			if err := n.openGate(ctx, f); err != nil {
				return err
			}
			// An applyOps during an index build aborts the server.
			if err := n.noBuilds(ctx, f.Token.Name); err != nil {
				return err
			}
			through := n.passes.Ask
			if tried {
				through = n.throughGate // a failure of other fences in the command is not this one's
			}
			tried = true
			if _, err := through(ctx, f); err != nil {
				return err
			}
		}
		// The rename may have been lost in a failover, so confirm it even if it was found done.
		if err := n.confirmRename(ctx, f, uuid, look); err != nil {
			return err
		}
		if err := n.dropStanding(ctx, f.To); err != nil {
			n.Log.Warn("cannot drop the gate of a fence", zap.String("collection", GateOf(f.To)), zap.Error(err))
		}
		return nil
	})
}

// viewPlacement is placement, but also checks the old name after the rename. It creates the view if
// it is missing: the operations of an applyOps replicate separately, and a primary can die between
// them.
func (n *Fences) viewPlacement(ctx context.Context, f record.Fence, uuid bson.Binary) (placement, error) {
	at, err := n.placement(ctx, f, uuid)
	if err != nil || !at.moved || at.old != nil && at.old.Type == "view" && at.old.FenceMark() == f.To {
		return at, err
	}
	if at.old == nil {
		if err := n.applyOps(ctx, bson.A{n.viewOp(f.Token.Name, f.To, f.To)}); err != nil {
			return at, err
		}
		return at, errors.New("the view was missing and is created again")
	}
	// If the fence was removed during the listing, the list can show both names. A second list
	// cannot.
	if err := n.Mark(ctx, f); err != nil {
		return at, err
	}
	now, err := n.placement(ctx, f, uuid)
	if err != nil {
		return at, err
	}
	if !now.moved || now.old == nil || now.old.ID() != at.old.ID() {
		return at, errors.New("the names changed during the read")
	}
	// Repair nothing here. The deployment may say that the fence is in force, and a repair would
	// hide writes that went past it.
	return at, conn.Permanent(fmt.Errorf("the name %q is taken by another %s: %w", f.Token.Name, now.old.Type, record.ErrTaken))
}

func (n *Fences) unfenceView(ctx context.Context, f record.Fence) error {
	uuid, err := conn.CollectionUUID(f.Token.ID)
	if err != nil {
		return err
	}
	return n.UntilDone(ctx, n.Name+"."+f.Token.Name, func(ctx context.Context) error {
		// Close the fence first, or a late command could set it again after the rename back.
		if err := n.closeFence(ctx, f.Token.Name, f.To); err != nil {
			return err
		}
		at, err := n.placement(ctx, f, uuid)
		if errors.Is(err, record.ErrBroken) {
			stands, lookErr := n.viewStands(ctx, f)
			if lookErr != nil {
				return lookErr
			}
			if !stands {
				// The application replaced its collection before the fence was set. With the gate
				// closed, the fence can no longer be set.
				return nil
			}
		}
		if err != nil {
			return err
		}
		if !at.moved {
			// The name is back already, perhaps by an attempt that died before it moved the strays.
			return n.settleStrays(ctx, f.Token, f.Token.Name, f.To)
		}
		// An index build during the applyOps would abort the server.
		if err := n.stopBuilds(ctx, f.To); err != nil {
			return err
		}
		if at.old != nil && at.old.Type != "view" {
			err = n.overStray(ctx, f.Token, f.To, at.old)
		} else { // also if nothing has the name, or another view does
			err = n.unview(ctx, f.Token.Name, f.To, f.Token.Name)
		}
		if err != nil {
			return err
		}
		// unview reports success even if it found no collection, so look.
		if at, err = n.placement(ctx, f, uuid); err != nil {
			return err
		}
		if at.moved {
			return errors.New("the collection did not get its name back")
		}
		return n.settleStrays(ctx, f.Token, f.Token.Name, f.To)
	})
}

// viewStands reports whether a fence's view, of this fence or another, has the kind's own name.
func (n *Fences) viewStands(ctx context.Context, f record.Fence) (bool, error) {
	own, err := n.CollectionNamed(ctx, f.Token.Name)
	return own != nil && own.Type == "view" && own.FenceMark() != "", err
}

// renameOverView gives a hidden collection a name that an earlier fence's view has.
func (n *Fences) renameOverView(ctx context.Context, f record.Fence) error {
	return n.unview(ctx, f.To, f.Token.Name, f.To)
}

// unview removes a view and renames a collection in one step. If the collection is missing, nothing
// changes. Callers find out what happened by looking at the names.
func (n *Fences) unview(ctx context.Context, view, from, to string) error {
	return n.unviewBy(ctx, n.applyWhole, view, from, to)
}

func (n *Fences) unviewBy(ctx context.Context, apply func(context.Context, bson.A) error, view, from, to string) error {
	if err := n.noBuilds(ctx, from); err != nil {
		return err
	}
	return n.unviewNow(ctx, apply, view, from, to)
}

// unviewNow is unviewBy right after a check for index builds.
func (n *Fences) unviewNow(ctx context.Context, apply func(context.Context, bson.A) error, view, from, to string) error {
	err := apply(ctx, bson.A{
		n.existsOp(from, bson.NewObjectID(), bson.D{}),
		n.unviewOp(view),
		n.renameOp(from, to),
	})
	if partly(err) {
		return nil // existsOp found no document; the other operations were tried
	}
	return err
}

func (n *Fences) renameOp(from, to string) bson.D {
	return n.commandOp(bson.D{
		{Key: "renameCollection", Value: n.Name + "." + from},
		{Key: "to", Value: n.Name + "." + to},
		{Key: "dropTarget", Value: false},
	})
}

func (n *Fences) unviewOp(view string) bson.D {
	return bson.D{
		{Key: "op", Value: "d"},
		{Key: "ns", Value: n.Name + ".system.views"},
		{Key: "o", Value: bson.D{{Key: "_id", Value: n.Name + "." + view}}},
	}
}

// repointOps point a fence's view at another collection. They remove the view and make it anew: change
// streams of the database fail for good at an update of its definition ("assertion value.h"). The
// server can end the command between the two. A note in the same command shows then that no client
// removed the view.
func (n *Fences) repointOps(view, on, mark string) bson.A {
	note := n.insertOp(conn.MarksCollection, bson.D{{Key: "_id", Value: conn.NoteMoves + view}, {Key: "mark", Value: mark}, {Key: "on", Value: on}})
	return bson.A{note, n.unviewOp(view), n.viewOp(view, on, mark), n.movedOp(view)}
}

// movedOp removes the note of repointOps, once the view is there.
func (n *Fences) movedOp(view string) bson.D {
	return bson.D{
		{Key: "op", Value: "d"},
		{Key: "ns", Value: n.Name + "." + conn.MarksCollection},
		{Key: "o", Value: bson.D{{Key: "_id", Value: conn.NoteMoves + view}}},
	}
}

// movedUnder returns the mark of a view that repointOps has removed and not made anew, or "". A
// majority may not have the note yet, as it may not have the change of the view.
func (n *Fences) movedUnder(ctx context.Context, view string) (mark string, err error) {
	var note struct{ Mark string }
	marks := n.DB.Collection(conn.MarksCollection, options.Collection().SetReadConcern(readconcern.Local()))
	err = conn.Decode(marks.FindOne(ctx, bson.D{{Key: "_id", Value: conn.NoteMoves + view}}), &note)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return "", nil
	}
	return note.Mark, err
}

// viewOp returns the operation that creates a fence's view with a mark.
func (n *Fences) viewOp(view, on, mark string) bson.D {
	return n.commandOp(bson.D{
		{Key: "create", Value: view},
		{Key: "viewOn", Value: on},
		{Key: "pipeline", Value: viewPipeline(mark)},
	})
}

// renameUnderView gives a hidden collection another hidden name. In the same step it points the
// fence's view at the new name, because readers that do not follow the deployment would otherwise
// find nothing. done is false if no such view shows the collection. own is what has the kind's own
// name.
//
// A late command finds no collection with the old name, which is never used twice.
func (n *Fences) renameUnderView(ctx context.Context, f record.Fence, own *conn.Collection, builds buildsLook) (done bool, err error) {
	if !betweenHidden(f) || own == nil || own.Type != "view" || own.FenceMark() == "" || own.ViewOn() != f.Token.Name {
		return false, nil
	}
	if !builds.none() {
		if err := n.noBuilds(ctx, f.Token.Name); err != nil {
			return false, err
		}
	}
	move := viewMove{f.Token.Name, f.To, own.Name, own.FenceMark()}
	if _, err = n.moves.Ask(ctx, move); errors.Is(err, errTogether) {
		_, err = n.moveUnderViews(ctx, []viewMove{move}) // not failed by the other moves
	}
	if conn.HasCode(err, conn.CodeUnauthorized, conn.CodeCommandNotFound) {
		return false, nil // the privilege is gone; a switch must not fail for such readers
	}
	return true, err
}

// viewMove is the rename of a collection that a fence's view shows.
type viewMove struct{ from, to, view, mark string }

func (n *Fences) moveOps(m viewMove) bson.A {
	return append(bson.A{n.existsOp(m.from, bson.NewObjectID(), bson.D{}), n.renameOp(m.from, m.to)}, n.repointOps(m.view, m.to, m.mark)...)
}

// moveUnderViews renames collections and points their views at the new names. Callers find out what
// happened by looking at the names.
func (n *Fences) moveUnderViews(ctx context.Context, moves []viewMove) (struct{}, error) {
	ops := make(bson.A, 0, 6*len(moves))
	for _, m := range moves {
		ops = append(ops, n.moveOps(m)...)
	}
	err := n.applyWhole(ctx, ops)
	if onlyLooked(err, len(ops), 6) {
		return struct{}{}, nil
	}
	if len(moves) > 1 && !conn.HeldUp(err) && err != nil {
		err = fmt.Errorf("%w: %s", errTogether, err)
	}
	return struct{}{}, err
}

// finishMove points the fence's view at the new name of a collection, if it still shows the former
// one or is gone: the server can end moveUnderViews after the rename.
func (n *Fences) finishMove(ctx context.Context, f record.Fence) error {
	_, _, was := record.KindOfPhysical(f.Token.Name)
	if _, _, is := record.KindOfPhysical(f.To); !was || !is || !f.Token.Fixed {
		return nil
	}
	own, err := n.CollectionNamed(ctx, f.Token.Kind)
	if err != nil {
		return err
	}
	ops := bson.A{n.existsOp(f.To, bson.NewObjectID(), bson.D{})}
	switch {
	case own == nil:
		mark, err := n.movedUnder(ctx, f.Token.Kind)
		if err != nil || mark == "" {
			return err
		}
		ops = append(ops, n.viewOp(f.Token.Kind, f.To, mark), n.movedOp(f.Token.Kind))
	case own.Type == "view" && own.FenceMark() != "" && own.ViewOn() == f.Token.Name:
		ops = append(ops, n.repointOps(own.Name, f.To, own.FenceMark())...)
	default:
		return nil
	}
	err = n.applyWhole(ctx, ops)
	if onlyLooked(err, len(ops), len(ops)) || conn.HasCode(err, conn.CodeUnauthorized, conn.CodeCommandNotFound) {
		return nil // the privilege is gone: as in renameUnderView
	}
	return err
}

// probeLimit bounds the wait of a probe for open transactions. The server ends transactions that
// are older than a minute.
const probeLimit = 70 * time.Second

// probeView tries a fence and its removal on a scratch collection. It returns the reason why view
// fences are not possible here, or an error if it could not find out. A fence kills transactions in
// its way; a probe waits for their end.
func (n *Fences) probeView(ctx context.Context) (*record.UnsupportedError, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	for {
		refused, err := n.probed.Ask(ctx, n.tryView)
		if err == nil || !errors.Is(err, conn.ErrWholeServer) && !partly(err) {
			return refused, err
		}
		if waitErr := n.awaitTransactions(ctx); waitErr != nil {
			return nil, fmt.Errorf("%w; end them (db.currentOp() shows them) and retry: %w", err, waitErr)
		}
	}
}

// awaitTransactions waits until no open transaction would hold up a command for its whole wait.
// Trying the command instead would stall the server each time.
func (n *Fences) awaitTransactions(ctx context.Context) error {
	const every = 250 * time.Millisecond
	warned := false
	for {
		// A process that has died cannot end its transaction itself.
		if _, err := n.KillAbandoned(ctx); err != nil {
			n.Log.Debug("cannot end abandoned transactions", zap.Error(err))
		}
		open, err := n.OpenTransactions(ctx)
		older := slices.DeleteFunc(open, func(txn conn.OpenTransaction) bool { return txn.OpenMicros < conn.LockWait.Microseconds() })
		if len(older) > 0 && !warned {
			warned = true
			n.Log.Warn("waiting for open transactions to end", zap.Int("transactions", len(older)), zap.String("client", older[0].Client))
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		if err != nil || len(older) == 0 { // without the privilege to see them, only a try helps
			return nil
		}
	}
}

func (n *Fences) tryView(ctx context.Context) (*record.UnsupportedError, error) {
	refused := &record.UnsupportedError{What: "fence class view in " + n.Name}
	mongos, err := n.IsMongos(ctx)
	if err != nil {
		return nil, err
	}
	if mongos {
		refused.Reason = "an atomic rename and view is not possible through mongos; use validator"
		return refused, nil
	}
	// A view fence of a real kind would disturb its application.
	c, done, err := n.Scratch(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	// Use the same commands as a fence, on a collection that nobody needs.
	moved := c.Name + ".n1"
	ops := bson.A{n.renameOp(c.Name, moved), n.viewOp(c.Name, moved, moved)}
	if err := doneHere(n.applyOps(ctx, ops)); err != nil {
		return n.refuseView(refused, err)
	}
	// Check the effect: success alone does not prove that the view exists.
	at, err := n.CollectionNamed(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	if at == nil || at.FenceMark() != moved {
		refused.Reason = "the server did not leave a view under the old name"
		return refused, nil
	}
	// Removing the fence needs other privileges than setting it.
	if err := doneHere(n.unviewBy(ctx, n.applyOps, c.Name, moved, c.Name)); err != nil {
		return n.refuseView(refused, err)
	}
	if at, err = n.CollectionNamed(ctx, c.Name); err != nil {
		return nil, err
	}
	if at == nil || !at.Is(c.Info.UUID) {
		refused.Reason = "the server did not give the name back"
		return refused, nil
	}
	return nil, nil
}

func (n *Fences) refuseView(refused *record.UnsupportedError, err error) (*record.UnsupportedError, error) {
	if conn.WorthRepeating(err) {
		return nil, err
	}
	refused.Reason = "an atomic rename and view needs applyOps, a role with anyAction on anyResource: " + err.Error()
	return refused, nil
}
