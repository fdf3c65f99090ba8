package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/record"
)

// The view fence of fixed-name kinds. One applyOps renames the collection and leaves a
// view on it under the old name: the application's writes fail with 166 and its reads
// go on to see the data, which no longer changes. One applyOps removes the view
// and renames back. It holds the global lock throughout, so no insert falls into the
// gap and creates a collection of its own, unless the primary dies there: see fencestray.go.
//
// Views are removed by deleting their definition from system.views, never by drop: a
// drop that comes second, after the rename back, would drop the application's data.
//
// A caller may be stopped between its check and the command, and a command may arrive
// late. So that it then does nothing, each applyOps begins with an update, the one
// operation whose collection must exist or the whole command fails:
//
//   - Fence: the gate, a collection of its own that Fence makes before it checks that it
//     was not removed, and that Unfence drops before it looks. A late fence of an attempt
//     that was removed finds no gate.
//   - Unfence: the collection under its hidden name, which is never used twice. A late unfence
//     does not take away the view of a later fence.

// viewComment marks a view as one that a fence left.
func viewPipeline(mark string) bson.A {
	return bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "$comment", Value: fencePrefix + mark}}}}}
}

func (n *Namespace) fenceView(ctx context.Context, f record.Fence) error {
	uuid, err := collectionUUID(f.Token.ID)
	if err != nil {
		return err
	}
	look := func(ctx context.Context) (placement, error) { return n.viewPlacement(ctx, f, uuid) }
	tried := false
	return n.untilDone(ctx, n.name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.refuseUnfenced(ctx, f); err != nil {
			return err
		}
		at, err := look(ctx)
		if err != nil {
			return err
		}
		if at.overView {
			return permanent(fmt.Errorf("the name %q is taken by a view; rename or drop that one", f.To))
		}
		if !at.moved {
			if err := n.openGate(ctx, f); err != nil {
				return err
			}
			if err := n.noBuilds(ctx, f.Token.Name); err != nil {
				return err
			}
			through := n.passes.ask
			if tried {
				through = n.throughGate // what others fail at is not its own
			}
			tried = true
			if _, err := through(ctx, f); err != nil {
				return err
			}
		}
		if err := n.confirmRename(ctx, f, uuid, look); err != nil {
			return err
		}
		if err := n.dropStanding(ctx, f.To); err != nil {
			n.log.Warn("cannot drop the gate of a fence", zap.String("collection", gateOf(f.To)), zap.Error(err))
		}
		return nil
	})
}

// viewPlacement is placement, and looks at the old name after the rename. The view is
// made up for if a primary died between the two operations of its applyOps, which
// replicate apart.
func (n *Namespace) viewPlacement(ctx context.Context, f record.Fence, uuid bson.Binary) (placement, error) {
	at, err := n.placement(ctx, f, uuid)
	if err != nil || !at.moved || at.old != nil && at.old.Type == "view" && at.old.fenceMark() == f.To {
		return at, err
	}
	if at.old == nil {
		if err := n.applyOps(ctx, bson.A{n.viewOp(f.Token.Name, f.To, f.To)}); err != nil {
			return at, err
		}
		return at, errors.New("the view was missing and is made again")
	}
	// A list made while somebody removed the fence can show both; a second one cannot.
	if err := n.mark(ctx, f); err != nil {
		return at, err
	}
	now, err := n.placement(ctx, f, uuid)
	if err != nil {
		return at, err
	}
	if !now.moved || now.old == nil || now.old.id() != at.old.id() {
		return at, errors.New("the names changed while they were read")
	}
	// Nothing is repaired here: the record may say that the fence is in force, and a repair
	// under it would hide that something was written past it.
	return at, permanent(fmt.Errorf("the name %q is taken by another %s: %w", f.Token.Name, now.old.Type, record.ErrTaken))
}

