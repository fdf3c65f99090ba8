package switchover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// act runs one action and returns the resulting event. It turns an error that no retry can cure
// into an abort of the attempt.
func (r *Driver) act(ctx context.Context, d upgradestate.Deployment, a upgradestate.Action) (upgradestate.Event, error) {
	ev, err := r.do(ctx, d, a)
	if u := d.Upgrade; (errors.Is(err, record.ErrTaken) || errors.Is(err, record.ErrLapsed)) && u != nil && u.State == upgradestate.Switching && u.Step != upgradestate.StepAbort {
		// Another collection has the name, or writes may have passed a fence after the drain. Retries
		// cannot help; abort now and release clients' writes.
		return r.giveUp(d, err.Error()), nil
	}
	if u := d.Upgrade; errors.Is(err, record.ErrBroken) && u != nil && u.Step == upgradestate.StepFence {
		// The collection to be fenced no longer belongs to the application.
		return r.giveUp(d, "a collection was replaced during the switch: "+err.Error()), nil
	}
	return ev, err
}

// do runs one action. A nil event without an error means that nothing changed yet.
func (r *Driver) do(ctx context.Context, d upgradestate.Deployment, a upgradestate.Action) (upgradestate.Event, error) {
	switch a := a.(type) {
	case upgradestate.Hold:
		if !r.hold(ctx, d, a) {
			return nil, nil
		}
		return upgradestate.Held{ID: a.ID, Attempt: a.Attempt}, nil
	case upgradestate.Execute:
		done := upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From}
		return withKept(a.Version, a.Place.Kind, done, r.execute(ctx, a))
	case upgradestate.Prevent:
		return r.prevent(ctx, a)
	case upgradestate.Unfence:
		done := upgradestate.Unfenced{Version: a.Version, Kind: a.Place.Kind, From: a.From}
		return withKept(a.Version, a.Place.Kind, done, r.unfence(ctx, a))
	case upgradestate.StartSwitch:
		return r.start(ctx, d, a), nil
	case upgradestate.Drained:
		return r.drained(ctx, d, a)
	case upgradestate.Flip:
		var g errgroup.Group // writes are held: run these in parallel
		g.Go(func() error { r.locate(ctx, d.Upgrade.TargetVersion); return nil })
		g.Go(func() error { return r.mark(ctx, d.Upgrade, func(m Marks) error { return m.BeforeFlip(ctx, d) }) })
		err := r.look(ctx, d)
		if err = errors.Join(g.Wait(), err); err != nil {
			return nil, err
		}
		// Everything is confirmed, so target and source can be compared for the last time.
		if r.differ != nil {
			if err := r.differ(ctx, d); errors.Is(err, ErrIntruded) {
				return r.giveUp(d, err.Error()), nil
			} else if err != nil {
				return nil, err
			}
		}
		a.Switch = r.measured(d)
		// The last check before the flip, so that the least time passes between the two.
		return a, r.refence(ctx, d)
	case upgradestate.FinishAbort:
		return upgradestate.Aborted{ID: a.ID, Attempt: a.Attempt}, nil
	case upgradestate.AwaitReports:
		return nil, nil
	default:
		return nil, fmt.Errorf("unknown action %T", a)
	}
}

// withKept adds to the event a breach report for each thing that the operation left for an operator
// to review (record.KeptError). Any other error passes through.
func withKept(version, kind string, done upgradestate.Event, err error) (upgradestate.Event, error) {
	var kept *record.KeptError
	if !errors.As(err, &kept) {
		return done, err
	}
	all := upgradestate.Together{}
	at := time.Now().UTC().Format(time.RFC3339)
	for _, b := range kept.Kept {
		all.Events = append(all.Events, upgradestate.Breached{Breach: upgradestate.Breach{
			At: at, Version: version, Kind: kind, What: b.What, Aside: b.Aside, Count: b.Count,
		}})
	}
	all.Events = append(all.Events, done)
	return all, nil
}

// hold waits until the servers hold writes, at most HoldTimeout. It returns false when a newer
// record arrives first, because an abort does not wait for servers.
func (r *Driver) hold(ctx context.Context, d upgradestate.Deployment, a upgradestate.Hold) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	held := make(chan error, 1)
	go func() {
		short, cancel := context.WithTimeout(ctx, r.cfg.HoldTimeout)
		defer cancel()
		held <- r.deployments.Held(short, a.ID, a.Attempt)
	}()
	watch := r.watch
	for {
		select {
		case err := <-held:
			// A silent server does not stop the switch: the fence refuses its writes.
			if err != nil && ctx.Err() == nil {
				r.log.Warn("not every server holds its writes; the fence will refuse them", zap.Error(err))
			}
			return ctx.Err() == nil
		case seen, open := <-watch:
			if !open {
				watch = nil // ctx is ending; held reports that
			} else if seen.Revision > d.Revision {
				// Keep the record: the watch delivers it only once, and Run must act on it next.
				r.ahead = &seen
				cancel()
				// Wait for the goroutine, so that it does not outlive this pass.
				<-held //nolint:errcheck // the pass ends in any case
				return false
			}
		}
	}
}

