package controller

import (
	"context"
	"fmt"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/upgradestate"
)

// proofs returns the parts of this controller that a proof of the rollback needs.
func (a *App) proofs() preflight.Proofs {
	return preflight.Proofs{
		Registry: a.registry,
		Quiet:    func(version string) preflight.Space { return a.quiet[version] },
		Kept: func(version string) bool {
			db, configured := a.cfg.Database(version)
			return configured && !db.Disabled
		},
	}
}

// prover returns the Prover, which proves the rollback of the running upgrade while this controller
// leads.
func (a *App) prover() *preflight.Prover {
	return preflight.NewProver(preflight.ProverParts{Proofs: a.proofs(), Deployments: a.deployment, Lease: a.pool.Lease, Log: a.log})
}

// planner returns the Planner of the API.
func (a *App) planner() *preflight.Planner {
	plaintext := map[string][]string{}
	for _, db := range a.cfg.Databases {
		plaintext[db.Version] = db.Plaintext
	}
	var imports []preflight.Import
	for _, i := range a.cfg.Imports {
		imports = append(imports, i.Import)
	}
	return preflight.NewPlanner(preflight.PlannerParts{
		Proofs: a.proofs(), Deployments: a.deployment, Collections: a.collections,
		Space:        func(version string) preflight.Space { return a.scratches[version] },
		Unprivileged: a.backend.Unprivileged, Belongs: a.marks.belongs, KeysLack: a.keys.Lack, Reachable: a.cfg.reachable, Wants: a.cfg.wants,
		CheckScratch: a.checkScratch(), Other: a.imports.other,
		Settings: preflight.Settings{
			Imports: imports, Referrers: a.cfg.Referrers,
			Unthrottled: a.cfg.Copy.Unthrottled, MaxRate: a.cfg.Copy.MaxRate, Workers: a.cfg.Copy.Workers, MaxSourceLoad: a.cfg.Copy.MaxSourceLoad,
			Coordination: a.cfg.Coordination, Plaintext: plaintext,
		},
	})
}

// PlanAlone makes a plan without a running controller. It only reads, and changes neither a
// database nor the record. d is a copy of the record. If d is nil, the plan is for a new
// deployment. The coordination store must be new and used for this call only.
func (a *App) PlanAlone(ctx context.Context, d *upgradestate.Deployment, target string, progress func(api.Work)) (*pb.PlanReport, error) {
	// Before connect, which otherwise checks databases with writes.
	a.opts.alone = true
	closeAll := a.connect(ctx)
	defer closeAll()
	if d == nil {
		if err := a.neverLived(ctx); err != nil {
			return nil, err
		}
		version, err := a.first.InitialVersion(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := a.deployment.Create(ctx, version, a.cfg.RingSize); err != nil {
			return nil, err
		}
	} else if err := a.deployment.Replace(ctx, *d, 0, "", ""); err != nil {
		return nil, err
	}
	planner := a.planner()
	// Without this, the planner tries things out in scratch collections.
	planner.ReadOnly = true
	return planner.Plan(ctx, target, progress)
}

// neverLived returns an error if a version's database has a mark of that version or of another
// deployment. The record then exists elsewhere, and a plan without it would be wrong.
func (a *App) neverLived(ctx context.Context) error {
	for _, version := range a.cfg.Versions() {
		marks, err := a.namespaces[version].Marks(ctx)
		if err != nil {
			return fmt.Errorf("database of %s: %w", version, err)
		}
		for _, m := range marks {
			if m.Owner.Version == version || m.Owner.Deployment != a.cfg.Deployment {
				return &upgradestate.RefusedError{Reason: fmt.Sprintf("the database of %s belongs to %s, but this etcd has no record of it: start etcd, correct etcd.endpoints or deployment in %s, or ask a controller", version, m.Owner.Deployment, a.cfg.File)}
			}
		}
	}
	return nil
}

// checkScratch returns a check of the scratch database for a rehearsal of a version. It returns nil
// if the backend has no scratch databases.
func (a *App) checkScratch() func(ctx context.Context, version string) (string, error) {
	backend, ok := a.backend.(Scratcher)
	if !ok {
		return nil
	}
	return func(ctx context.Context, version string) (string, error) {
		db, _ := a.cfg.Database(version)
		db = scratchOf(db)
		return db.Name, backend.CheckScratch(ctx, db)
	}
}
