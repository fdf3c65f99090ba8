package fences

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Uphold checks a fence and repairs it. It returns the breaches that it found. Collections whose
// UUID is in known are left alone. A fence that was removed is not an error.
func (n *Fences) Uphold(ctx context.Context, f record.Fence, known []string) ([]record.Breach, error) {
	var found []record.Breach
	var err error
	// A renamed managed kind cannot be written under its old name, so its fence needs no repair.
	switch f.Class {
	case record.FenceUUID, "":
		return nil, nil
	case record.FenceView:
		found, err = n.upholdView(ctx, f, known)
	case record.FenceValidator:
		found, err = n.upholdValidator(ctx, f)
	case record.FenceWriteBlock:
		found, err = n.upholdWriteBlock(ctx, f)
	default:
		err = unknownClass(f.Class)
	}
	if err != nil {
		return nil, fmt.Errorf("uphold fence of %s.%s: %w", n.Name, f.Token.Kind, conn.WithPrivilege(err))
	}
	return found, nil
}

// upholdView checks what has the application's name, and puts the view back. The collection itself
// has a hidden name, of this fence or a later one.
//
// The caller may have paused, so f may have been removed since. The collection may then be its
// application's again, or behind a later fence. Each repair therefore passes the gate of the fence.
// The gate cannot be created, or is gone, from before the moment in which the fence ends.
func (n *Fences) upholdView(ctx context.Context, f record.Fence, known []string) ([]record.Breach, error) {
	found, at, err := n.standing(ctx, f)
	if err == nil && at.stands(f, known) {
		n.forgetMove(ctx, f, at)
	}
	if err != nil || at.stands(f, known) {
		return found, err
	}
	// First without the gate: most checks find the fence intact, and a gate locks the server.
	if err := n.openGateNow(ctx, f); err != nil {
		return nil, unlessUnfenced(err)
	}
	// Drop the gate even if ctx has ended, or it would stay until the fence is removed.
	defer func() {
		if err := n.dropGate(context.WithoutCancel(ctx), f.To); err != nil {
			n.Log.Warn("cannot drop the gate of a fence", zap.String("collection", GateOf(f.To)), zap.Error(err))
		}
	}()
	// The fence may have ended or been repaired before the gate existed: look again.
	if found, at, err = n.standing(ctx, f); err != nil || at.stands(f, known) {
		return found, err
	}
	lifted, silent := at.lifted(f)
	if f.Look && silent {
		return append(found, lifted), nil
	}
	b, err := n.putBack(ctx, f, at)
	if err != nil {
		return nil, unlessUnfenced(errors.Join(err, n.putBackAgain(ctx, f, known)))
	}
	if b.What == "" {
		return found, nil
	}
	return append(found, b), nil
}

// gateLimit bounds the wait of one check for the gate of a fence that does not stand.
const gateLimit = 5 * time.Second

// openGateNow is openGate for a fence that does not stand. Writes pass it meanwhile, so transactions
// that hold up the lock of the whole server do not delay the repair. They are killed as for a fence.
func (n *Fences) openGateNow(ctx context.Context, f record.Fence) error {
	// Other fences wait for this check, and the lock may be held by something else than a transaction.
	ctx, cancel := context.WithTimeout(ctx, gateLimit)
	defer cancel()
	return n.UntilDone(ctx, n.Name+"."+f.Token.Kind, func(ctx context.Context) error {
		err := n.openGate(ctx, f)
		if err != nil && !conn.HeldUp(err) {
			return conn.Permanent(err) // the next check tries again
		}
		return err
	})
}

// putBackAgain repairs a fence once more after a repair that failed. The server can end a repair
// halfway, and the kind's name is free then. Inserts would pass the fence until the next check.
// Callers report the first error anyway, since the next check finds what was set aside.
func (n *Fences) putBackAgain(ctx context.Context, f record.Fence, known []string) (err error) {
	// An insert can take the name after the look, and the server then makes no view and reports success.
	// That happens once, since later inserts find its collection.
	for range 2 {
		_, at, lookErr := n.standing(ctx, f)
		if lookErr != nil || at.stands(f, known) {
			return lookErr
		}
		_, err = n.putBack(ctx, f, at)
	}
	return err
}

// stood is the state of a view fence.
type stood struct {
	under  *conn.Collection // has the application's name now; nil: nothing
	name   string           // current name of the kind's collection; empty: gone
	moving bool             // nothing has the name, because the server ended a rename under the view halfway
}

