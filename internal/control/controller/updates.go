package controller

import (
	"context"
	"time"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/controller/keys"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
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
