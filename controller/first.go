package controller

import (
	"context"
	"errors"
	"fmt"

	"dbcontroller.dev/deployment/api"
	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// InitialVersion is where the deployment begins if it is not there yet. Every database that
// could hold an application's data is checked, disabled ones as well, unless the
// configuration decides: an application may be using any of them.
func (a *App) InitialVersion(ctx context.Context) (string, error) {
	var found []upgradestate.Found
	for _, db := range a.cfg.Databases {
		if a.cfg.InitialVersion != "" {
			break
		}
		f, err := a.find(ctx, db.Version)
		if err != nil {
			return "", fmt.Errorf("where the deployment begins: database of %s: %w; or name it with initialVersion in %s",
				db.Version, err, a.cfg.File)
		}
		f.Disabled = db.Disabled
		found = append(found, f)
	}
	servers, err := a.deployment.Servers(ctx)
	if err != nil {
		return "", err
	}
	return upgradestate.Initial(a.cfg.InitialVersion, found, servers)
}

var _ api.Initial = (*App)(nil)

func (a *App) Configured() (versions []string, ringSize int) {
	return a.cfg.Versions(), a.cfg.RingSize
}

// find looks which collections of applications a version's database has.
func (a *App) find(ctx context.Context, version string) (upgradestate.Found, error) {
	f := upgradestate.Found{Version: version}
	for _, spec := range a.registry.Kinds(upgradestate.APIVersion(version)) {
		if !spec.Fixed {
			continue
		}
		var refused *record.UnsupportedError
		info, err := a.namespaces[version].Describe(ctx, spec, spec.Name)
		if errors.As(err, &refused) {
			f.Empty = append(f.Empty, spec.Name) // it is there: inspect refuses it, and says why
			continue
		}
		if err != nil {
			return f, err
		}
		if !info.Exists {
			continue
		}
		page, err := a.namespaces[version].Scan(ctx, record.ScanRequest{Token: info.Token, Limit: 1, KeysOnly: true})
		switch {
		case err != nil:
			return f, err
		case len(page.Records) > 0:
			f.Holds = append(f.Holds, spec.Name)
		default:
			f.Empty = append(f.Empty, spec.Name)
		}
	}
	return f, nil
}
