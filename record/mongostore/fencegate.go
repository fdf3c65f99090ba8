package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
)

// The gate of a view fence: what keeps a command that arrives late from having an effect.

// gateOf is the collection that must exist for a view fence to be set.
func gateOf(to string) string { return gatePrefix + to }

// gateID is the one document of a gate.
const gateID = "open"

// openGate makes the gate of a fence unless that was removed: the check comes after the
// gate was made, so that an unfence that it does not see drops the gate later.
func (n *Namespace) openGate(ctx context.Context, f record.Fence) error {
	err := n.db.RunCommand(ctx, bson.D{
		{Key: "update", Value: gateOf(f.To)},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: gateID}}},
			{Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "kind", Value: f.Token.Kind}}}}},
			{Key: "upsert", Value: true},
		}}},
		{Key: "writeConcern", Value: majorityWithin(concernWait)},
	}).Err()
	if err != nil {
		return fmt.Errorf("make gate: %w", err)
	}
	err = n.refuseLifted(ctx, f)
	var final *backoff.PermanentError
	if errors.As(err, &final) {
		if err := n.dropGate(ctx, f.To); err != nil {
			return err
		}
	}
	return err
}

// gatesAtOnce is how many gates one command makes. It holds the lock of the whole server for
// some milliseconds.
const gatesAtOnce = 100

// Expect makes the gates of fences that are about to be set: to make a collection takes longer
// than the fence itself, and hundreds of them one by one would be most of the pause.
// It keeps to the order of openGate, which each fence still goes through by itself.
func (n *Namespace) Expect(ctx context.Context, fs []record.Fence) error {
	var views []record.Fence
	for _, f := range fs {
		if _, _, hidden := record.KindOfPhysical(f.Token.Name); f.Class == record.FenceView && !hidden {
			views = append(views, f)
		}
	}
	if len(views) < 2 {
		return nil // the fence makes it in passing
	}
	if err := n.makeGates(ctx, views); err != nil {
		return fmt.Errorf("make the gates of %d fences in %s: %w", len(views), n.name, err)
	}
	return nil
}

func (n *Namespace) makeGates(ctx context.Context, fs []record.Fence) error {
	for some := range slices.Chunk(fs, gatesAtOnce) {
		ops := make(bson.A, 0, 2*len(some))
		for _, f := range some {
			ops = append(ops, n.createOp(gateOf(f.To)), n.insertOp(gateOf(f.To), bson.D{{Key: "_id", Value: gateID}, {Key: "kind", Value: f.Token.Kind}}))
		}
		if err := n.applyOps(ctx, ops); err != nil && !hasCode(err, codeUnknownError, codeNamespaceExists) {
			return err // those codes: some were there
		}
	}
	ended, err := n.lifted(ctx, fs)
	for _, to := range ended {
		err = errors.Join(err, n.dropGate(ctx, to))
	}
	return err
}

func (n *Namespace) createOp(coll string) bson.D {
	return bson.D{
		{Key: "op", Value: "c"},
		{Key: "ns", Value: n.name + ".$cmd"},
		{Key: "o", Value: bson.D{{Key: "create", Value: coll}}},
	}
}

func (n *Namespace) insertOp(coll string, doc bson.D) bson.D {
	return bson.D{{Key: "op", Value: "i"}, {Key: "ns", Value: n.name + "." + coll}, {Key: "o", Value: doc}}
}

// throughGate renames and leaves the view, if the gate is still there.
func (n *Namespace) throughGate(ctx context.Context, f record.Fence) error {
	return n.applyOps(ctx, bson.A{n.passOp(f), n.renameOp(f.Token.Name, f.To), n.viewOp(f.Token.Name, f.To)})
}

// passOp goes through the gate of a fence: an applyOps that begins with it does nothing once
// the fence has ended.
func (n *Namespace) passOp(f record.Fence) bson.D {
	return n.existsOp(gateOf(f.To), gateID, bson.D{{Key: "u", Value: bson.D{{Key: "passed", Value: true}}}})
}

func (n *Namespace) dropGate(ctx context.Context, to string) error {
	if err := n.dropNamed(ctx, gateOf(to)); err != nil {
		return fmt.Errorf("drop gate: %w", err)
	}
	return nil
}

// closeFence has the fence to a name of a collection no longer be set: a caller that has passed the
// check of openGate finds no gate.
func (n *Namespace) closeFence(ctx context.Context, name, to string) error {
	if err := n.noteLift(ctx, name, to); err != nil {
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
