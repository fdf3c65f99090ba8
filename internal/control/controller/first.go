package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/engine/collections"
	"dbcontroller.dev/internal/engine/identity"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// firstStart chooses and checks the version at which a deployment begins.
type firstStart struct {
	*connections
	cfg         Settings
	backend     Backend
	registry    *transform.Registry
	deployment  *deployment.Store
	collections *collections.Maintainer
	log         *zap.Logger
}

// InitialVersion returns the version at which a new deployment begins. Unless the configuration
// names one, it looks for application data in every database, including disabled ones, because an
// application may use any of them. It skips an unavailable database only if that is disabled and
// another database holds documents.
func (a *firstStart) InitialVersion(ctx context.Context) (string, error) {
	var found []upgradestate.Found
	var away error // why a disabled version's database does not answer
	for _, db := range a.cfg.Databases {
		if a.cfg.InitialVersion != "" {
			break
		}
		f, err := a.find(ctx, db.Version)
		// A disabled version may be switched off for good. Decide below whether that is acceptable.
		if db.Disabled && a.backend.Unavailable(err) {
			away = err
			continue
		}
		switch {
		case err == nil:
		case a.backend.Unavailable(err):
			return "", fmt.Errorf("cannot choose the first version: database of %s: %w; or set initialVersion in %s",
				db.Version, err, a.cfg.File)
		// A name would not help, such as where controllers with another etcd use the database.
		default:
			return "", fmt.Errorf("cannot choose the first version: database of %s: %w", db.Version, err)
		}
		f.Disabled = db.Disabled
		found = append(found, f)
	}
	holds := func(f upgradestate.Found) bool { return len(f.Holds) > 0 }
	if away != nil && !slices.ContainsFunc(found, holds) {
		// The only documents may be in the unavailable database. A wrong guess here would be
		// recorded.
		return "", fmt.Errorf("cannot choose the first version: no database that answers holds documents, and a disabled one does not answer: %w; or set initialVersion in %s",
			away, a.cfg.File)
	}
	// Without data, the deployment begins at a version that every registered server knows.
	servers, err := a.deployment.Servers(ctx)
	if err != nil {
		return "", err
	}
	return upgradestate.Initial(a.cfg.InitialVersion, found, servers)
}

// beginsWell refuses an initial version whose application collections do not exist. It runs before
// anything is recorded: otherwise a misspelt kind would fix the wrong version for good.
func (a *firstStart) beginsWell(ctx context.Context, d upgradestate.Deployment) error {
	version := d.CurrentVersion
	err := syncer.Inspect(ctx, a.namespaces[version], d, version, a.registry.Kinds(upgradestate.APIVersion(version)))
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s would begin at %s, in %s: %w, in %s%s", a.deployment.Name(), version, a.placeOf(version), err, a.cfg.File, a.passedOver(ctx, version))
}

// placeOf returns the database of a version and its servers, for people.
func (a *firstStart) placeOf(version string) string {
	db, _ := a.cfg.Database(version)
	return fmt.Sprintf("%s (%s)", db.Location, db.Hosts)
}

// passedOver names the collections that the other versions lack, if no version has any. A new
// deployment then begins at the newest version. So the mistake is usually in the spelling of an
// older version's kind or database.
func (a *firstStart) passedOver(ctx context.Context, version string) string {
	if a.cfg.InitialVersion != "" {
		return "" // nothing was searched
	}
	var text strings.Builder
	for _, db := range a.cfg.Databases {
		if !a.databases[db.Version].Opened() {
			continue
		}
		found, err := a.find(ctx, db.Version)
		if err != nil {
			continue // the caller has the more important error
		}
		// The data decided, so another version may well be empty.
		if len(found.Holds)+len(found.Empty) > 0 {
			return ""
		}
		var lacks []string
		for _, spec := range a.registry.Kinds(upgradestate.APIVersion(db.Version)) {
			if spec.Fixed {
				lacks = append(lacks, spec.Name)
			}
		}
		if db.Version != version && len(lacks) > 0 {
			fmt.Fprintf(&text, "; %s, in %s, has no collection %s", db.Version, a.placeOf(db.Version), someOf(lacks))
		}
	}
	return text.String()
}

// someOf joins names, and counts those that a line has no room for.
func someOf(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// firstVersion corrects the initial version of a deployment that has no namespaces yet. If the
// collections of the recorded version do not exist, it searches again with the present
// configuration.
func (a *firstStart) firstVersion(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
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
	a.log.Warn("the deployment has never been used, and starts at another version", zap.String("was", d.CurrentVersion), zap.String("version", version))
	return a.deployment.Apply(ctx, upgradestate.StartAt{Version: version})
}

var _ api.Initial = (*firstStart)(nil)

// Configured returns the configured versions, oldest first, and the number of shards.
func (a *firstStart) Configured() (versions []string, ringSize int) {
	return a.cfg.Versions(), a.cfg.RingSize
}

// find lists the application collections that a version's database has, with and without documents.
func (a *firstStart) find(ctx context.Context, version string) (upgradestate.Found, error) {
	f := upgradestate.Found{Version: version}
	for _, spec := range a.registry.Kinds(upgradestate.APIVersion(version)) {
		if !spec.Fixed {
			continue
		}
		var refused *record.UnsupportedError
		info, err := a.namespaces[version].Describe(ctx, spec, spec.Name)
		if errors.As(err, &refused) {
			f.Empty = append(f.Empty, spec.Name) // it exists; inspect refuses it with the reason
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

// openFor opens the databases that prepare needs.
func (a *firstStart) openFor(ctx context.Context, d upgradestate.Deployment) error {
	for _, db := range a.cfg.Databases {
		if db.Version != d.CurrentVersion && (lived(d) || db.Disabled) {
			continue
		}
		switch err := a.databases[db.Version].Open(ctx); {
		case identity.IsLost(err) && db.Version == d.CurrentVersion:
			return a.cfg.withWayBack(d, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// inspect returns an error for collections that cannot be served. It changes nothing.
func (a *firstStart) inspect(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) error {
	inspect := func(version string, kinds []record.KindSpec) error {
		if err := syncer.Inspect(ctx, a.namespaces[version], d, version, kinds); err != nil {
			return fmt.Errorf("%s: %w", a.placeOf(version), err)
		}
		return nil
	}
	err := inspect(dir.From(), dir.SourceKinds())
	if err == nil {
		err = inspect(dir.To(), dir.TargetKinds())
	}
	if err == nil {
		_, err = a.collections.Carried(ctx, d, dir)
	}
	if err != nil {
		return fmt.Errorf("kinds in %s: %w", a.cfg.File, err)
	}
	return nil
}
