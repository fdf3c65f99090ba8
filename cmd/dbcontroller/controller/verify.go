package controller

import (
	"context"
	"fmt"

	"dbcontroller/record"
	"dbcontroller/upgradestate"
	"dbcontroller/verify"
)

// Verify compares everything that is synced now, source with target. Writes that arrive
// meanwhile settle by being compared again.
func (a *App) Verify(ctx context.Context, progress func(verify.Report)) (verify.Report, error) {
	d, err := a.deployment.Get(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	to, ok := a.target(d)
	if !ok {
		return verify.Report{}, fmt.Errorf("version %s is active and nothing is synced from it: there is nothing to compare", d.CurrentVersion)
	}
	dir, err := a.registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return verify.Report{}, err
	}
	c := verify.New(a.namespaces[d.CurrentVersion], a.namespaces[to], dir)
	return c.Run(ctx, tokens(d, d.CurrentVersion), tokens(d, to), verify.Settle{}, progress)
}

// tokens are the present tokens of a version's kinds.
func tokens(d upgradestate.Deployment, version string) record.Tokens {
	toks := record.Tokens{}
	for kind, places := range upgradestate.EnginePlaces(d, version) {
		p := places[0]
		toks[kind] = record.Token{Kind: kind, Name: p.Name, ID: p.ID, Fixed: p.Fixed}
	}
	return toks
}