// start begins SWITCHING unless something outside the record blocks it. It returns nil after
// publishing the blockers.
func (r *Driver) start(ctx context.Context, d upgradestate.Deployment, a upgradestate.StartSwitch) upgradestate.Event {
	o := r.checkReadiness(ctx, d)
	// Preparations change databases, so they run only when nothing else blocks.
	if p, ok := r.cfg.Checks.(Preparer); ok && len(o.WaitsFor) == 0 {
		if err := p.PrepareSwitch(ctx, d); err != nil {
			o.blockErr(upgradestate.BlockPrepare, d.Upgrade.TargetVersion, err)
		}
	}
	if len(o.WaitsFor) == 0 {
		if err := r.ready(ctx, d); err != nil {
			o.blockErr(upgradestate.BlockFence, d.CurrentVersion, err)
		}
	}
	if len(o.WaitsFor) == 0 && r.cfg.Target != nil && !d.Upgrade.Snapshot {
		// Take the position before the switch: changes by others after it count as an intrusion.
		since, err := r.cfg.Target.Since(ctx, d.Upgrade.TargetVersion)
		if a.TargetSince = since; err != nil {
			o.blockErr(upgradestate.BlockPosition, d.Upgrade.TargetVersion, fmt.Errorf("a place in the changes of %s: %w", d.Upgrade.TargetVersion, err))
		}
	}
	r.publish(ctx, &o)
	if len(o.WaitsFor) > 0 {
		return nil
	}
	return a
}

// ready lets the source prepare its fences before servers hold writes, which shortens the pause.
func (r *Driver) ready(ctx context.Context, d upgradestate.Deployment) error {
	f, err := r.fencer(d.CurrentVersion)
	if err != nil {
		return err
	}
	return f.Ready(ctx, nextFences(d))
}

// unready reverts unused preparations of an aborted attempt. Clients write again by now, so a
// failure is only logged.
func (r *Driver) unready(ctx context.Context, d upgradestate.Deployment) {
	f, err := r.fencer(d.CurrentVersion)
	if err == nil {
		err = f.Unready(ctx, nextFences(d))
	}
	if err != nil {
		r.log.Warn("cannot remove the preparations of fences; the next attempt does", zap.Error(err))
	}
}

// nextFences lists the fences of the next switch.
func nextFences(d upgradestate.Deployment) (fs []record.Fence) {
	for _, a := range upgradestate.NextFences(d) {
		fs = append(fs, fence(a))
	}
	return fs
}

// drained continues to the seal, or aborts when the drain found something that must not pass the
// flip. An abort here loses nothing.
func (r *Driver) drained(ctx context.Context, d upgradestate.Deployment, a upgradestate.Drained) (upgradestate.Event, error) {
	// An index build that started in the meantime would delay the seal. It would also delay the
	// opening after the flip, which nobody can abort any longer.
	var found []upgradestate.Blocker
	var refused, unknown, uncounted error
	var parked int
	// Writes are held: check all in parallel. All shards have reported, so the count is final, and
	// the other checks only read.
	var g sync.WaitGroup
	g.Go(func() { found, unknown = r.hindrances(ctx, d) })
	g.Go(func() { parked, uncounted = r.parked(ctx, d) })
	if r.cfg.Checks != nil {
		refused = r.cfg.Checks.BeforeSeal(ctx, d)
	}
	g.Wait()
	switch {
	case uncounted != nil:
		return nil, fmt.Errorf("count parked groups: %w", uncounted)
	case parked > 0:
		return upgradestate.Abort{ID: a.ID, Attempt: d.Upgrade.Attempt, Reason: fmt.Sprintf("%d groups were parked during the switch: see 'parked', fix or waive them, and begin again", parked)}, nil
	// A cause that passes allows another attempt; any other refusal needs an operator.
	case errors.Is(refused, ErrPasses):
		return r.giveUp(d, refused.Error()), nil
	case refused != nil:
		return upgradestate.Abort{ID: a.ID, Attempt: d.Upgrade.Attempt, Reason: refused.Error()}, nil
	case unknown != nil:
		return nil, unknown
	case len(found) > 0:
		return r.giveUp(d, "an operation that began during the switch blocks it: "+strings.Join(texts(found), "; ")), nil
	}
	return a, nil
}

// fencesAtOnce is the number of fences that refence confirms in parallel.
const fencesAtOnce = 32

