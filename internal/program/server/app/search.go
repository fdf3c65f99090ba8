package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// Searched declares what of a kind is searchable.
type Searched struct {
	Fields    []string
	Transform sink.Transform // nil: of the fields
	Revision  string         // of Transform
}

// search holds this server's indexes, one for each version. Each follows its version's namespace for
// as long as it has collections, whether it is active or not, so that it is ready at a flip and
// at a rollback.
type search struct {
	cfg     config.Search
	log     *zap.Logger
	engine  sink.Engine
	indexes map[string]*searchIndex // by version of a namespace

	upgrades waiting
}

// newSearch returns the indexes of a configuration, or nil if there are none.
func (a *App) newSearch(set *databases.Set, deployments *deployment.Store) *search {
	if !a.cfg.Search.On || a.service.Engine == nil {
		return nil
	}
	s := &search{cfg: a.cfg.Search, log: a.log, engine: a.service.Engine, indexes: map[string]*searchIndex{}}
	for _, db := range a.cfg.DBs {
		declared := a.service.Search[upgradestate.APIVersion(db.Version)]
		if len(declared) == 0 {
			continue
		}
		x := &searchIndex{version: db.Version, cfg: a.cfg.Search, log: a.log.With(zap.String("index", db.Version)), fields: map[string][]string{}, news: make(chan struct{})}
		follow := sink.Config{Kinds: map[string]sink.Transform{}, Log: zaplog.New(x.log)}
		kinds := slices.Sorted(maps.Keys(declared))
		for _, kind := range kinds {
			d := declared[kind]
			x.fields[kind] = d.Fields
			x.revision += kind + "=" + d.Revision + ";"
			if follow.Kinds[kind] = isolated(d.Transform); d.Transform == nil {
				follow.Kinds[kind] = sink.Fields(d.Fields...)
			}
		}
		ns := set.Database(db.Version)
		x.follow = follow
		x.source = &searchSource{places: places{version: db.Version, deployments: deployments}, kinds: kinds, db: ns, watcher: ns.Watcher(deployments)}
		s.indexes[db.Version] = x
	}
	return s
}

// isolated returns a transform whose panics are errors, and whose errors have no values of the record.
// One bad record must not end the server, and operators may read logs but not the data.
func isolated(document sink.Transform) sink.Transform {
	return func(r record.Record) (sink.Document, error) {
		doc, err := transform.Isolated(func() (sink.Document, error) { return document(r) })
		return doc, transform.Conceal(err, transform.Group{Records: []record.Record{r}})
	}
}

// checkSearch refuses what no index can be made of.
func (a *App) checkSearch() error {
	switch {
	case !a.cfg.Search.On:
		return nil
	case a.service.Engine == nil:
		return errors.New("search: this program has no index: set Search of dbcontroller.Service to localsearch.Engine, or leave the section out")
	}
	for _, db := range a.cfg.DBs {
		if len(a.service.Search[db.APIVersion]) > 0 && db.Encryption.Active != "" && db.Encryption.Active != config.EncryptionOff {
			return fmt.Errorf("search: the records of %s are encrypted, and an index would hold their texts in the clear: leave the section out, or Search of the version", db.Version)
		}
	}
	return nil
}

// searcher returns the index of a version for the runner. A nil search has none.
func (s *search) searcher(version string) vrunner.Searcher {
	if s == nil || s.indexes[version] == nil {
		return nil
	}
	return s.indexes[version]
}

// run keeps the indexes up to date until ctx ends.
func (s *search) run(ctx context.Context, deployments *deployment.Store) error {
	folder := s.cfg.Folder
	if folder == "" {
		made, err := os.MkdirTemp("", "dbcontroller-search-")
		if err != nil {
			return fmt.Errorf("search: %w", err)
		}
		defer os.RemoveAll(made) //nolint:errcheck // nothing can be done about it at the end
		folder = made
	}
	work := map[string]*searchWork{}
	// Indexes close before the folder goes.
	defer func() {
		for _, w := range work {
			w.stop()
		}
	}()
	for d := range deployments.Watch(ctx) {
		s.upgrades.note(d)
		for version, x := range s.indexes {
			id := collectionsOf(d, version, x.source.kinds)
			if w := work[version]; w != nil && w.id == id {
				x.source.latest.Store(&d)
				continue
			} else if w != nil {
				// Other collections: the index begins anew with them.
				w.stop()
				delete(work, version)
			}
			if id == "" {
				s.drop(d, version, folder)
				continue
			}
			x.source.latest.Store(&d)
			work[version] = x.start(ctx, id, filepath.Join(folder, version), s.engine)
		}
	}
	return ctx.Err()
}

// drop deletes the closed index of a retired version. No switch leads back to the version, and its
// index would keep texts of its records. An index of any other version stays.
func (s *search) drop(d upgradestate.Deployment, version, folder string) {
	path := filepath.Join(folder, version)
	if _, err := os.Lstat(path); err != nil || !upgradestate.Retired(d, version) {
		return
	}
	x := s.indexes[version]
	// The engine knows which files are its own.
	index, err := s.engine(path, x.fields, x.revision)
	if err == nil {
		err = index.Remove()
	}
	if err != nil {
		s.log.Warn("search index of a retired version is not deleted: delete its folder", zap.String("version", version), zap.Error(err))
		return
	}
	s.log.Info("search index of a retired version is deleted", zap.String("version", version))
}

// prepares returns the versions whose indexes are not up to date, for the announcement of this
// server. It leaves out the target of an upgrade that has waited long enough. A nil search has none.
func (s *search) prepares() map[string]string {
	if s == nil {
		return nil
	}
	out := map[string]string{}
	for version, x := range s.indexes {
		if !x.upToDate() && !s.upgrades.waited(version, s.cfg.Wait) {
			out[version] = "search index"
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