func (n *Namespace) unfenceView(ctx context.Context, f record.Fence) error {
	uuid, err := collectionUUID(f.Token.ID)
	if err != nil {
		return err
	}
	return n.untilDone(ctx, n.name+"."+f.Token.Name, func(ctx context.Context) error {
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
				// The application replaced its collection before the fence was set, and with the
				// gate closed it cannot be set any longer.
				return nil
			}
		}
		if err != nil {
			return err
		}
		if !at.moved {
			return n.settleStrays(ctx, f.Token, f.Token.Name, f.To)
		}
		if err := n.stopBuilds(ctx, f.To); err != nil {
			return err
		}
		if at.old != nil && at.old.Type != "view" {
			err = n.overStray(ctx, f.Token, f.To, at.old)
		} else { // also where there is none, and where somebody has put another in its place
			err = n.unview(ctx, f.Token.Name, f.To, f.Token.Name)
		}
		if err != nil {
			return err
		}
		if at, err = n.placement(ctx, f, uuid); err != nil {
			return err
		}
		if at.moved {
			return errors.New("the collection did not get its name back")
		}
		return n.settleStrays(ctx, f.Token, f.Token.Name, f.To)
	})
}

// viewStands reports whether the view of a fence, this one or another, is under the kind's own name.
func (n *Namespace) viewStands(ctx context.Context, f record.Fence) (bool, error) {
	own, err := n.collectionNamed(ctx, f.Token.Name)
	return own != nil && own.Type == "view" && own.fenceMark() != "", err
}

// renameOverView gives a hidden collection a name that an earlier fence's view bears.
func (n *Namespace) renameOverView(ctx context.Context, f record.Fence) error {
	return n.unview(ctx, f.To, f.Token.Name, f.To)
}

// unview removes a view and renames a collection in one step. Without the collection it
// does nothing and fails. The caller looks what became of it.
func (n *Namespace) unview(ctx context.Context, view, from, to string) error {
	if err := n.noBuilds(ctx, from); err != nil {
		return err
	}
	err := n.applyOps(ctx, bson.A{
		n.existsOp(from, bson.NewObjectID(), bson.D{}),
		n.unviewOp(view),
		n.renameOp(from, to),
	})
	if hasCode(err, codeUnknownError) {
		return nil // the update of existsOp found no document; the rest was tried
	}
	return err
}

func (n *Namespace) renameOp(from, to string) bson.D {
	return n.commandOp(bson.D{
		{Key: "renameCollection", Value: n.name + "." + from},
		{Key: "to", Value: n.name + "." + to},
		{Key: "dropTarget", Value: false},
	})
}

func (n *Namespace) unviewOp(view string) bson.D {
	return bson.D{
		{Key: "op", Value: "d"},
		{Key: "ns", Value: n.name + ".system.views"},
		{Key: "o", Value: bson.D{{Key: "_id", Value: n.name + "." + view}}},
	}
}

// viewOp leaves the view of the fence with a mark on a collection.
func (n *Namespace) viewOp(view, on, mark string) bson.D {
	return n.commandOp(bson.D{
		{Key: "create", Value: view},
		{Key: "viewOn", Value: on},
		{Key: "pipeline", Value: viewPipeline(mark)},
	})
}

// renameUnderView gives a hidden collection another hidden name, and in the same step has the
// view that a fence left under its own name show it there: readers that do not follow would
// find nothing from then on. done is false where no such view is on it.
//
// A command that comes late finds no collection of the old name, which is never used twice.
func (n *Namespace) renameUnderView(ctx context.Context, f record.Fence) (done bool, err error) {
	if _, _, hidden := record.KindOfPhysical(f.Token.Name); !hidden || !f.Token.Fixed {
		return false, nil
	}
	if _, _, hidden := record.KindOfPhysical(f.To); !hidden {
		return false, nil
	}
	own, err := n.collectionNamed(ctx, f.Token.Kind)
	if err != nil || own == nil || own.Type != "view" || own.fenceMark() == "" || own.viewOn() != f.Token.Name {
		return false, err
	}
	if err := n.noBuilds(ctx, f.Token.Name); err != nil {
		return false, err
	}
	move := viewMove{f.Token.Name, f.To, own.Name, own.fenceMark()}
	if _, err = n.moves.ask(ctx, move); errors.Is(err, errTogether) {
		_, err = n.moveUnderViews(ctx, []viewMove{move}) // what others fail at is not its own
	}
	if hasCode(err, codeUnauthorized, codeCommandNotFound) {
		return false, nil // it could once; a switch does not fail for readers that do not follow
	}
	return true, err
}

// viewMove is a rename of a collection under the view of a fence.
type viewMove struct{ from, to, view, mark string }

