package bbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/record"
	"dbcontroller.dev/sample/bbs/converge"
	"dbcontroller.dev/vrunner"
)

// cellTimeout is after what silence a cell is lost. It is longer than a switch holds writes.
const cellTimeout = 15 * time.Second

// ControllerV1 is the reconciler of v1: it starts, replaces and retires instances, as package
// converge decides, when something changes and every so often.
func ControllerV1(v1 vrunner.Store, every time.Duration) vrunner.Controller {
	return newReconciler(newInstancesV1(v1), processesV1(v1), every).controller()
}

// ControllerV2 is the reconciler of v2, which decides on definitions, too.
func ControllerV2(v2 vrunner.Store, every time.Duration) vrunner.Controller {
	return newReconciler(newInstancesV2(v2), processesV2(v2), every).controller()
}

// processes are what one version's data ask for.
type processes struct {
	kind string
	// read is what a process's own record says of it, without the Timeouts of v2.
	read func(record.Record) (guid string, p converge.Process, err error)
	// find reads all that is known of a process. It returns record.ErrNotFound.
	find func(ctx context.Context, guid string) (converge.Process, error)
	// decide makes an action that is about definitions, and was decided on what the process was.
	decide func(ctx context.Context, guid string, was converge.Process, a converge.Action) error
}

// reconciler needs to know of a switch as little as a handler: its run ends with it, and the
// other version's begins, which finds in its data all that this one was about to do.
type reconciler[G, C proto.Message] struct {
	in        instances[G, C]
	processes processes
	every     time.Duration
}

func newReconciler[G, C proto.Message](in instances[G, C], p processes, every time.Duration) reconciler[G, C] {
	return reconciler[G, C]{in, p, every}
}

func (r reconciler[G, C]) controller() vrunner.Controller {
	return vrunner.Controller{Name: "bbs-convergence", Leader: true, Run: r.run}
}

// run looks at everything, and then at what changes until it is time to look at everything:
// that a timeout has passed, or a cell is lost, is no change.
func (r reconciler[G, C]) run(ctx context.Context) error {
	changes, err := r.in.store.Changes(ctx, r.processes.kind, KindActualLRPs)
	if err != nil {
		return err
	}
	defer changes.Close()
	for {
		again := time.Now().Add(r.every)
		unreadable := r.all(ctx)
		if unreadable != nil && !errors.Is(unreadable, apiversion.ErrStored) {
			return unreadable
		}
		if err := r.follow(ctx, changes, again); err != nil {
			return err
		}
		if unreadable != nil {
			return unreadable // said once a pass; meanwhile the other processes were kept
		}
	}
}

func (r reconciler[G, C]) follow(ctx context.Context, changes vrunner.Subscription, until time.Time) error {
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		dirty, err := changes.Next(bounded)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case bounded.Err() != nil, errors.Is(err, vrunner.ErrLost):
			return nil
		case err != nil:
			return err
		}
		seen := map[string]bool{}
		for _, d := range dirty {
			guid := d.Name
			if d.Kind == KindActualLRPs {
				if guid, _, err = converge.SplitName(d.Name); err != nil {
					continue // not ours
				}
			}
			if seen[guid] {
				continue
			}
			seen[guid] = true
			if err := r.one(ctx, guid, nil); err != nil && !errors.Is(err, apiversion.ErrStored) {
				return err
			}
		}
	}
}

// all looks at every process and instance. What a process's own record and its instances say is
// enough for most of them: they are as they are to be. A record that cannot be read holds up its
// process alone: the error matches apiversion.ErrStored then, and all others were looked at.
func (r reconciler[G, C]) all(ctx context.Context) error {
	lost, err := r.lost(ctx)
	if err != nil {
		return err
	}
	var unreadable []error
	skip := func(err error) error {
		if !errors.Is(err, apiversion.ErrStored) {
			return err
		}
		unreadable = append(unreadable, err)
		return nil
	}
	slots, broken := map[string]map[int]converge.Slot{}, map[string]bool{}
	if err := eachRecord(ctx, r.in.store, KindActualLRPs, "", func(rec record.Record) error {
		guid, index, slot, err := r.slot(rec)
		if err != nil {
			broken[guid] = true
			return skip(err)
		}
		if slots[guid] == nil {
			slots[guid] = map[int]converge.Slot{}
		}
		slots[guid][index] = slot
		return nil
	}); err != nil {
		return err
	}
	var todo []string
	check := func(guid string, p converge.Process) {
		p.Slots, p.Lost = slots[guid], lost
		delete(slots, guid)
		if !broken[guid] && len(converge.Decide(p, time.Now())) > 0 {
			todo = append(todo, guid)
		}
	}
	if err := eachRecord(ctx, r.in.store, r.processes.kind, "", func(rec record.Record) error {
		guid, p, err := r.processes.read(rec)
		if err != nil {
			name, _ := rec.Key.Name()
			delete(slots, name)
			return skip(err)
		}
		check(guid, p)
		return nil
	}); err != nil {
		return err
	}
	for guid := range slots {
		check(guid, converge.Process{}) // it was deleted
	}
	for _, guid := range todo {
		if err := skip(r.one(ctx, guid, lost)); err != nil {
			return err
		}
	}
	return errors.Join(unreadable...)
}

