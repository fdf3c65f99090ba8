package controller

import (
	"context"
	"fmt"
	"time"

	"dbcontroller.dev/backfill"
	"dbcontroller.dev/deployment/api"
	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/throttle"
	"dbcontroller.dev/upgradestate"
)

// updates are the data updates of this controller's registry, for the API.
type updates struct{ *App }

var _ api.Updates = updates{}

// Tasks lists them.
func (u updates) Tasks() []*pb.ListUpdatesResponse_Task {
	var out []*pb.ListUpdatesResponse_Task
	for _, t := range u.registry.Tasks() {
		out = append(out, &pb.ListUpdatesResponse_Task{Name: t.Name, Version: t.Version, Kind: t.Kind, Description: t.Description})
	}
	return out
}

// taskTimeout bounds the look at which namespace is current.
const taskTimeout = 10 * time.Second

// Task is one as BeginUpdate wants it. A task is for an API version, and a run is of the
// namespace that serves it.
func (u updates) Task(name string) (upgradestate.Update, error) {
	ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
	defer cancel()
	if name == upgradestate.RotateKeys {
		return u.rotateAsked(ctx)
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
	if upgradestate.APIVersion(d.CurrentVersion) == t.Version {
		run.Version = d.CurrentVersion
	}
	return run, nil
}

// update does this controller's part of the data updates that the record asks for.
func (a *App) update(ctx context.Context, owned *ownership) error {
	mine := owned.subscribe()
	defer owned.unsubscribe(mine)
	pacing := a.pacing()
	if !a.cfg.Copy.Unthrottled && a.measurable() {
		pacing.Source = current{a}
	}
	return backfill.New(backfill.Parts{
		Tasks: a.registry, Rotation: rotation{a}, Deployments: a.deployment, Journal: a.deployment, Ownership: mine, Lease: a.pool.Lease, Log: a.log,
		Pacer: throttle.New(pacing), Keys: a,
		Namespace: func(version string) backfill.Namespace {
			if ns := a.namespaces[version]; ns != nil {
				return ns
			}
			return nil
		},
	}, backfill.Config{Owner: a.opts.ID, Workers: a.cfg.Copy.Workers}).Run(ctx)
}

// measurable reports whether every database that may be served can be measured. One that a
// test has put something before cannot.
func (a *App) measurable() bool {
	for _, ns := range a.namespaces {
		if _, ok := ns.(record.Monitor); !ok {
			return false
		}
	}
	return true
}

// current measures the database of the version that is served, which data updates work on.
type current struct{ *App }

var _ record.Monitor = current{}

func (c current) Health(ctx context.Context) (record.Health, error) {
	d, err := c.deployment.Get(ctx)
	if err != nil {
		return record.Health{}, err
	}
	m, ok := c.namespaces[d.CurrentVersion].(record.Monitor)
	if !ok {
		return record.Health{}, fmt.Errorf("the database of %s cannot be measured", d.CurrentVersion)
	}
	return m.Health(ctx)
}
