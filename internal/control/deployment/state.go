package deployment

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// State is everything known about a deployment: its record, and the announcements of its processes.
// The parts are read one after the other, so they may be from different moments.
type State struct {
	Record      upgradestate.Deployment
	Progress    []syncer.Progress // by shard, at most one for each
	Servers     []upgradestate.ServerState
	Controllers []string
	Insecure    []Insecure            // controllers with security warnings
	Readiness   *switchover.Readiness // nil: nobody drives an upgrade
	Names       *FormerNames          // nil: nobody has observed them
	Back        ParkedCount           // in the direction of BackDirection
	Updating    []backfill.Progress   // of the running data update
	Unreadable  []string              // values missing above, each with its key and error
}

// BackDirection returns the direction that keeps the version before the latest switch in sync. It
// returns false if that version is not kept in sync.
func BackDirection(d upgradestate.Deployment) (dir syncer.DirectionKey, ok bool) {
	last := d.LastSwitch
	// The way back exists only for the current version, and not after the old one was retired.
	if last == nil || last.To != d.CurrentVersion || upgradestate.Retired(d, last.From) {
		return "", false
	}
	to, ok := upgradestate.Followed(d)
	// A rollback to a snapshot does not follow the old version.
	if !ok || to.TargetVersion != last.From || d.Upgrade != nil && d.Upgrade.Snapshot {
		return "", false
	}
	return syncer.KeyIn(d, to), true
}

// State reads everything that is stored next to a record of the deployment.
func (s *Store) State(ctx context.Context, d upgradestate.Deployment) (State, error) {
	state := State{Record: d}
	progress, bad, err := s.progress(ctx)
	if err != nil {
		return State{}, err
	}
	state.Progress = progress
	state.lacks(bad...)
	if state.Servers, bad, err = s.servers(ctx); err != nil {
		return State{}, err
	}
	state.lacks(bad...)
	if state.Controllers, err = s.Controllers(ctx); err != nil {
		return State{}, err
	}
	if state.Insecure, bad, err = s.insecure(ctx); err != nil {
		return State{}, err
	}
	state.lacks(bad...)
	// An unreadable value must not hide the rest from an operator; it is listed in Unreadable.
	if state.Readiness, err = s.Readiness(ctx); state.lost(err) {
		return State{}, err
	}
	// Without a switch there are no former names.
	if d.LastSwitch != nil {
		if state.Names, err = s.FormerNames(ctx); state.lost(err) {
			return State{}, err
		}
	}
	if d.Update != nil {
		if state.Updating, bad, err = s.updateProgress(ctx); err != nil {
			return State{}, err
		}
		state.lacks(bad...)
	}
	back, err := s.parkedBack(ctx, d)
	if err != nil {
		return State{}, err
	}
	state.back(back)
	return state, nil
}

// lacks notes unreadable values.
func (s *State) lacks(bad ...error) {
	for _, err := range bad {
		s.Unreadable = append(s.Unreadable, err.Error())
	}
}

// lost reports whether an error prevents showing the state. An unreadable value does not; lost
// notes it.
func (s *State) lost(err error) bool {
	if errors.Is(err, ErrCorrupt) {
		s.lacks(err)
		return false
	}
	return err != nil
}

// back notes the parked groups in the direction of BackDirection.
func (s *State) back(list []syncer.Parked) {
	s.Back = CountParked(list)
	for _, p := range list {
		if p.Spec == syncer.UnreadableSpec {
			s.Unreadable = append(s.Unreadable, p.Error)
		}
	}
}

// ParkedBack counts the parked groups in the direction of BackDirection.
func (s *Store) ParkedBack(ctx context.Context, d upgradestate.Deployment) (ParkedCount, error) {
	list, err := s.parkedBack(ctx, d)
	return CountParked(list), err
}

func (s *Store) parkedBack(ctx context.Context, d upgradestate.Deployment) ([]syncer.Parked, error) {
	dir, ok := BackDirection(d)
	if !ok {
		return nil, nil
	}
	return s.Parked(ctx, dir, -1)
}

// Feed follows the state of a deployment by watching its parts. Run does the work; the other
// methods may be called concurrently with it.
type Feed struct {
	store   *Store
	changed chan struct{}

	mu    sync.Mutex
	parts [feedParts]map[string]coord.KV // as in prefixes; nil until listed
}

const (
	partRecord = iota
	partProgress
	partServers
	partControllers
	partInsecure
	partParked
	partReadiness
	partUpdating
	feedParts
)

// Feed returns a feed of the deployment. It is empty until Run is called.
func (s *Store) Feed() *Feed { return &Feed{store: s, changed: make(chan struct{}, 1)} }

// Run watches until ctx ends, and returns its error.
func (f *Feed) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, prefix := range f.prefixes() {
		g.Go(func() error {
			// The map belongs to follow, so keep a copy.
			f.store.follow(ctx, prefix, func(kvs map[string]coord.KV) { f.set(i, clone(kvs)) }, nil)
			return ctx.Err()
		})
	}
	return g.Wait()
}

// Changed is signalled whenever State may return a different result. Signals are combined.
func (f *Feed) Changed() <-chan struct{} { return f.changed }

func (f *Feed) prefixes() [feedParts]string {
	return [feedParts]string{
		partRecord: f.store.recordKey(), partProgress: f.store.key("progress", ""),
		partServers: f.store.key("servers", ""), partControllers: f.store.key("controllers", ""),
		partInsecure: f.store.key("insecure", ""),
		partParked:   f.store.key("parked", ""), partReadiness: f.store.readinessKey(),
		partUpdating: f.store.updatingPrefix(),
	}
}

func (f *Feed) set(part int, kvs map[string]coord.KV) {
	f.mu.Lock()
	f.parts[part] = kvs
	f.mu.Unlock()
	// The channel has room for one signal; one that is waiting covers this change too.
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// State returns the state from the watches. It returns false until every part was listed, and while
// there is no record.
func (f *Feed) State() (state State, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Until every part was listed, a missing value may just not have arrived yet.
	for _, kvs := range f.parts {
		if kvs == nil {
			return State{}, false, nil
		}
	}
	kv, ok := f.parts[partRecord][f.store.recordKey()]
	if !ok {
		return State{}, false, nil
	}
	if state.Record, err = f.store.learn(kv); err != nil {
		return State{}, false, err
	}
	// An unreadable value of one part must not hide the others.
	var bad [4][]error
	state.Progress, bad[0] = decodeProgress(values(f.parts[partProgress]))
	state.Servers, bad[1] = decodeServers(values(f.parts[partServers]))
	state.Controllers = controllerIDs(values(f.parts[partControllers]))
	state.Insecure, bad[2] = decodeInsecure(values(f.parts[partInsecure]))
	state.Updating, bad[3] = decodeUpdating(values(f.parts[partUpdating]))
	for _, of := range bad {
		state.lacks(of...)
	}
	if dir, ok := BackDirection(state.Record); ok {
		state.back(decodeParked(dir, f.store.parkedPrefix(dir), values(f.parts[partParked])))
	}
	if kv, ok := f.parts[partReadiness][f.store.readinessKey()]; ok {
		state.Readiness, err = decodeReadiness(kv)
		state.lost(err) // fails for a corrupt value only
	}
	slices.Sort(state.Unreadable) // the parts have no order
	return state, true, nil
}
