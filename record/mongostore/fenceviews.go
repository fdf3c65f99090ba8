package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
)

// The view fence of fixed-name kinds. One applyOps renames the collection and leaves a
// view on it under the old name: the application's writes fail with 166 and its reads
// go on to see the data, which nothing changes any more. One applyOps removes the view
// and renames back. It holds the global lock throughout, so no insert falls into the
// gap and creates a collection of its own.
//
// Views are removed by deleting their definition from system.views, never by drop: a
// drop that comes second, after the rename back, would drop the application's data.
//
// applyOps checks nothing, and no condition can be given to it. Everything is checked
// just before, and what was lifted is noted, but a caller that is stopped between the
// check and the command can still take away a name that was given back, or open one
// that a later attempt took. Fence and Lift are therefore to be repeated by whoever
// acts on the Deployment until what they find agrees with it; neither ever loses a
// document of the collection itself.

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
	return n.untilDone(ctx, n.name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.refuseLifted(ctx, f); err != nil {
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
			ops := bson.A{n.renameOp(f.Token.Name, f.To), n.viewOp(f.Token.Name, f.To)}
			if err := n.applyOps(ctx, ops); err != nil {
				return err
			}
		}
		return n.confirmRename(ctx, f, uuid, look)
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
		if err := n.applyOps(ctx, bson.A{n.viewOp(f.Token.Name, f.To)}); err != nil {
			return at, err
		}
		return at, errors.New("the view was missing and is made again")
	}
	// A list made while somebody lifted the fence can show both; a second one cannot.
	if err := n.mark(ctx, f); err != nil {
		return at, err
	}
	now, err := n.placement(ctx, f, uuid)
	if err != nil {
		return at, err
	}
	if !now.moved || now.old == nil || now.old.id() != at.old.id() {
		return at, errors.New("the names changed while they were looked at")
	}
	return at, permanent(fmt.Errorf("the name %q is taken by a %s that is not the fence's; "+
		"what the application wrote there is not part of the kind: %w", f.Token.Name, now.old.Type, record.ErrBroken))
}

func (n *Namespace) liftView(ctx context.Context, f record.Fence) error {
	uuid, err := collectionUUID(f.Token.ID)
	if err != nil {
		return err
	}
	return n.untilDone(ctx, n.name+"."+f.Token.Name, func(ctx context.Context) error {
		if err := n.noteLift(ctx, f); err != nil {
			return err
		}
		at, err := n.viewPlacement(ctx, f, uuid)
		if err != nil {
			return err
		}
		if !at.moved {
			return nil
		}
		if err := n.unview(ctx, f.Token.Name, f.To, f.Token.Name); err != nil {
			return err
		}
		if at, err = n.placement(ctx, f, uuid); err != nil {
			return err
		}
		if at.moved {
			return errors.New("the collection did not get its name back")
		}
		return n.note(ctx, noteLifted+f.To, bson.D{{Key: "$set", Value: bson.D{{Key: "done", Value: true}}}})
	})
}

// renameOverView gives a hidden collection a name that an earlier fence's view bears.
func (n *Namespace) renameOverView(ctx context.Context, f record.Fence) error {
	return n.unview(ctx, f.To, f.Token.Name, f.To)
}

// unview removes a view and renames a collection in one step.
func (n *Namespace) unview(ctx context.Context, view, from, to string) error {
	return n.applyOps(ctx, bson.A{
		bson.D{
			{Key: "op", Value: "d"},
			{Key: "ns", Value: n.name + ".system.views"},
			{Key: "o", Value: bson.D{{Key: "_id", Value: n.name + "." + view}}},
		},
		n.renameOp(from, to),
	})
}

func (n *Namespace) renameOp(from, to string) bson.D {
	return bson.D{
		{Key: "op", Value: "c"},
		{Key: "ns", Value: n.name + ".$cmd"},
		{Key: "o", Value: bson.D{
			{Key: "renameCollection", Value: n.name + "." + from},
			{Key: "to", Value: n.name + "." + to},
			{Key: "dropTarget", Value: false},
		}},
	}
}

func (n *Namespace) viewOp(view, on string) bson.D {
	return bson.D{
		{Key: "op", Value: "c"},
		{Key: "ns", Value: n.name + ".$cmd"},
		{Key: "o", Value: bson.D{
			{Key: "create", Value: view},
			{Key: "viewOn", Value: on},
			{Key: "pipeline", Value: viewPipeline(on)},
		}},
	}
}

func (n *Namespace) applyOps(ctx context.Context, ops bson.A) error {
	return n.change(ctx, n.admin(), bson.D{{Key: "applyOps", Value: ops}})
}

// probeView tries fence and lift on a scratch collection. It returns the reason why a
// view fence cannot be had here, or an error if that was not to be found out.
func (n *Namespace) probeView(ctx context.Context) (*record.UnsupportedError, error) {
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
	ops := bson.A{n.renameOp(c.Name, moved), n.viewOp(c.Name, moved)}
	if err := n.applyOps(ctx, ops); err != nil {
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
	if err := n.unview(ctx, c.Name, moved, c.Name); err != nil {
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
