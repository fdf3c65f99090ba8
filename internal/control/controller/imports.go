package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/preflight"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// Import is another deployment whose records this deployment refers to.
type Import struct {
	preflight.Import
	// Backend opens Databases, the databases of the other deployment. It is needed for keys that
	// can only be looked up. Nil: no such keys exist.
	Backend   Backend
	Databases []Database
}

// imports looks up keys in the databases of other deployments.
type imports struct {
	cfg        Settings
	deployment *deployment.Store
	imported   map[string]map[string]Connection // databases of other deployments, by service and version
	log        *zap.Logger
}

// other reads the record of another deployment in the same coordination store.
func (im *imports) other(ctx context.Context, name string) (upgradestate.Deployment, error) {
	s, err := im.deployment.Other(name)
	if err != nil {
		return upgradestate.Deployment{}, err
	}
	return s.Get(ctx)
}

// connectImports prepares connections to the databases of other deployments. They open when a data
// update first looks up keys.
func (im *imports) connectImports() (closeAll func(context.Context)) {
	var disconnect []func(context.Context)
	for _, i := range im.cfg.Imports {
		if i.Backend == nil {
			continue
		}
		all, done := i.Backend.Connect(i.Databases, Opening{Log: im.log})
		im.imported[i.Service] = all
		disconnect = append(disconnect, done)
	}
	return func(ctx context.Context) {
		for _, done := range disconnect {
			done(ctx)
		}
	}
}

// mayFollow refuses a data update that would write keys which the other deployment does not serve
// yet, because lookups by such keys would find nothing. It also refuses one that must look keys up in
// a version whose data cannot be read.
func (im *imports) mayFollow(ctx context.Context, t transform.Task) error {
	refuse := func(format string, args ...any) error {
		return &upgradestate.RefusedError{Reason: fmt.Sprintf("update %s: %s", t.Name, fmt.Sprintf(format, args...))}
	}
	for _, i := range t.Imports {
		to, known := im.cfg.imported(i.Service)
		// Such keys need a lookup in the other deployment's lineage.
		if i.Asks && (!known || to.Backend == nil) {
			return refuse("a key of %s of %s in one version does not determine the key in the other: give its databases in imports of %s", i.Kind, i.Service, im.cfg.File)
		}
		if !known {
			continue
		}
		d, err := im.other(ctx, to.Deployment)
		switch {
		case errors.Is(err, deployment.ErrNotFound):
			return refuse("%v in this etcd: correct imports of %s", err, im.cfg.File)
		case err != nil:
			return err
		}
		if serves, want := upgradestate.APIVersion(d.CurrentVersion), to.Version(i.Keys); want != "" && serves != want {
			return refuse("it leaves %s keys of %s of %s (version %s), but %s serves %s: wait for its switch, or hold both keys", i.Keys, i.Kind, i.Service, want, to.Deployment, serves)
		}
		if !i.Asks {
			continue
		}
		for _, version := range []string{to.Older, to.Newer} {
			ns, missing := readable(d, to.Deployment, version)
			if missing != "" {
				return refuse("it looks keys of %s up, and %s", i.Kind, missing)
			}
			if !slices.ContainsFunc(to.Databases, func(db Database) bool { return db.Version == ns.Version }) {
				return refuse("it looks keys of %s up, and dbs of %s has no entry of %s: add it to imports of %s", i.Kind, i.Service, ns.Version, im.cfg.File)
			}
		}
	}
	return nil
}

func (s Settings) imported(service string) (Import, bool) {
	for _, i := range s.Imports {
		if i.Service == service {
			return i, true
		}
	}
	return Import{}, false
}

// followed returns the deployment of a service whose switches tasks follow.
func (s Settings) followed(service string) (preflight.Import, bool) {
	i, known := s.imported(service)
	return i.Import, known
}

var _ transform.KeyFinder = (*imports)(nil)

// FindKeys looks up keys of records of other deployments, through their lineage.
func (im *imports) FindKeys(ctx context.Context, asked []transform.Question) (transform.Answers, error) {
	type kind struct {
		service, old, now string
		up                bool
	}
	keys := map[kind][]record.Key{}
	for _, q := range asked {
		// One query for each kind and direction, instead of one for each key.
		k := kind{q.Service, q.Old, q.New, q.Up}
		keys[k] = append(keys[k], q.Key)
	}
	answers := transform.Answers{}
	for k, of := range keys {
		i, _ := im.cfg.imported(k.service)
		d, err := im.other(ctx, i.Deployment)
		if err != nil {
			return nil, err
		}
		older, before, err := im.lineage(d, i, i.Older, k.old)
		if err != nil {
			return nil, err
		}
		newer, after, err := im.lineage(d, i, i.Newer, k.old)
		if err != nil {
			return nil, err
		}
		// The data of a version may end during a data update. An error would be retried for ever, and
		// the update would block this deployment's switches. Without an answer the records count as
		// failed, and the update ends.
		if !before || !after {
			continue
		}
		own, far, from, to := older, newer, k.old, k.now
		if !k.up {
			own, far, from, to = newer, older, k.now, k.old
		}
		found, err := transform.FarKeys(ctx, own, far, from, to, of)
		if err != nil {
			return nil, fmt.Errorf("keys of %s of %s: %w", from, i.Service, err)
		}
		for key, other := range found {
			answers[transform.Question{Service: k.service, Old: k.old, New: k.now, Key: key, Up: k.up}] = other
		}
	}
	return answers, nil
}

// lineage returns the reader and tokens of a kind's lineage in another deployment's database. A
// lineage maps the keys of source records to the keys of target records. ok is false if the version
// has no data that can be read.
func (im *imports) lineage(d upgradestate.Deployment, i Import, version, kind string) (l transform.Lineage, ok bool, err error) {
	ns, missing := readable(d, i.Deployment, version)
	if missing != "" {
		return l, false, nil
	}
	conn, configured := im.imported[i.Service][ns.Version]
	if !configured {
		return l, false, fmt.Errorf("imports of %s: dbs of %s has no entry of %s", im.cfg.File, i.Service, ns.Version)
	}
	l = transform.Lineage{Reader: conn, Tokens: record.Tokens{}, Kind: transform.LineageKind(kind, i.Older, i.Newer)}
	for _, k := range ns.Kinds {
		l.Tokens[k.Kind] = record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
	}
	return l, true, nil
}

// readable returns the namespace that has an API version's data in another deployment, or the reason
// why there is none, for an operator.
func readable(d upgradestate.Deployment, name, version string) (ns upgradestate.Namespace, missing string) {
	// The version may be the current one, the target, or the one before the latest switch.
	followed, _ := upgradestate.Followed(d)
	for _, place := range []string{d.CurrentVersion, followed.TargetVersion, upgradestate.PreviousVersion(d)} {
		ns, there := d.Namespace(place)
		if there && upgradestate.APIVersion(place) == version && !upgradestate.Retired(d, place) {
			return ns, ""
		}
	}
	retired := slices.ContainsFunc(d.Retired, func(v string) bool { return upgradestate.APIVersion(v) == version })
	if retired || d.Retire != nil && upgradestate.APIVersion(d.Retire.Version) == version {
		return ns, fmt.Sprintf("%s of %s is retired", version, name)
	}
	return ns, fmt.Sprintf("%s has no data of %s that its controllers keep: wait until its upgrade has begun", name, version)
}
