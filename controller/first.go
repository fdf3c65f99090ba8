package controller

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller.dev/deployment/api"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
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

// beginsWell refuses to begin, before anything is recorded, at a version whose applications'
// collections are not there. A misspelt kind would otherwise fix the version for good.
func (a *App) beginsWell(ctx context.Context, d upgradestate.Deployment) error {
	version := d.CurrentVersion
	err := syncer.Inspect(ctx, a.namespaces[version], d, version, a.registry.Kinds(upgradestate.APIVersion(version)))
	if err == nil {
		return nil
	}
	db, _ := a.cfg.Database(version)
	return fmt.Errorf("%s would begin at %s, in %s (%s): %w, in %s", a.deployment.Name(), version, db.Location, db.Hosts, err, a.cfg.File)
}

// firstVersion is where a deployment begins that has not lived. One that is recorded with a version
// whose collections are not there begins where the present configuration finds them.
func (a *App) firstVersion(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	if lived(d) || d.Upgrade != nil {
		return d, nil
	}
	if err := a.openFor(ctx, d); err != nil {
		return d, err
	}
	if a.beginsWell(ctx, d) == nil {
		return d, nil
	}
	version, err := a.InitialVersion(ctx)
	if err != nil || version == d.CurrentVersion {
		return d, err
	}
	a.log.Warn("the deployment has never lived, and begins at another version", zap.String("was", d.CurrentVersion), zap.String("version", version))
	return a.deployment.Apply(ctx, upgradestate.StartAt{Version: version})
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