// refence confirms the fences of fixed-name kinds again, right before the flip. Their fence classes
// cannot bind a fence to one attempt, so a driver that paused and woke up late may have removed
// one, as may a person. The target would lack what clients wrote since, so the attempt is then over.
func (r *Driver) refence(ctx context.Context, d upgradestate.Deployment) error {
	source, _ := d.Namespace(d.CurrentVersion)
	f, err := r.fencer(source.Version)
	if err != nil {
		return err
	}
	var g errgroup.Group // writes are held: run them in parallel
	g.SetLimit(fencesAtOnce)
	for _, k := range source.Kinds {
		// A rename by identity (FenceUUID) binds the fence to one attempt and needs no second look.
		if !k.Fixed || k.Fenced == "" || k.Fence == string(record.FenceUUID) {
			continue
		}
		tok := record.Token{Kind: k.Kind, Name: k.Kind, ID: k.ID, Fixed: true}
		g.Go(func() error {
			if err := f.Fence(ctx, record.Fence{Class: record.FenceClass(k.Fence), Token: tok, To: k.Fenced, Restore: k.Restore, Standing: true}); err != nil {
				return fmt.Errorf("confirm the fence of %s/%s again: %w", source.Version, k.Kind, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// mark calls the Marks once per try of the flip. An abort counts as an attempt of its own.
func (r *Driver) mark(ctx context.Context, u *upgradestate.Upgrade, tell func(Marks) error) error {
	now := attempt{u.ID, u.Attempt}
	if r.cfg.Marks == nil || r.marked == now {
		return nil
	}
	if err := tell(r.cfg.Marks); err != nil {
		return err
	}
	// Set only after success, so that a retry writes the marks.
	r.marked = now
	return nil
}

// locateTimeout bounds the delay that locate may add to the pause.
const locateTimeout = 500 * time.Millisecond

// locate stores the current change position of the target while no client writes there. Without it,
// the reverse sync has to compare everything.
func (r *Driver) locate(ctx context.Context, target string) {
	if r.cfg.Position == nil || r.position != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	at, err := r.cfg.Position(ctx, target)
	// Not fatal: the position only saves work after the flip.
	if err != nil {
		r.log.Warn("cannot get the position for the reverse sync", zap.Error(err))
		return
	}
	r.position = at
}

// fence converts an announced operation to the form that a database takes.
func fence(a upgradestate.Execute) record.Fence {
	return record.Fence{Class: record.FenceClass(a.Class), Token: token(a.Place), To: a.Pending.To, Restore: a.Restore, Ends: a.Ends}
}

func (r *Driver) execute(ctx context.Context, a upgradestate.Execute) error {
	f, err := r.fencer(a.Version)
	if err != nil {
		return err
	}
	if err := f.Fence(ctx, fence(a)); err != nil {
		return fmt.Errorf("%s of %s/%s: %w", a.Pending.Reason, a.Version, a.Place.Kind, err)
	}
	return nil
}

// prevent resolves a rename that an abort must not wait for: the database either confirms it or
// makes sure that it never happens.
func (r *Driver) prevent(ctx context.Context, a upgradestate.Prevent) (upgradestate.Event, error) {
	f, err := r.fencer(a.Version)
	if err != nil {
		return nil, err
	}
	moved, err := f.Prevent(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: token(a.Place), To: a.Pending.To})
	if errors.Is(err, record.ErrNotFound) {
		// The collection was dropped, or its shard was moved, so no rename of it can happen. The abort
		// must end all the same: until then the state machine refuses every other remedy.
		r.log.Warn("a collection that must get its name back is gone", zap.String("version", a.Version), zap.String("kind", a.Place.Kind), zap.Error(err))
	} else if err != nil {
		return nil, fmt.Errorf("abandon the %s of %s/%s: %w", a.Pending.Reason, a.Version, a.Place.Kind, err)
	}
	if moved {
		return upgradestate.Confirmed{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To, From: a.Pending.From}, nil
	}
	return upgradestate.Prevented{Version: a.Version, Kind: a.Place.Kind, To: a.Pending.To}, nil
}

func (r *Driver) unfence(ctx context.Context, a upgradestate.Unfence) error {
	f, err := r.fencer(a.Version)
	if err != nil {
		return err
	}
	tok := token(a.Place)
	tok.Name = a.To
	if err := f.Unfence(ctx, record.Fence{Class: record.FenceClass(a.Class), Token: tok, To: a.From, Restore: a.Restore, Ends: a.Ends}); err != nil {
		return fmt.Errorf("remove the fence of %s/%s: %w", a.Version, a.Place.Kind, err)
	}
	return nil
}

func (r *Driver) fencer(version string) (record.Fencer, error) {
	f := r.fencers[version]
	if f == nil {
		return nil, fmt.Errorf("version %s is not configured here", version)
	}
	return f, nil
}

func token(p upgradestate.Place) record.Token {
	return record.Token{Kind: p.Kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
}