// standing returns the collections that were set aside for a fence, and the state of the fence.
func (n *Fences) standing(ctx context.Context, f record.Fence) (found []record.Breach, at stood, err error) {
	own := f.Token.Kind
	aside := conn.AsidePrefix + own + "."
	uuid, err := conn.CollectionUUID(f.Token.ID)
	if err != nil {
		return nil, at, err
	}
	// One list, so that the names and the UUID are from the same moment.
	all, err := n.List(ctx, bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "name", Value: own}},
		bson.D{{Key: "info.uuid", Value: uuid}},
		bson.D{{Key: "name", Value: bson.Regex{Pattern: `^` + regexp.QuoteMeta(aside)}}},
	}}})
	if err != nil {
		return nil, at, err
	}
	for _, c := range all {
		if c.Is(uuid) {
			at.name = c.Name
		}
		if c.Name == own {
			at.under = &c
		}
		if !strings.HasPrefix(c.Name, aside) {
			continue
		}
		// Report earlier breaches again until an operator has dealt with them.
		b, err := n.setAside(ctx, own, c.Name)
		if err != nil {
			return nil, at, err
		}
		found = append(found, b)
	}
	if at.under == nil {
		mark, err := n.movedUnder(ctx, own)
		if err != nil {
			return nil, at, err
		}
		at.moving = mark == f.To
	}
	return found, at, nil
}

// stands reports whether the application's name is in order: it is the fence's view on the
// collection, or the collection of another kind, which is left alone.
func (at stood) stands(f record.Fence, known []string) bool {
	switch c := at.under; {
	case c == nil, c.ID() == f.Token.ID:
		return false
	case c.Type == "view":
		return c.FenceMark() == f.To && (c.ViewOn() == at.name || at.name == "")
	default:
		return slices.Contains(known, c.ID())
	}
}

// forgetMove removes the note of repointOps if the view shows its new collection: the server can end
// that command between the view and the end of the note. A note that stays would explain a later
// removal of the view by a client.
func (n *Fences) forgetMove(ctx context.Context, f record.Fence, at stood) {
	if at.under.Type != "view" || f.Look || n.Quiet {
		return
	}
	view, on := at.under.Name, at.under.ViewOn()
	// A view shows a name once, so one look after the move is enough.
	if done, ok := n.settled.Load(view); ok && done == on {
		return
	}
	// A move that runs now goes to another name. Notes of older versions have none.
	_, err := n.DB.Collection(conn.MarksCollection).DeleteOne(ctx, bson.D{
		{Key: "_id", Value: conn.NoteMoves + view}, {Key: "mark", Value: f.To},
		{Key: "on", Value: bson.D{{Key: "$in", Value: bson.A{on, nil}}}},
	})
	if err != nil {
		n.Log.Debug("cannot remove the note of a finished move", zap.String("collection", n.Name+"."+view), zap.Error(err))
		return // the next check tries again
	}
	n.settled.Store(view, on)
}

// halfMoved reports whether the view has the fence's mark and shows another hidden name of the kind.
// moveUnderViews leaves that behind when the server ends its command halfway, for instance because
// its time was up. No client did it, and readers saw no other data, so it is no breach.
func (at stood) halfMoved(f record.Fence) bool {
	if at.under == nil || at.under.Type != "view" || at.under.FenceMark() != f.To {
		return false
	}
	kind, _, hidden := record.KindOfPhysical(at.under.ViewOn())
	return hidden && kind == f.Token.Kind
}

// lifted returns the breach of a fence that somebody lifted, if nothing shows it after the repair. A
// collection in the place of the view stays as evidence.
func (at stood) lifted(f record.Fence) (b record.Breach, silent bool) {
	own := f.Token.Kind
	switch {
	case at.under == nil && at.moving, at.halfMoved(f):
		return record.Breach{}, false // nobody lifted it
	case at.under == nil:
		return record.Breach{What: fmt.Sprintf("the view %s was removed; it is restored", own)}, true
	case at.under.Type == "view":
		return record.Breach{What: fmt.Sprintf("the view %s was changed, so that readers saw other data; it is restored", own)}, true
	case at.under.ID() == f.Token.ID:
		return record.Breach{What: fmt.Sprintf("the collection %s got its name back, and is fenced again; it has the writes of the meantime, but the other version does not", own)}, true
	}
	return record.Breach{}, false
}

