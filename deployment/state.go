package deployment

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/backfill"
	"dbcontroller.dev/coord"
	"dbcontroller.dev/switchover"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/upgradestate"
)

// State is all that is known of a deployment: its record, and what its processes say of
// themselves. The parts are read one after the other, so that they may be of different
// moments.
type State struct {
	Record      upgradestate.Deployment
	Progress    []syncer.Progress // by shard, at most one for each
	Servers     []upgradestate.ServerState
	Controllers []string
	Insecure    []Insecure            // controllers that warn of themselves
	Readiness   *switchover.Readiness // nil: nobody drives an upgrade
	Names       *FormerNames          // nil: nobody has looked
	Back        ParkedCount           // in the direction of BackDirection
	Updating    []backfill.Progress   // of the data update that runs
}

// BackDirection is the direction in which the version that the latest switch came from is
// kept in sync now; false if it is not.
func BackDirection(d upgradestate.Deployment) (dir syncer.DirectionKey, ok bool) {
	last := d.LastSwitch
	if last == nil || last.To != d.CurrentVersion || upgradestate.Retired(d, last.From) {
		return "", false
	}
	to, ok := upgradestate.Followed(d)
	if !ok || to.TargetVersion != last.From || d.Upgrade != nil && d.Upgrade.Snapshot {
		return "", false
	}
	return syncer.KeyIn(d, to), true
}

// State reads what is known next to a record of the deployment.
func (s *Store) State(ctx context.Context, d upgradestate.Deployment) (State, error) {
	state := State{Record: d}
	var err error
	if state.Progress, err = s.Progress(ctx); err != nil {
		return State{}, err
	}
	if state.Servers, err = s.Servers(ctx); err != nil {
		return State{}, err
	}
	if state.Controllers, err = s.Controllers(ctx); err != nil {
		return State{}, err
	}
	if state.Insecure, err = s.Insecure(ctx); err != nil {
		return State{}, err
	}
	if state.Readiness, err = s.Readiness(ctx); err != nil {
		return State{}, err
	}
	if d.LastSwitch != nil {
		if state.Names, err = s.FormerNames(ctx); err != nil {
			return State{}, err
		}
	}
	if d.Update != nil {
		if state.Updating, err = s.UpdateProgress(ctx); err != nil {
			return State{}, err
		}
	}
	if state.Back, err = s.ParkedBack(ctx, d); err != nil {
		return State{}, err
	}
	return state, nil
}

// ParkedBack counts what is parked in the direction of BackDirection.
func (s *Store) ParkedBack(ctx context.Context, d upgradestate.Deployment) (ParkedCount, error) {
	dir, ok := BackDirection(d)
	if !ok {
		return ParkedCount{}, nil
	}
	list, err := s.Parked(ctx, dir, -1)
	return CountParked(list), err
}

// Feed follows the state of a deployment by watches of its parts. Run does the work.
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

// Feed returns a feed of the deployment.
func (s *Store) Feed() *Feed { return &Feed{store: s, changed: make(chan struct{}, 1)} }

// Run watches until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, prefix := range f.prefixes() {
		g.Go(func() error {
			f.store.follow(ctx, prefix, func(kvs map[string]coord.KV) { f.set(i, clone(kvs)) })
			return ctx.Err()
		})
	}
	return g.Wait()
}

// Changed is signalled (conflated) whenever State may return another one than before.
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
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// State is what the watches have brought; false until every part was listed, and while there
// is no record.
func (f *Feed) State() (state State, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, kvs := range f.parts {
		if kvs == nil {
			return State{}, false, nil
		}
	}
	kv, ok := f.parts[partRecord][f.store.recordKey()]
	if !ok {
		return State{}, false, nil
	}
	if state.Record, err = f.store.decode(kv); err != nil {
		return State{}, false, err
	}
	if state.Progress, err = decodeProgress(values(f.parts[partProgress])); err != nil {
		return State{}, false, err
	}
	if state.Servers, err = decodeServers(values(f.parts[partServers])); err != nil {
		return State{}, false, err
	}
	state.Controllers = controllerIDs(values(f.parts[partControllers]))
	if state.Insecure, err = decodeInsecure(values(f.parts[partInsecure])); err != nil {
		return State{}, false, err
	}
	if state.Updating, err = decodeUpdating(values(f.parts[partUpdating])); err != nil {
		return State{}, false, err
	}
	if dir, ok := BackDirection(state.Record); ok {
		parked, err := decodeParked(f.store.parkedPrefix(dir), values(f.parts[partParked]))
		if err != nil {
			return State{}, false, err
		}
		state.Back = CountParked(parked)
	}
	if kv, ok := f.parts[partReadiness][f.store.readinessKey()]; ok {
		if state.Readiness, err = decodeReadiness(kv); err != nil {
			return State{}, false, err
		}
	}
	return state, true, nil
}
