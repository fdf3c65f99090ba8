package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// The gate of a view fence: what keeps a command that arrives late from having an effect.

// gateOf is the collection that must exist for a view fence to be set.
func gateOf(to string) string { return gatePrefix + to }

// gateID is the one document of a gate.
const gateID = "open"

// atOnce is for how many fences one command makes gates, goes through them, or drops them. It
// holds the lock of the whole server for some milliseconds.
const atOnce = 25

// readyAtOnce is for how many fences one command makes gates that are made ahead. A gate is a
// collection, which takes the server two milliseconds, and nobody waits for these.
const readyAtOnce = 5

// Ready makes the gates of view fences: hundreds of collections take longer than all else that
// is done while writes are held.
func (n *Namespace) Ready(ctx context.Context, fs []record.Fence) error {
	for some := range slices.Chunk(gated(fs), readyAtOnce) {
		err := n.untilDone(ctx, "", func(ctx context.Context) error {
			_, err := n.makeGates(ctx, some)
			return err
		})
		if err != nil {
			return fmt.Errorf("make ready for fences in %s: %w", n.name, err)
		}
	}
	// As openGate does: a fence that has ended before finds the gate gone.
	var g errgroup.Group
	for _, f := range gated(fs) {
		g.Go(func() error {
			if err := n.unlessEnded(ctx, f); err != nil {
				return fmt.Errorf("make ready for the fence %s in %s: %w", f.To, n.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Unready drops the gates that Ready made.
func (n *Namespace) Unready(ctx context.Context, fs []record.Fence) error {
	var gates []string
	to := map[string]string{}
	for _, f := range gated(fs) {
		gates = append(gates, gateOf(f.To))
		to[gateOf(f.To)] = f.To
	}
	if len(gates) == 0 {
		return nil
	}
	made, err := n.named(ctx, gates...)
	for some := range slices.Chunk(made, readyAtOnce) {
		var tos []string
		for _, gate := range some {
			tos = append(tos, to[gate.Name])
		}
		_, dropErr := n.dropGates(ctx, tos)
		err = errors.Join(err, dropErr)
	}
	if err != nil {
		return fmt.Errorf("drop the gates of fences in %s: %w", n.name, err)
	}
	return nil
}

// gated are the fences that have gates.
func gated(fs []record.Fence) (some []record.Fence) {
	for _, f := range fs {
		if _, _, hidden := record.KindOfPhysical(f.Token.Name); f.Class == record.FenceView && !hidden {
			some = append(some, f)
		}
	}
	return some
}

// openGate makes the gate of a fence unless that was removed: the check comes after the
// gate was made, so that an unfence that it does not see drops the gate later.
func (n *Namespace) openGate(ctx context.Context, f record.Fence) error {
	made, err := n.collectionNamed(ctx, gateOf(f.To))
	if err == nil && made == nil {
		_, err = n.gates.ask(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("make gate: %w", err)
	}
	return n.unlessEnded(ctx, f)
}

// unlessEnded drops the gate of a fence that has ended.
func (n *Namespace) unlessEnded(ctx context.Context, f record.Fence) error {
	err := n.refuseUnfenced(ctx, f)
	var final *backoff.PermanentError
	if errors.As(err, &final) {
		if err := n.dropGate(ctx, f.To); err != nil {
			return err
		}
	}
	return err
}

// makeGates makes what is missing.
func (n *Namespace) makeGates(ctx context.Context, fs []record.Fence) (struct{}, error) {
	ops := make(bson.A, 0, 2*len(fs))
	for _, f := range fs {
		ops = append(ops, n.createOp(gateOf(f.To)), n.insertOp(gateOf(f.To), bson.D{{Key: "_id", Value: gateID}, {Key: "kind", Value: f.Token.Kind}}))
	}
	err := n.applyOps(ctx, ops)
	if hasCode(err, codeUnknownError, codeNamespaceExists) {
		err = nil // some were there
	}
	return struct{}{}, err
}

func (n *Namespace) createOp(coll string) bson.D {
	return n.commandOp(bson.D{{Key: "create", Value: coll}, {Key: "clusteredIndex", Value: bson.D{
		{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "_id", Value: 1}}}, {Key: "name", Value: "_id_"}, {Key: "unique", Value: true},
	}}})
}

func (n *Namespace) dropOp(coll string) bson.D {
	return n.commandOp(bson.D{{Key: "drop", Value: coll}})
}

func (n *Namespace) commandOp(cmd bson.D) bson.D {
	return bson.D{{Key: "op", Value: "c"}, {Key: "ns", Value: n.name + ".$cmd"}, {Key: "o", Value: cmd}}
}

func (n *Namespace) insertOp(coll string, doc bson.D) bson.D {
	return bson.D{{Key: "op", Value: "i"}, {Key: "ns", Value: n.name + "." + coll}, {Key: "o", Value: doc}}
}

// throughGates renames and leaves the views, where the gates are still there, which are used
// once. What it fails at each fence finds out by looking.
func (n *Namespace) throughGates(ctx context.Context, fs []record.Fence) (struct{}, error) {
	ops := make(bson.A, 0, 4*len(fs))
	for _, f := range fs {
		ops = append(ops, n.passOp(f), n.renameOp(f.Token.Name, f.To), n.viewOp(f.Token.Name, f.To, f.To), n.dropOp(gateOf(f.To)))
	}
	err := n.applyOps(ctx, ops)
	if len(fs) > 1 && !heldUp(err) && err != nil {
		err = fmt.Errorf("%w: %s", errTogether, err) // of which of them is not known
	}
	return struct{}{}, err
}

// throughGate is throughGates of one.
func (n *Namespace) throughGate(ctx context.Context, f record.Fence) (struct{}, error) {
	return n.throughGates(ctx, []record.Fence{f})
}

// errTogether: of several fences that were set by one command one or more failed.
var errTogether = errors.New("fences that were set together")

// passOp goes through the gate of a fence: an applyOps that begins with it does nothing once
// the fence has ended.
func (n *Namespace) passOp(f record.Fence) bson.D {
	return n.existsOp(gateOf(f.To), gateID, bson.D{{Key: "u", Value: bson.D{{Key: "passed", Value: true}}}})
}

// dropStanding drops a gate where one is listed: a drop takes the lock of the whole server,
// also of what is not there. A server that does not know that it is no longer the primary may
// list none; what must be gone is dropped by dropGate.
func (n *Namespace) dropStanding(ctx context.Context, to string) error {
	made, err := n.collectionNamed(ctx, gateOf(to))
	if err != nil || made == nil {
		return err
	}
	return n.dropGate(ctx, to)
}

func (n *Namespace) dropGate(ctx context.Context, to string) error {
	if _, err := n.closed.ask(ctx, to); err != nil {
		return fmt.Errorf("drop gate: %w", err)
	}
	return nil
}

// dropGates drops several at once where that is possible: applyOps is not through mongos, and
// takes the lock of the whole server.
func (n *Namespace) dropGates(ctx context.Context, tos []string) (struct{}, error) {
	if len(tos) > 1 && !n.quiet {
		ops := make(bson.A, len(tos))
		for i, to := range tos {
			ops[i] = n.dropOp(gateOf(to))
		}
		if n.applyOps(ctx, ops) == nil {
			return struct{}{}, nil
		}
	}
	var err error
	for _, to := range tos {
		err = errors.Join(err, n.dropNamed(ctx, gateOf(to)))
	}
	return struct{}{}, err
}

// closeFence has the fence to a name of a collection no longer be set: a caller that has passed the
// check of openGate finds no gate.
func (n *Namespace) closeFence(ctx context.Context, name, to string) error {
	if err := n.noteUnfenced(ctx, record.Token{Name: name}, to); err != nil {
		return err
	}
	return n.dropGate(ctx, to)
}

// existsOp updates a document, if there is one. Where the collection is missing, applyOps
// ends with it. An empty diff can change nothing: the server refuses it for a document.
func (n *Namespace) existsOp(coll string, id any, diff bson.D) bson.D {
	return bson.D{
		{Key: "op", Value: "u"},
		{Key: "ns", Value: n.name + "." + coll},
		{Key: "b", Value: false},
		{Key: "o2", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "o", Value: bson.D{{Key: "$v", Value: 2}, {Key: "diff", Value: diff}}},
	}
}
