package engines

import (
	"context"
	"fmt"

	"dbcontroller.dev/internal/engine/backfill"
	"dbcontroller.dev/internal/engine/throttle"
	"dbcontroller.dev/record"
)

// update does this controller's share of the running data update.
func (r *Runner) update(ctx context.Context, owned *ownership) error {
	mine := owned.subscribe()
	defer owned.unsubscribe(mine)
	pacing := r.cfg.Pacing
	// The served database may change during a run, so the Monitor must follow the record.
	if !r.cfg.Unthrottled && r.measurable() {
		pacing.Source = current{r}
	}
	return backfill.New(backfill.Parts{
		Tasks: r.Registry, Rotation: r.Rotation, Deployments: r.Deployments, Journal: r.Deployments, Ownership: mine, Lease: r.Pool.Lease, Log: r.Log,
		Pacer: throttle.New(pacing), Keys: r.Keys,
		Namespace: func(version string) backfill.Namespace {
			if ns := r.Namespaces[version]; ns != nil {
				return ns
			}
			return nil
		},
	}, backfill.Config{Owner: r.cfg.ID, Workers: r.cfg.Workers}).Run(ctx)
}

// current measures the database of the current version, on which data updates work.
type current struct{ *Runner }

var _ record.Monitor = current{}

func (c current) Health(ctx context.Context) (record.Health, error) {
	d, err := c.Deployments.Get(ctx)
	if err != nil {
		return record.Health{}, err
	}
	m, ok := c.Namespaces[d.CurrentVersion].(record.Monitor)
	if !ok {
		return record.Health{}, fmt.Errorf("cannot measure the load of the database of %s", d.CurrentVersion)
	}
	return m.Health(ctx)
}

// measurable reports whether every database can be measured. A database that a test wraps cannot.
func (r *Runner) measurable() bool {
	for _, ns := range r.Namespaces {
		if _, ok := ns.(record.Monitor); !ok {
			return false
		}
	}
	return true
}
