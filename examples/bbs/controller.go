package bbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/examples/bbs/converge"
	"dbcontroller.dev/examples/bbs/outbound"
	"dbcontroller.dev/examples/bbs/task"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// ControllerV1 returns the reconciler of v1. It starts, replaces and retires instances as package
// converge decides: on each change, and for all processes after each period of length every.
func ControllerV1(v1 vrunner.Store, every time.Duration) vrunner.Controller {
	return newReconciler(newInstancesV1(v1), every).controller()
}

// ControllerV2 returns the reconciler of v2, which also decides on definitions.
func ControllerV2(v2 vrunner.Store, every time.Duration) vrunner.Controller {
	return newReconciler(newInstancesV2(v2), every).controller()
}

// TasksV1 returns the controller of v1's tasks, and TasksV2 that of v2's.
func TasksV1(v1 vrunner.Store, cfg task.Config) vrunner.Controller {
	return task.ControllerV1(v1, newInstancesV1(v1), cfg)
}

func TasksV2(v2 vrunner.Store, cfg task.Config) vrunner.Controller {
	return task.ControllerV2(v2, newInstancesV2(v2), cfg)
}

// processes reads the desired state of processes from one version's data.
type processes struct {
	kind string
	// read decodes a process from its own record.
	read func(record.Record) (guid string, p converge.Process, err error)
	// find reads a process. It returns record.ErrNotFound if there is none.
	find func(ctx context.Context, guid string) (converge.Process, error)
	// decide applies an action about definitions, if the process is still as in was.
	decide func(ctx context.Context, guid string, was converge.Process, a converge.Action) error
}

// reconciler knows no more about a switch than a handler does. A switch ends its run, and the other
// version's reconciler starts. That one finds all unfinished work in its own data.
type reconciler[G, C proto.Message] struct {
	in    instances[G, C]
	every time.Duration
	stops *outbound.Calls // to cells, during a run; nil: none
}

func newReconciler[G, C proto.Message](in instances[G, C], every time.Duration) reconciler[G, C] {
	return reconciler[G, C]{in: in, every: every}
}

func (r reconciler[G, C]) controller() vrunner.Controller {
	// With a leader, only one server reconciles, and writes seldom conflict.
	return vrunner.Controller{Name: "bbs-convergence", Leader: true, Run: r.run}
}

