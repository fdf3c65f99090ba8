package controller

import (
	"context"

	"dbcontroller.dev/preflight"
)

// proofs are what the proof of a rollback needs of this controller.
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

// prover proves the rollback of the upgrade that runs, while this controller leads.
func (a *App) prover() *preflight.Prover {
	return preflight.NewProver(preflight.ProverParts{Proofs: a.proofs(), Deployments: a.deployment, Lease: a.pool.Lease, Log: a.log})
}

// planner makes plans, for the API.
func (a *App) planner() *preflight.Planner {
	plaintext := map[string][]string{}
	for _, db := range a.cfg.Databases {
		plaintext[db.Version] = db.Plaintext
	}
	return preflight.NewPlanner(preflight.PlannerParts{
		Proofs: a.proofs(), Deployments: a.deployment, Collections: a.collections,
		Space:        func(version string) preflight.Space { return a.scratches[version] },
		Unprivileged: a.backend.Unprivileged, Belongs: a.belongs, Reachable: a.reachable, Wants: a.wants,
		CheckScratch: a.checkScratch(),
		Settings: preflight.Settings{
			Unthrottled: a.cfg.Copy.Unthrottled, MaxRate: a.cfg.Copy.MaxRate, Workers: a.cfg.Copy.Workers,
			Coordination: a.cfg.Coordination, Plaintext: plaintext,
		},
	})
}

// checkScratch tries the scratch database that a rehearsal uses for a version's; nil: there
// are none.
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