// moveUnderViews renames, and moves the views along. What it fails at each one finds out by
// looking.
func (n *Namespace) moveUnderViews(ctx context.Context, moves []viewMove) (struct{}, error) {
	ops := make(bson.A, 0, 4*len(moves))
	for _, m := range moves {
		ops = append(ops, n.existsOp(m.from, bson.NewObjectID(), bson.D{}), n.renameOp(m.from, m.to),
			n.unviewOp(m.view), n.viewOp(m.view, m.to, m.mark))
	}
	err := n.applyOps(ctx, ops)
	if len(moves) > 1 && !heldUp(err) && err != nil && !hasCode(err, codeUnknownError) {
		err = fmt.Errorf("%w: %s", errTogether, err)
	}
	if hasCode(err, codeUnknownError) {
		err = nil // the update of existsOp found no document; the rest was tried
	}
	return struct{}{}, err
}

// errWholeServer marks a command that waited in vain for the lock of the whole server.
var errWholeServer = errors.New("open transactions hold up the whole server's lock")

func (n *Namespace) applyOps(ctx context.Context, ops bson.A) error {
	err := n.change(ctx, n.admin(), bson.D{{Key: "applyOps", Value: ops}})
	if heldUp(err) {
		return fmt.Errorf("%w: %w", errWholeServer, err)
	}
	return err
}

// probeLimit is how long a probe waits for open transactions. A server ends those that
// are older than a minute.
const probeLimit = 70 * time.Second

// probeView tries fence and unfence on a scratch collection. It returns the reason why a
// view fence cannot be had here, or an error if that was not to be found out. Unlike a
// fence it kills nobody else's transactions, but waits for their end.
func (n *Namespace) probeView(ctx context.Context) (*record.UnsupportedError, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	for {
		refused, err := n.probed.ask(ctx, n.tryView)
		if err == nil || !errors.Is(err, errWholeServer) {
			return refused, err
		}
		if waitErr := n.awaitTransactions(ctx); waitErr != nil {
			return nil, fmt.Errorf("%w; end them, db.currentOp() shows them, and try again: %w", err, waitErr)
		}
	}
}

// awaitTransactions waits until no transaction is open that would hold up a command for
// as long as it waits. Trying instead would stall the server each time.
func (n *Namespace) awaitTransactions(ctx context.Context) error {
	const every = 250 * time.Millisecond
	warned := false
	for {
		if _, err := n.killAbandoned(ctx); err != nil {
			n.log.Debug("cannot end abandoned transactions", zap.Error(err))
		}
		open, err := n.openTransactions(ctx)
		older := slices.DeleteFunc(open, func(txn openTransaction) bool { return txn.openMicros < lockWait.Microseconds() })
		if len(older) > 0 && !warned {
			warned = true
			n.log.Warn("waiting for the end of open transactions", zap.Int("transactions", len(older)), zap.String("client", older[0].client))
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		if err != nil || len(older) == 0 { // who cannot see them can only try
			return nil
		}
	}
}

func (n *Namespace) tryView(ctx context.Context) (*record.UnsupportedError, error) {
	refused := &record.UnsupportedError{What: "fence class view in " + n.name}
	mongos, err := n.isMongos(ctx)
	if err != nil {
		return nil, err
	}
	if mongos {
		refused.Reason = "an atomic rename and view is not possible through mongos; use validator"
		return refused, nil
	}
	c, done, err := n.scratch(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	moved := c.Name + ".n1"
	ops := bson.A{n.renameOp(c.Name, moved), n.viewOp(c.Name, moved, moved)}
	if err := doneHere(n.applyOps(ctx, ops)); err != nil {
		return n.refuseView(refused, err)
	}
	at, err := n.collectionNamed(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	if at == nil || at.fenceMark() != moved {
		refused.Reason = "the server did not leave a view under the old name"
		return refused, nil
	}
	if err := doneHere(n.unview(ctx, c.Name, moved, c.Name)); err != nil {
		return n.refuseView(refused, err)
	}
	if at, err = n.collectionNamed(ctx, c.Name); err != nil {
		return nil, err
	}
	if at == nil || !at.is(c.Info.UUID) {
		refused.Reason = "the server did not give the name back"
		return refused, nil
	}
	return nil, nil
}

func (n *Namespace) refuseView(refused *record.UnsupportedError, err error) (*record.UnsupportedError, error) {
	if worthRepeating(err) {
		return nil, err
	}
	refused.Reason = "an atomic rename and view needs applyOps, a role with anyAction on anyResource: " + err.Error()
	return refused, nil
}