// one makes of a process what it asks for. Each change is made of what was read, or not: it was
// changed meanwhile then, and is looked at again for that.
func (r reconciler[G, C]) one(ctx context.Context, guid string, lost map[string]bool) error {
	p, err := r.processes.find(ctx, guid)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return err
	}
	p.Slots, p.Lost = map[int]converge.Slot{}, lost
	recs := map[int]record.Record{}
	if err := eachRecord(ctx, r.in.store, KindActualLRPs, converge.NamesOf(guid), func(rec record.Record) error {
		_, index, slot, err := r.slot(rec)
		p.Slots[index], recs[index] = slot, rec
		return err
	}); err != nil {
		return err
	}
	for _, a := range converge.Decide(p, time.Now()) {
		var err error
		switch a.Op {
		case converge.Heal, converge.FallBack, converge.Prune:
			err = r.processes.decide(ctx, guid, p, a)
		case converge.Delete:
			rec := recs[a.Index]
			err = r.in.store.Write(ctx, []record.Mutation{{Kind: KindActualLRPs, Key: rec.Key, Match: record.MatchDoc(rec.Doc)}})
		default:
			_, there := recs[a.Index]
			err = r.put(ctx, guid, a, there)
		}
		if err != nil && !overtaken(err) {
			return fmt.Errorf("%s %s: %w", a.Op, converge.Name(guid, a.Index), err)
		}
	}
	return nil
}

// overtaken reports an action that somebody else's came before.
func overtaken(err error) bool {
	return errors.Is(err, record.ErrMismatch) || errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrExists) || errors.Is(err, errOvertaken)
}

var errOvertaken = errors.New("it has changed since it was decided on")

// put makes an action on a slot.
func (r reconciler[G, C]) put(ctx context.Context, guid string, a converge.Action, there bool) error {
	name := converge.Name(guid, a.Index)
	if !there {
		g := r.in.forms.group(name, guid, a.Index)
		r.in.set(g, a.Slot)
		_, err := r.in.table.Insert(ctx, g)
		return err
	}
	_, err := r.in.table.Change(ctx, r.in.forms.request(name), func(g G) error {
		if !r.in.forms.slot(g).Equal(a.Was) {
			return errOvertaken
		}
		r.in.set(g, a.Slot)
		return nil
	})
	return err
}

func (r reconciler[G, C]) slot(rec record.Record) (guid string, index int, s converge.Slot, err error) {
	name, _ := rec.Key.Name() // lists are of records with names
	if guid, index, err = converge.SplitName(name); err != nil {
		return "", 0, s, fmt.Errorf("%w: %w", apiversion.ErrStored, err)
	}
	g, err := r.in.table.Decode(rec)
	if err != nil {
		return guid, index, s, err
	}
	return guid, index, r.in.forms.slot(g), nil
}

// lost are the cells that have reported, and not for some time. One that never did is not known.
func (r reconciler[G, C]) lost(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	return out, eachRecord(ctx, r.in.store, KindCells, "", func(rec record.Record) error {
		c, err := r.in.cells.Decode(rec)
		if err != nil {
			return err
		}
		if id, at := r.in.forms.seenAt(c); time.Since(at) > cellTimeout {
			out[id] = true
		}
		return nil
	})
}

// eachRecord calls f for the records of a kind whose names begin so.
func eachRecord(ctx context.Context, store vrunner.Store, kind, prefix string, f func(record.Record) error) error {
	const batch = 1000
	for after := ""; ; {
		recs, err := store.List(ctx, kind, prefix, after, batch)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			after, _ = rec.Key.Name()
			if err := f(rec); err != nil {
				return err
			}
		}
		if len(recs) < batch {
			return nil
		}
	}
}