// putBack restores a fence that does not stand. Each command passes the gate. It returns no breach
// if nobody lifted the fence.
//
// Some repairs free the kind's name between two operations, and in the others it is free or wrong
// already. So they are sent like the fence itself (applyWhole). Their time limit does not run out while
// they wait for their lock, and they kill the transactions that hold it up. Clients retry those
// transactions, but an insert that passes the fence is acknowledged and not in the served version.
func (n *Fences) putBack(ctx context.Context, f record.Fence, found stood) (record.Breach, error) {
	own, at := f.Token.Kind, found.under
	on := found.name
	// The collection is gone or has the application's name, so use the name that the fence gave it.
	if on == "" || on == own {
		on = f.To
	}
	gate := n.passOp(f)
	lifted, _ := found.lifted(f)
	switch {
	case at == nil:
		// A faster insert creates a collection, which the next check finds.
		return lifted, n.applyWhole(ctx, bson.A{gate, n.viewOp(own, on, f.To), n.movedOp(own)})
	case found.halfMoved(f):
		return lifted, n.applyWhole(ctx, append(bson.A{gate}, n.repointOps(own, on, f.To)...))
	case at.Type == "view":
		return lifted, n.applyWhole(ctx, bson.A{gate, n.unviewOp(own), n.viewOp(own, on, f.To)})
	case at.ID() == f.Token.ID:
		f.Token.Name = own
		return lifted, n.Fence(ctx, f)
	}
	// A foreign collection: move it aside and create the view in one step.
	if err := n.noBuilds(ctx, own); err != nil {
		return record.Breach{}, err
	}
	name := conn.AsidePrefix + own + "." + at.ShortID()
	// The insert may have come in the middle of a move. A note of it that stays would explain a later
	// removal of the view by a client.
	if err := n.applyWhole(ctx, bson.A{gate, n.renameOp(own, name), n.viewOp(own, on, f.To), n.movedOp(own)}); err != nil {
		return record.Breach{}, err
	}
	// Wait for a majority before reporting the repair.
	if err := n.Mark(ctx, f); err != nil {
		return record.Breach{}, err
	}
	return n.setAside(ctx, own, name)
}

// setAside describes a collection that was set aside.
func (n *Fences) setAside(ctx context.Context, own, name string) (record.Breach, error) {
	count, err := n.DB.Collection(name).CountDocuments(ctx, bson.D{})
	if err != nil {
		return record.Breach{}, fmt.Errorf("count %s: %w", name, err)
	}
	return record.Breach{
		What: fmt.Sprintf("the view %s was removed and a collection created in its place, which received %d documents that the other version lacks; they are kept in %s",
			own, count, name),
		Aside: name, Count: count,
	}, nil
}

func (n *Fences) upholdValidator(ctx context.Context, f record.Fence) ([]record.Breach, error) {
	if f.To == "" {
		return nil, n.liftEnded(ctx, f.Token)
	}
	c, err := n.fencedCollection(ctx, f.Token)
	if err != nil {
		return nil, err
	}
	if c.FenceMark() == f.To {
		return nil, nil
	}
	// A process that ends a fence notes that first. Without the note, nobody may lift it.
	err = n.RefuseUnfenced(ctx, f)
	if err == nil && !f.Look {
		err = n.fenceValidator(ctx, f)
	}
	if err != nil {
		return nil, unlessUnfenced(err)
	}
	return []record.Breach{{What: fmt.Sprintf("the validator of %s was removed; it is restored; the collection has the writes of the meantime, but the other version does not", f.Token.Name)}}, nil
}

// upholdWriteBlock restores the write block. The server cannot check whether the fence has ended,
// so upholdWriteBlock checks before and after, and lifts a block that came too late.
func (n *Fences) upholdWriteBlock(ctx context.Context, f record.Fence) ([]record.Breach, error) {
	// The server does not show which fence set a block. An open kind's cluster may have the block
	// of an administrator.
	if f.To == "" {
		return nil, nil
	}
	mode, err := n.writeBlockMode(ctx)
	if err != nil || mode == blockOn {
		return nil, err
	}
	// Check before, so that a removed fence blocks nothing even for a moment.
	if err := n.RefuseUnfenced(ctx, f); err != nil {
		return nil, unlessUnfenced(err)
	}
	found := []record.Breach{{What: "the write block of the cluster was removed; it is restored; the other version lacks the writes of the meantime"}}
	if f.Look {
		return found, nil
	}
	if err := n.setWriteBlock(ctx, true); err != nil {
		return nil, err
	}
	// Check after, because the fence may have ended in between.
	if err := n.RefuseUnfenced(ctx, f); err != nil {
		return nil, errors.Join(unlessUnfenced(err), n.liftLateBlock(ctx))
	}
	if mode, err = n.writeBlockMode(ctx); err == nil && mode != blockOn {
		err = errors.New("the write block was missing when it was checked again")
	}
	return found, err
}

// unlessUnfenced returns nil for the error of a removed fence.
func unlessUnfenced(err error) error {
	if errors.Is(err, conn.ErrUnfenced) {
		return nil
	}
	return err
}
