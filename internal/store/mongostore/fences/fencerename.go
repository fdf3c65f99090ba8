package fences

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// fenceRename renames a collection, by its name but checked by its UUID. It is the fence of managed
// kinds, and also gives hidden collections their other names.
func (n *Fences) fenceRename(ctx context.Context, f record.Fence) error {
	uuid, err := conn.CollectionUUID(f.Token.ID)
	if err != nil {
		return err
	}
	place := func(ctx context.Context) (placement, error) { return n.placement(ctx, f, uuid) }
	return n.UntilDone(ctx, n.Name+"."+f.Token.Name, func(ctx context.Context) error {
		at, err := place(ctx)
		if err != nil {
			return err
		}
		if !at.moved {
			if _, _, hidden := record.KindOfPhysical(f.To); !hidden {
				// The collection opens for its application here, and nobody can write until it is
				// open. So end index builds instead of waiting for them.
				err := n.noBuilds(ctx, f.Token.Name)
				if errors.Is(err, errBuilding) {
					err = n.stopBuilds(ctx, f.Token.Name)
				}
				if err != nil {
					return err
				}
			}
			// Choose the command by what is under To, and by the view that still shows this
			// collection.
			under := false
			if at.overView {
				err = n.renameOverView(ctx, f)
			} else if at.stray != nil {
				err = n.overStray(ctx, f.Token, f.Token.Name, at.stray)
			} else if under, err = n.renameUnderView(ctx, f); err == nil && !under {
				err = n.Rename(ctx, f.Token.Name, f.To)
			}
			if err != nil {
				return err
			}
		} else if err := n.finishMove(ctx, f); err != nil {
			return err
		}
		// The rename may have been undone by a failover, so confirm it even if it was found done.
		if err := n.confirmRename(ctx, f, uuid, place); err != nil || !opens(f) {
			return err
		}
		return n.settleStrays(ctx, f.Token, f.To, f.Token.Name)
	})
}

// placement describes where the fenced UUID is.
type placement struct {
	moved    bool             // under To
	overView bool             // under From, and To is the view of an earlier fence
	stray    *conn.Collection // under From, and To is a collection created when that view was gone
	old      *conn.Collection // what has the name From now, nil: nothing
}

func (n *Fences) placement(ctx context.Context, f record.Fence, uuid bson.Binary) (placement, error) {
	at, known, err := n.lookAt(ctx, f, uuid)
	if err != nil || known {
		return at, err
	}
	// A deposed primary may list an older name. After a majority write the driver talks to the real
	// primary.
	if err := n.Mark(ctx, f); err != nil {
		return placement{}, err
	}
	if at, known, err = n.lookAt(ctx, f, uuid); err != nil || known {
		return at, err
	}
	name, err := n.Locate(ctx, f.Token.ID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return placement{}, conn.Permanent(fmt.Errorf("collection %s no longer exists: %w", f.Token.ID, record.ErrBroken))
	case err != nil:
		return placement{}, err
	case name == f.To || name == f.Token.Name:
		return placement{}, errors.New("collection moved during the lookup")
	default:
		return placement{}, conn.Permanent(fmt.Errorf("collection %s has the name %q, which was not announced: %w", f.Token.ID, name, record.ErrBroken))
	}
}

// lookAt looks at the two names of a fence. known is false if the UUID has neither name.
func (n *Fences) lookAt(ctx context.Context, f record.Fence, uuid bson.Binary) (at placement, known bool, err error) {
	found, err := n.Named(ctx, f.Token.Name, f.To)
	if err != nil {
		return placement{}, false, err
	}
	var taken *conn.Collection
	for _, c := range found {
		if c.Name == f.Token.Name {
			at.old = &c
		} else {
			taken = &c
		}
	}
	switch {
	case taken != nil && taken.Is(uuid):
		at.moved = true
		return at, true, nil
	case at.old == nil || !at.old.Is(uuid):
		return at, false, nil
	case taken == nil:
		return at, true, nil
	case taken.Type == "view" && taken.FenceMark() != "":
		at.overView = true
		return at, true, nil
	}
	// The application created a collection while its name was free; overStray moves it aside.
	if opens(f) && taken.Type == "collection" {
		at.stray = taken
		return at, true, nil
	}
	// Prevent has given this rename up.
	if id := taken.Occupies(); id != "" && id == f.Token.ID {
		return at, true, conn.Permanent(fmt.Errorf("the fence %s was abandoned; a new attempt needs a new name", f.To))
	}
	return at, true, conn.Permanent(fmt.Errorf("the name %q is taken by another %s; rename or drop it, controllers never replace it", f.To, taken.Type))
}

// confirmRename returns nil once the UUID is under To in every history that can still be
// acknowledged. The mark is a real majority write. The no-op update runs on the collection itself,
// under To and with its UUID. It waits until a majority has everything that its node has, the
// rename included.
func (n *Fences) confirmRename(ctx context.Context, f record.Fence, uuid bson.Binary, place func(context.Context) (placement, error)) error {
	if err := n.Mark(ctx, f); err != nil {
		return err
	}
	has, err := n.proofs.Ask(ctx, identified{f.To, uuid})
	if err == nil {
		err = has[f.To]
	}
	if err != nil {
		return err
	}
	// Look last: only a placement read after the proof is covered by it.
	at, err := place(ctx)
	if err != nil {
		return err
	}
	if !at.moved {
		return errors.New("the rename was undone before the controller confirmed it")
	}
	return nil
}