// run checks all processes, and then follows changes until the next full check. Full checks are
// needed because an expired timeout or a lost cell changes no record.
func (r reconciler[G, C]) run(ctx context.Context) error {
	changes, err := r.in.store.Changes(ctx, r.in.processes.kind, KindActualLRPs)
	if err != nil {
		return err
	}
	defer changes.Close()
	r.stops = outbound.NewCalls(ctx, maxStops)
	defer r.stops.Wait() // they end with ctx, or by their own limit
	// The subscription opened before the first full check, so no change is lost in between.
	for {
		again := time.Now().Add(r.every)
		unreadable := r.all(ctx)
		if unreadable != nil && !errors.Is(unreadable, apiversion.ErrStored) {
			return unreadable
		}
		// An unreadable record must not stop the others, so its error waits until after the next
		// round.
		if err := r.follow(ctx, changes, again); err != nil {
			return err
		}
		if unreadable != nil {
			return unreadable // one error for each full check; the other processes were reconciled
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
		case err == nil: // also at the deadline: a full check asks no cell to stop an instance
		// Lost changes are covered by the full check that follows.
		case bounded.Err() != nil, errors.Is(err, vrunner.ErrLost):
			return nil
		default:
			return err
		}
		// One batch often holds several changes of a process, for which one look is enough.
		seen := map[string]bool{}
		for _, d := range dirty {
			guid := d.Name
			if d.Kind == KindActualLRPs {
				if guid, _, err = converge.SplitName(d.Name); err != nil {
					continue // foreign record
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
		// Changes that never end must not keep it from the full check.
		if bounded.Err() != nil {
			return nil
		}
	}
}

// all checks each process and instance. For most, the process's record and its instances suffice:
// they are already as desired. An unreadable record stops its own process only. all then still
// checks the others, and its error matches apiversion.ErrStored.
func (r reconciler[G, C]) all(ctx context.Context) error {
	lost, err := r.in.Lost(ctx)
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
	slots, broken := map[string]map[converge.Key]converge.Slot{}, map[string]bool{}
	if err := eachRecord(ctx, r.in.store, KindActualLRPs, "", func(rec record.Record) error {
		guid, key, slot, err := r.in.slot(rec)
		if err != nil {
			// A process with an unreadable instance is left alone: Decide would place a second one.
			broken[guid] = true
			return skip(err)
		}
		if slots[guid] == nil {
			slots[guid] = map[converge.Key]converge.Slot{}
		}
		slots[guid][key] = slot
		return nil
	}); err != nil {
		return err
	}
	// A cheap check on the records already read finds the processes that need a complete read.
	var todo []string
	check := func(guid string, p converge.Process) {
		p.Slots, p.Lost = slots[guid], lost
		delete(slots, guid)
		if !broken[guid] && len(converge.Decide(p, time.Now())) > 0 {
			todo = append(todo, guid)
		}
	}
	if err := eachRecord(ctx, r.in.store, r.in.processes.kind, "", func(rec record.Record) error {
		guid, p, err := r.in.processes.read(rec)
		if err != nil {
			// Without its process these instances would look deleted, and be retired.
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
		check(guid, converge.Process{}) // its process was deleted
	}
	for _, guid := range todo {
		if err := skip(r.one(ctx, guid, lost)); err != nil {
			return err
		}
	}
	return errors.Join(unreadable...)
}

// one reconciles a single process. Each write is conditional on the data that Decide saw. If
// another writer was faster, the write fails, and that writer's change triggers the next attempt.
func (r reconciler[G, C]) one(ctx context.Context, guid string, lost map[string]bool) error {
	p, err := r.in.processes.find(ctx, guid)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return err
	}
	p.Slots, p.Lost = map[converge.Key]converge.Slot{}, lost
	recs := map[converge.Key]record.Record{}
	if err := eachRecord(ctx, r.in.store, KindActualLRPs, converge.NamesOf(guid), func(rec record.Record) error {
		_, key, slot, err := r.in.slot(rec)
		p.Slots[key], recs[key] = slot, rec
		return err
	}); err != nil {
		return err
	}
	for _, s := range p.Slots {
		r.stop(guid, s.Instance)
		r.stop(guid, s.Evacuating)
	}
	for _, a := range converge.Decide(p, time.Now()) {
		var err error
		switch a.Op {
		// These change the process's own record, and only v2 has them.
		case converge.Heal, converge.FallBack, converge.Prune:
			err = r.in.processes.decide(ctx, guid, p, a)
		case converge.Delete:
			// The slot must still be as it was read. A cell may have reported meanwhile.
			rec := recs[a.Key]
			err = r.in.store.Write(ctx, []record.Mutation{{Kind: KindActualLRPs, Key: rec.Key, Match: record.MatchDoc(rec.Doc)}})
		default:
			_, there := recs[a.Key]
			err = r.put(ctx, guid, a, there)
		}
		// The change of the faster writer brings the process back here.
		if err != nil && !overtaken(err) {
			return fmt.Errorf("%s %s: %w", a.Op, converge.Name(guid, a.Key), err)
		}
	}
	return nil
}

// maxStops bounds the calls to cells at the same time. A cell that gets no call polls.
const maxStops = 16

// stop asks the cell of an instance that is to stop. Each change of the process brings its instances
// here, also the one that marks the instance. The cell removes the instance by an ordinary report.
func (r reconciler[G, C]) stop(guid string, i *converge.Instance) {
	if r.stops == nil || i == nil || !i.Retire || !i.OnCell() {
		return
	}
	r.stops.Go(i.GUID, func(ctx context.Context) {
		if url, err := r.in.RepURL(ctx, i.Cell); err == nil && url != "" {
			_ = outbound.StopInstance(ctx, url, guid, i.GUID) // if it is lost, the cell finds the mark when it polls
		}
	})
}

// overtaken reports whether an action failed because another writer was faster.
func overtaken(err error) bool {
	return errors.Is(err, record.ErrMismatch) || errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrExists) || errors.Is(err, errOvertaken)
}

var errOvertaken = errors.New("it has changed since it was decided on")

// put applies an action to a slot.
func (r reconciler[G, C]) put(ctx context.Context, guid string, a converge.Action, there bool) error {
	// An insert fails if another writer has created the slot meanwhile.
	if !there {
		g := r.in.forms.group(guid, a.Key)
		r.in.set(g, a.Slot)
		_, err := r.in.table.Insert(ctx, g)
		return err
	}
	_, err := r.in.table.Change(ctx, r.in.forms.request(converge.Name(guid, a.Key)), func(g G) error {
		// A cell may have reported since. Its report must not be overwritten by an older decision.
		if !r.in.forms.slot(g).Equal(a.Was) {
			return errOvertaken
		}
		r.in.set(g, a.Slot)
		return nil
	})
	return err
}

// eachRecord calls f for the records of a kind whose names start with prefix.
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
