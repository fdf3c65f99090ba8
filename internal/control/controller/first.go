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
func (s *firstStart) InitialVersion(ctx context.Context) (string, error) {
	var found []upgradestate.Found
	var away error // why a disabled version's database does not answer
	for _, db := range s.cfg.Databases {
		if s.cfg.InitialVersion != "" {
			break
		}
		f, err := s.find(ctx, db.Version)
		// A disabled version may be switched off for good. Decide below whether that is acceptable.
		if db.Disabled && s.backend.Unavailable(err) {
			away = err
			continue
		}
		switch {
		case err == nil:
		case s.backend.Unavailable(err):
			return "", fmt.Errorf("cannot choose the first version: database of %s: %w; or set initialVersion in %s",
				db.Version, err, s.cfg.File)
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
			away, s.cfg.File)
	}
	// Without data, the deployment begins at a version that every registered server knows.
	servers, err := s.deployment.Servers(ctx)
	if err != nil {
		return "", err
	}
	return upgradestate.Initial(s.cfg.InitialVersion, found, servers)
}

// beginsWell refuses an initial version whose application collections do not exist. It runs before
// anything is recorded: otherwise a misspelt kind would fix the wrong version for good.
func (s *firstStart) beginsWell(ctx context.Context, d upgradestate.Deployment) error {
	version := d.CurrentVersion
	err := syncer.Inspect(ctx, s.namespaces[version], d, version, s.registry.Kinds(upgradestate.APIVersion(version)))
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s would begin at %s, in %s: %w, in %s%s", s.deployment.Name(), version, s.placeOf(version), err, s.cfg.File, s.passedOver(ctx, version))
}

// placeOf returns the database of a version and its servers, for people.
func (s *firstStart) placeOf(version string) string {
	db, _ := s.cfg.Database(version)
	return fmt.Sprintf("%s (%s)", db.Location, db.Hosts)
}

// passedOver names the collections that the other versions lack, if no version has any. A new
// deployment then begins at the newest version. So the mistake is usually in the spelling of an
// older version's kind or database.
func (s *firstStart) passedOver(ctx context.Context, version string) string {
	if s.cfg.InitialVersion != "" {
		return "" // nothing was searched
	}
	var text strings.Builder
	for _, db := range s.cfg.Databases {
		if !s.databases[db.Version].Opened() {
			continue
		}
		found, err := s.find(ctx, db.Version)
		if err != nil {
			continue // the caller has the more important error
		}
		// The data decided, so another version may well be empty.
		if len(found.Holds)+len(found.Empty) > 0 {
			return ""
		}
		var lacks []string
		for _, spec := range s.registry.Kinds(upgradestate.APIVersion(db.Version)) {
			if spec.Fixed {
				lacks = append(lacks, spec.Name)
			}
		}
		if db.Version != version && len(lacks) > 0 {
			fmt.Fprintf(&text, "; %s, in %s, has no collection %s", db.Version, s.placeOf(db.Version), someOf(lacks))
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
func (s *firstStart) firstVersion(ctx context.Context, d upgradestate.Deployment) (upgradestate.Deployment, error) {
	if lived(d) || d.Upgrade != nil {
		return d, nil
	}
	if err := s.openFor(ctx, d); err != nil {
		return d, err
	}
	if s.beginsWell(ctx, d) == nil {
		return d, nil
	}
	version, err := s.InitialVersion(ctx)
	if err != nil || version == d.CurrentVersion {
		return d, err
	}
	s.log.Warn("the deployment has never been used, and starts at another version", zap.String("was", d.CurrentVersion), zap.String("version", version))
	return s.deployment.Apply(ctx, upgradestate.StartAt{Version: version})
}

var _ api.Initial = (*firstStart)(nil)

// Configured returns the configured versions, oldest first, and the number of shards.
func (s *firstStart) Configured() (versions []string, ringSize int) {
	return s.cfg.Versions(), s.cfg.RingSize
}

// find lists the application collections that a version's database has, with and without documents.
func (s *firstStart) find(ctx context.Context, version string) (upgradestate.Found, error) {
	f := upgradestate.Found{Version: version}
	for _, spec := range s.registry.Kinds(upgradestate.APIVersion(version)) {
		if !spec.Fixed {
			continue
		}
		var refused *record.UnsupportedError
		info, err := s.namespaces[version].Describe(ctx, spec, spec.Name)
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
		page, err := s.namespaces[version].Scan(ctx, record.ScanRequest{Token: info.Token, Limit: 1, KeysOnly: true})
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
func (s *firstStart) openFor(ctx context.Context, d upgradestate.Deployment) error {
	for _, db := range s.cfg.Databases {
		if db.Version != d.CurrentVersion && (lived(d) || db.Disabled) {
			continue
		}
		switch err := s.databases[db.Version].Open(ctx); {
		case identity.IsLost(err) && db.Version == d.CurrentVersion:
			return s.cfg.withWayBack(d, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// inspect returns an error for collections that cannot be served. It changes nothing.
func (s *firstStart) inspect(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) error {
	inspect := func(version string, kinds []record.KindSpec) error {
		if err := syncer.Inspect(ctx, s.namespaces[version], d, version, kinds); err != nil {
			return fmt.Errorf("%s: %w", s.placeOf(version), err)
		}
		return nil
	}
	err := inspect(dir.From(), dir.SourceKinds())
	if err == nil {
		err = inspect(dir.To(), dir.TargetKinds())
	}
	if err == nil {
		_, err = s.collections.Carried(ctx, d, dir)
	}
	if err != nil {
		return fmt.Errorf("kinds in %s: %w", s.cfg.File, err)
	}
	return nil
}
