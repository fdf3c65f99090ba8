package controller

import (
	"context"
	"fmt"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// updates serves the data updates of this controller's registry to the API.
type updates struct {
	registry   *transform.Registry
	deployment *deployment.Store
	keys       *keys.Keeper
	imports    *imports
}

var _ api.Updates = updates{}

// Tasks lists the data updates.
func (u updates) Tasks() []*pb.ListUpdatesResponse_Task {
	var out []*pb.ListUpdatesResponse_Task
	for _, t := range u.registry.Tasks() {
		out = append(out, &pb.ListUpdatesResponse_Task{Name: t.Name, Version: t.Version, Kind: t.Kind, Description: t.Description})
	}
	return out
}

// taskTimeout bounds the read of the record in Task.
const taskTimeout = 10 * time.Second

// Task returns a data update by name, in the form for BeginUpdate. A task belongs to an API
// version. The run belongs to the namespace that serves that version.
func (u updates) Task(name string) (upgradestate.Update, error) {
	ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
	defer cancel()
	if name == upgradestate.RotateKeys {
		return u.keys.Requested(ctx)
	}
	t, err := u.registry.Task(name)
	if err != nil {
		return upgradestate.Update{}, err
	}
	run := upgradestate.Update{Name: t.Name, Version: t.Version, Kind: t.Kind, Hash: t.Hash()}
	if err := u.imports.mayFollow(ctx, t); err != nil {
		return upgradestate.Update{}, err
	}
	d, err := u.deployment.Get(ctx)
	if err != nil {
		return upgradestate.Update{}, err
	}
	// Several locations may have this API version. The update is for the one that serves.
	if upgradestate.APIVersion(d.CurrentVersion) == t.Version {
		run.Version = d.CurrentVersion
	}
	return run, nil
}

// update does this controller's share of the running data update.
func (s *syncing) update(ctx context.Context, owned *ownership) error {
	mine := owned.subscribe()
	defer owned.unsubscribe(mine)
	pacing := s.cfg.pacing()
	// The served database may change during a run, so the Monitor must follow the record.
	if !s.cfg.Copy.Unthrottled && s.measurable() {
		pacing.Source = current{s.connections, s.deployment}
	}
	return backfill.New(backfill.Parts{
		Tasks: s.registry, Rotation: s.keys.Rotation(), Deployments: s.deployment, Journal: s.deployment, Ownership: mine, Lease: s.pool.Lease, Log: s.log,
		Pacer: throttle.New(pacing), Keys: s.imports,
		Namespace: func(version string) backfill.Namespace {
			if ns := s.namespaces[version]; ns != nil {
				return ns
			}
			return nil
		},
	}, backfill.Config{Owner: s.opts.ID, Workers: s.cfg.Copy.Workers}).Run(ctx)
}

// current measures the database of the current version, on which data updates work.
type current struct {
	*connections
	deployment *deployment.Store
}

var _ record.Monitor = current{}

func (c current) Health(ctx context.Context) (record.Health, error) {
	d, err := c.deployment.Get(ctx)
	if err != nil {
		return record.Health{}, err
	}
	m, ok := c.namespaces[d.CurrentVersion].(record.Monitor)
	if !ok {
		return record.Health{}, fmt.Errorf("cannot measure the load of the database of %s", d.CurrentVersion)
	}
	return m.Health(ctx)
}
