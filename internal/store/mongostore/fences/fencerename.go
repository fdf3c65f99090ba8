package fences

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// fenceRename renames a collection, by its name but checked by its UUID. It is the fence of managed
// kinds, and also gives hidden collections their other names. It calls closed before it sends a rename,
// to wait until the fence that the rename ends can no longer be set. Until then it only looks.
//
// Each step is a round trip to a server that may be far away, while writes are held. So the looks run
// side by side.
func (n *Fences) fenceRename(ctx context.Context, f record.Fence, closed func() error) error {
	uuid, err := conn.CollectionUUID(f.Token.ID)
	if err != nil {
		return err
	}
	place := func(ctx context.Context) (placement, error) { return n.placement(ctx, f, uuid) }
	return n.UntilDone(ctx, n.Name+"."+f.Token.Name, func(ctx context.Context) error {
		at, builds, err := n.lookBefore(ctx, f, place, closed)
		if err != nil {
			return err
		}
		if !at.moved {
			if err := n.move(ctx, f, at, builds); err != nil {
				return err
			}
		} else if err := n.finishMove(ctx, f); err != nil {
			return err
		}
		// The rename may have been undone by a failover, so confirm it even if it was found done.
		if !opens(f) {
			return n.confirmRename(ctx, f, uuid, place)
		}
		// The rename is done, so nobody can add a note that counts: read them beside the proof.
		var noted errgroup.Group
		var notes []strayNote
		noted.Go(func() (err error) { notes, err = n.strays.Ask(ctx, f.Token.Name); return err })
		err = n.confirmRename(ctx, f, uuid, place)
		unread := noted.Wait()
		if err := cmp.Or(err, unread); err != nil {
			return err
		}
		return n.settleNoted(ctx, f.Token, f.To, f.Token.Name, notes)
	})
}

// buildsLook is a look for index builds of the collection, before its rename.
type buildsLook struct {
	err   error     // errBuilding, or why it is not known
	ended time.Time // zero: no look was made
}

// freshLook is how old a look for index builds may be when its command is sent. It is a little more
// than what two commands to the same server differ by.
const freshLook = 100 * time.Millisecond

// none reports whether a look found no builds, so recently that an applyOps may follow.
func (l buildsLook) none() bool { return l.err == nil && time.Since(l.ended) < freshLook }

// lookBefore looks at the names of a rename and for index builds, and waits for closed. Closing takes
// two steps. The builds are looked for in the last step, because a look must be recent. Only the names
// show whether a rename to a hidden name needs that look. It begins without them if they take long, as
// they do over a distance.
func (n *Fences) lookBefore(ctx context.Context, f record.Fence, place func(context.Context) (placement, error), closed func() error) (at placement, builds buildsLook, err error) {
	_, _, hidden := record.KindOfPhysical(f.To)
	var g sync.WaitGroup
	named := make(chan struct{}) // closed when the names are known
	look := func() {
		builds.err = n.noBuilds(ctx, f.Token.Name)
		builds.ended = time.Now()
	}
	switch {
	case betweenHidden(f):
		g.Go(func() {
			select {
			case <-named:
			case <-time.After(conn.Looking):
				look()
			}
		})
	case !hidden && f.Ends == "":
		g.Go(look)
	}
	at, err = place(ctx)
	close(named)
	if !hidden && f.Ends != "" && err == nil {
		g.Go(look)
	}
	if err == nil {
		if err = closed(); err != nil {
			err = conn.Permanent(err) // it was retried itself
		}
	}
	g.Wait() // also after an error, so that no look outlives the attempt
	return at, builds, err
}

// move renames a collection once. It chooses the command by what is under To, and by the view that
// still shows this collection.
func (n *Fences) move(ctx context.Context, f record.Fence, at placement, builds buildsLook) error {
	_, _, hidden := record.KindOfPhysical(f.To)
	switch {
	case hidden: // renameUnderView decides whether builds are in the way
	case errors.Is(builds.err, errBuilding):
		// The collection opens for its application here, and nobody can write until it is open. So
		// end index builds instead of waiting for them.
		if err := n.stopBuilds(ctx, f.Token.Name); err != nil {
			return err
		}
	case builds.err != nil:
		return builds.err
	}
	switch {
	case at.overView && builds.none():
		return n.unviewNow(ctx, n.applyWhole, f.To, f.Token.Name, f.To)
	case at.overView:
		return n.renameOverView(ctx, f)
	case at.stray != nil:
		return n.overStray(ctx, f.Token, f.Token.Name, at.stray)
	}
	under, err := n.renameUnderView(ctx, f, at.own, builds)
	if err != nil || under {
		return err
	}
	return n.Rename(ctx, f.Token.Name, f.To)
}

// placement describes where the fenced UUID is.
type placement struct {
	moved    bool             // under To
	overView bool             // under From, and To is the view of an earlier fence
	stray    *conn.Collection // under From, and To is a collection created when that view was gone
	old      *conn.Collection // what has the name From now, nil: nothing
	own      *conn.Collection // what has the kind's own name, nil: nothing, or not asked (betweenHidden)
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

// betweenHidden reports whether a fence gives a hidden collection of a fixed-name kind another hidden
// name. The view of an earlier fence may show it under the kind's own name. A rename to the kind's own
// name replaces the view instead.
func betweenHidden(f record.Fence) bool {
	_, _, from := record.KindOfPhysical(f.Token.Name)
	_, _, to := record.KindOfPhysical(f.To)
	return f.Token.Fixed && from && to
}

// lookAt looks at the two names of a fence, and at the kind's own name if a view may have to follow.
// known is false if the UUID has neither of the two.
func (n *Fences) lookAt(ctx context.Context, f record.Fence, uuid bson.Binary) (at placement, known bool, err error) {
	names := []string{f.Token.Name, f.To}
	if betweenHidden(f) {
		names = append(names, f.Token.Kind)
	}
	found, err := n.Named(ctx, names...)
	if err != nil {
		return placement{}, false, err
	}
	var taken *conn.Collection
	for _, c := range found {
		switch c.Name {
		case f.Token.Name:
			at.old = &c
		case f.To:
			taken = &c
		default:
			at.own = &c
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
	together, err := n.prove(ctx, f, uuid)
	if err != nil {
		return err
	}
	// One command wrote the mark and then found the UUID under To, on one primary. A look would only
	// say so again.
	if together && !stands(f) {
		return nil
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

// stands reports whether a fence leaves a view, which the proof of the rename does not cover.
func stands(f record.Fence) bool {
	_, _, hidden := record.KindOfPhysical(f.Token.Name)
	return f.Class == record.FenceView && !hidden
}
