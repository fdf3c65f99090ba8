package fences

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// The gate of a view fence. It is a collection that stops a late command from having an effect.

// GateOf returns the name of the collection that must exist to set a view fence.
func GateOf(to string) string { return conn.GatePrefix + to }

// gateID is the _id of the one document in a gate.
const gateID = "open"

// atOnce bounds the fences whose gates one command creates, passes or drops. The command holds the
// lock of the whole server for some milliseconds.
const atOnce = 25

// readyAtOnce bounds the gates that one command creates ahead of time. A gate is a collection,
// which takes the server two milliseconds. Nobody waits for these gates, so small steps disturb
// others less.
const readyAtOnce = 5

// Ready creates the gates of view fences ahead of the switch. Creating hundreds of collections
// takes longer than everything else that happens while writes are held. Ready may be repeated; it
// fails for a fence that was removed.
func (n *Fences) Ready(ctx context.Context, fs []record.Fence) error {
	for some := range slices.Chunk(gated(fs), readyAtOnce) {
		err := n.UntilDone(ctx, "", func(ctx context.Context) error {
			_, err := n.makeGates(ctx, some)
			return err
		})
		if err != nil {
			return fmt.Errorf("make ready for fences in %s: %w", n.Name, err)
		}
	}
	// Check after creating, as openGate does: a fence that was removed before finds its gate
	// dropped.
	var g errgroup.Group
	for _, f := range gated(fs) {
		g.Go(func() error {
			if err := n.unlessEnded(ctx, f); err != nil {
				return fmt.Errorf("prepare the fence %s in %s: %w", f.To, n.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Unready drops the gates that Ready created. It may be repeated.
func (n *Fences) Unready(ctx context.Context, fs []record.Fence) error {
	var gates []string
	to := map[string]string{}
	for _, f := range gated(fs) {
		gates = append(gates, GateOf(f.To))
		to[GateOf(f.To)] = f.To
	}
	if len(gates) == 0 {
		return nil
	}
	// Drop only existing gates: the drop of a missing one locks the server too.
	made, err := n.Named(ctx, gates...)
	for some := range slices.Chunk(made, readyAtOnce) {
		var tos []string
		for _, gate := range some {
			tos = append(tos, to[gate.Name])
		}
		// Go on after an error: each dropped gate is one less for the next attempt.
		_, dropErr := n.dropGates(ctx, tos)
		err = errors.Join(err, dropErr)
	}
	if err != nil {
		return fmt.Errorf("drop the gates of fences in %s: %w", n.Name, err)
	}
	return nil
}

// gated returns the fences that need gates: view fences of collections that are not hidden.
func gated(fs []record.Fence) (some []record.Fence) {
	for _, f := range fs {
		if _, _, hidden := record.KindOfPhysical(f.Token.Name); f.Class == record.FenceView && !hidden {
			some = append(some, f)
		}
	}
	return some
}

// openGate creates the gate of a fence unless the fence was removed. It checks after creating the
// gate, because an Unfence that the check does not see drops the gate later.
func (n *Fences) openGate(ctx context.Context, f record.Fence) error {
	made, err := n.CollectionNamed(ctx, GateOf(f.To))
	if err == nil && made == nil {
		_, err = n.gates.Ask(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("make gate: %w", err)
	}
	return n.unlessEnded(ctx, f)
}

// unlessEnded drops the gate of a fence that was removed, and returns errUnfenced.
func (n *Fences) unlessEnded(ctx context.Context, f record.Fence) error {
	err := n.RefuseUnfenced(ctx, f)
	var final *backoff.PermanentError
	// Only the end of the fence is permanent. After other errors the next attempt needs the gate.
	if errors.As(err, &final) {
		if err := n.dropGate(ctx, f.To); err != nil {
			return err
		}
	}
	return err
}

// makeGates creates the missing gates.
func (n *Fences) makeGates(ctx context.Context, fs []record.Fence) (struct{}, error) {
	ops := make(bson.A, 0, 2*len(fs))
	for _, f := range fs {
		ops = append(ops, n.createOp(GateOf(f.To)), n.insertOp(GateOf(f.To), bson.D{{Key: "_id", Value: gateID}, {Key: "kind", Value: f.Token.Kind}}))
	}
	err := n.applyOps(ctx, ops)
	if partly(err) || conn.HasCode(err, conn.CodeNamespaceExists) {
		err = nil // some gates existed
	}
	return struct{}{}, err
}

func (n *Fences) createOp(coll string) bson.D {
	return n.commandOp(bson.D{{Key: "create", Value: coll}, {Key: "clusteredIndex", Value: bson.D{
		{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "name", Value: "_id_"}, {Key: "unique", Value: true},
	}}})
}

func (n *Fences) dropOp(coll string) bson.D {
	return n.commandOp(bson.D{{Key: "drop", Value: coll}})
}

func (n *Fences) commandOp(cmd bson.D) bson.D {
	return bson.D{{Key: "op", Value: "c"}, {Key: "ns", Value: n.Name + ".$cmd"}, {Key: "o", Value: cmd}}
}

func (n *Fences) insertOp(coll string, doc bson.D) bson.D {
	return bson.D{{Key: "op", Value: "i"}, {Key: "ns", Value: n.Name + "." + coll}, {Key: "o", Value: doc}}
}

// throughGates renames collections and leaves the views, if the gates exist. Each gate is used
// once. Callers find out what happened by looking at the collections.
func (n *Fences) throughGates(ctx context.Context, fs []record.Fence) (struct{}, error) {
	ops := make(bson.A, 0, 4*len(fs))
	for _, f := range fs {
		// The command drops its own gate, so that a late copy of it finds none.
		ops = append(ops, n.passOp(f), n.renameOp(f.Token.Name, f.To), n.viewOp(f.Token.Name, f.To, f.To), n.dropOp(GateOf(f.To)))
	}
	err := n.applyWhole(ctx, ops)
	// One failed operation fails the command, so the error may belong to another fence.
	if len(fs) > 1 && !conn.HeldUp(err) && err != nil {
		err = fmt.Errorf("%w: %s", errTogether, err) // it does not show which fence failed
	}
	return struct{}{}, err
}

// throughGate is throughGates for one fence.
func (n *Fences) throughGate(ctx context.Context, f record.Fence) (struct{}, error) {
	return n.throughGates(ctx, []record.Fence{f})
}

// errTogether reports that one or more of several fences in one command failed.
var errTogether = errors.New("fences were set together")

// passOp returns the operation that passes the gate of a fence. An applyOps that begins with it
// does nothing once the fence was removed.
func (n *Fences) passOp(f record.Fence) bson.D {
	return n.existsOp(GateOf(f.To), gateID, bson.D{{Key: "u", Value: bson.D{{Key: "passed", Value: true}}}})
}

// dropStanding drops a gate only if it is listed, because a drop takes the lock of the whole server
// even for a missing collection. A deposed primary may not list an existing gate. If a gate must be
// gone, use dropGate.
func (n *Fences) dropStanding(ctx context.Context, to string) error {
	made, err := n.CollectionNamed(ctx, GateOf(to))
	if err != nil || made == nil {
		return err
	}
	return n.dropGate(ctx, to)
}

func (n *Fences) dropGate(ctx context.Context, to string) error {
	if _, err := n.closed.Ask(ctx, to); err != nil {
		return fmt.Errorf("drop gate: %w", err)
	}
	return nil
}

// dropGates drops several gates in one command if possible. applyOps does not work through mongos,
// and it takes the lock of the whole server.
func (n *Fences) dropGates(ctx context.Context, tos []string) (struct{}, error) {
	// A quiet namespace must not lock the whole server.
	if len(tos) > 1 && !n.Quiet {
		ops := make(bson.A, len(tos))
		for i, to := range tos {
			ops[i] = n.dropOp(GateOf(to))
		}
		if n.applyOps(ctx, ops) == nil {
			return struct{}{}, nil
		}
	}
	// One by one: applyOps fails as a whole if one gate is missing.
	var err error
	for _, to := range tos {
		err = errors.Join(err, n.DropNamed(ctx, GateOf(to)))
	}
	return struct{}{}, err
}

// closeFence ensures that the fence from name to to can no longer be set. A caller that has already
// passed the check of openGate finds no gate.
func (n *Fences) closeFence(ctx context.Context, name, to string) error {
	// Note first, then drop: a gate created in between is dropped by its creator's check.
	if err := n.noteUnfenced(ctx, record.Token{Name: name}, to); err != nil {
		return err
	}
	return n.dropGate(ctx, to)
}

// existsOp updates a document if it exists. If the collection is missing, applyOps stops there.
// diff may be empty only if no document matches: the server refuses an empty diff for a document.
func (n *Fences) existsOp(coll string, id any, diff bson.D) bson.D {
	return bson.D{
		{Key: "op", Value: "u"},
		{Key: "ns", Value: n.Name + "." + coll},
		{Key: "b", Value: false},
		{Key: "o2", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "o", Value: bson.D{{Key: "$v", Value: 2}, {Key: "diff", Value: diff}}},
	}
}
