package comparison

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/switchover"
	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// TestComparesBeforeTheFlip: what changed in the target while a switch began is compared before the
// flip where both sides are equal, whether the last rename of the source has happened or not. Writes
// are held meanwhile.
func TestComparesBeforeTheFlip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ renamed, foreign bool }{
		"before the last rename":                  {},
		"after the last rename":                   {renamed: true},
		"a foreign record":                        {foreign: true},
		"a foreign record, after the last rename": {renamed: true, foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer func() { stop(); synctest.Wait() }()
				w := newCopyWorld(t)
				e := &early{Intruders: Intruders{Comparison: w.comparison, Position: w.position}, w: w, t: t, renamed: c.renamed, foreign: c.foreign}
				fencers := map[string]record.Fencer{}
				for v, ns := range w.comparison.Namespaces {
					fencers[v] = ns
				}
				driver := switchover.New(deployment.ForDriver{Store: w.comparison.Deployments}, fencers, switchover.Config{Target: e}, zap.NewNop())
				go func() { _ = driver.Run(ctx) }()
				go w.report(ctx)
				if _, err := w.comparison.Deployments.Apply(ctx, upgradestate.Begin{ID: "u1", TargetVersion: "v2"}); err != nil {
					t.Fatal(err)
				}
				for d := range w.comparison.Deployments.Watch(ctx) {
					if d.Upgrade == nil || d.Upgrade.AbortReason != "" {
						if flipped := d.CurrentVersion == "v2"; flipped == c.foreign || e.early == c.foreign {
							t.Errorf("flipped: %t, compared early: %t; upgrade %+v", flipped, e.early, d.Upgrade)
						}
						break
					}
				}
			})
		})
	}
}

// early is an Intruders to whose target somebody writes while the switch begins.
type early struct {
	Intruders
	w                       copyWorld
	t                       *testing.T
	renamed, foreign, early bool
}

func (e *early) Since(ctx context.Context, version string) (string, error) {
	at, err := e.Intruders.Since(ctx, version)
	if err != nil {
		return "", err
	}
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: "a"}})
	if err != nil {
		return "", err
	}
	d, err := e.w.comparison.Deployments.Get(ctx)
	if err != nil {
		return "", err
	}
	for v, db := range e.w.comparison.Namespaces {
		if e.foreign && v == "v1" {
			continue
		}
		ns, _ := d.Namespace(v)
		if err := db.(*memstore.Store).Foreign().Put(ctx, ns.Kinds[0].Physical, doc); err != nil {
			return "", err
		}
	}
	return at, nil
}

// Changed looks right before or right after the last rename of the source.
func (e *early) Changed(ctx context.Context, d upgradestate.Deployment) (func(context.Context, upgradestate.Deployment) error, error) {
	source, _ := d.Namespace("v1")
	if e.renamed {
		// The last rename runs beside the look, once the seal is confirmed.
		for gone := false; !gone; {
			time.Sleep(time.Millisecond) // in simulated time
			names, err := e.w.comparison.Namespaces["v1"].(*memstore.Store).Foreign().Documents(ctx, source.Kinds[0].Physical)
			gone = err != nil || len(names) == 0
		}
	}
	differ, err := e.Intruders.Changed(ctx, d)
	e.early = err == nil && differ == nil
	return differ, err
}

// position returns the present position in a version's changes.
func (w copyWorld) position(ctx context.Context, version string) (string, error) {
	at, err := w.comparison.Namespaces[version].Position(ctx)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(at)
	return string(text), err
}

// report has the shards report whenever they are asked.
func (w copyWorld) report(ctx context.Context) {
	for d := range w.comparison.Deployments.Watch(ctx) {
		for _, a := range upgradestate.Actions(d) {
			if ask, ok := a.(upgradestate.AwaitReports); ok {
				_, _ = w.comparison.Deployments.Apply(ctx, upgradestate.Report{ID: ask.ID, State: ask.State, Attempt: ask.Attempt, Fences: ask.Fences, Shards: ask.Shards}) // outdated after an abort
			}
		}
	}
}
