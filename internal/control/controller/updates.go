package controller

import (
	"context"
	"fmt"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// updates serves the data updates of this controller's registry to the API.
type updates struct{ *App }

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
	if err := u.mayFollow(ctx, t); err != nil {
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
func (a *App) update(ctx context.Context, owned *ownership) error {
	mine := owned.subscribe()
	defer owned.unsubscribe(mine)
	pacing := a.cfg.pacing()
	// The served database may change during a run, so the Monitor must follow the record.
	if !a.cfg.Copy.Unthrottled && a.measurable() {
		pacing.Source = current{a}
	}
	return backfill.New(backfill.Parts{
		Tasks: a.registry, Rotation: a.keys.Rotation(), Deployments: a.deployment, Journal: a.deployment, Ownership: mine, Lease: a.pool.Lease, Log: a.log,
		Pacer: throttle.New(pacing), Keys: a,
		Namespace: func(version string) backfill.Namespace {
			if ns := a.namespaces[version]; ns != nil {
				return ns
			}
			return nil
		},
	}, backfill.Config{Owner: a.opts.ID, Workers: a.cfg.Copy.Workers}).Run(ctx)
}

// current measures the database of the current version, on which data updates work.
type current struct{ *App }

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
