package collections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/internal/base/reconcile"
	"dbcontroller.dev/record"
	"dbcontroller.dev/syncer"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// These are the intervals of checks for missing indexes. Anyone may drop an index at any time, so
// the checks go on when none is missing.
const (
	checkWhileMissing = time.Second
	checkForMissing   = 5 * time.Second
)

// indexing describes a missing part of a direction's target, from the latest check.
type indexing struct {
	mu    sync.Mutex
	epoch uint64
	to    string
	lacks string
}

// set stores the description of a missing part; "" means that none is missing.
func (x *indexing) set(d upgradestate.Deployment, to, lacks string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.epoch, x.to, x.lacks = d.Epoch, to, lacks
}

// get returns the description for the target of a direction. Before the first check, the missing
// part is that check.
func (x *indexing) get(epoch uint64, to string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.epoch != epoch || x.to != to {
		return "a check of the indexes of " + to
	}
	return x.lacks
}

// KeepIndexes completes the indexes of the target version until ctx ends. It builds indexes that
// refuse records before the copy, so that each bad record is parked with its own name. It builds
// the others after the copy, which is much faster than to update them with each record
// (docs/benchmarks.md). Every controller runs it. They share one build, and the database knows
// which indexes are missing, whichever controller was killed.
func (m *Maintainer) KeepIndexes(ctx context.Context) error {
	loop := reconcile.Loop[upgradestate.Deployment]{
		Step: m.checkTarget,
		Same: func(before, now upgradestate.Deployment) bool { // skip reports and other changes
			was, _ := m.Target(before)
			is, _ := m.Target(now)
			return now.Epoch == before.Epoch && is == was && upgradestate.AllReady(now) == upgradestate.AllReady(before)
		},
		Failed: func(d upgradestate.Deployment, err error, repeated bool) {
			if !repeated {
				to, _ := m.Target(d)
				m.Log.Warn("the databases do not meet the conditions of a switch", zap.String("version", to), zap.Error(err))
			}
		},
	}
	return loop.Run(ctx, m.Deployments.Watch(ctx))
}

// checkTarget completes the target of a direction as far as possible now, and stores the result for
// Lacks.
func (m *Maintainer) checkTarget(ctx context.Context, d upgradestate.Deployment) (again time.Duration, err error) {
	m.keepActive(ctx, d)
	to, ok := m.Target(d)
	if !ok || m.Database(to) == nil || d.Upgrade != nil && d.Upgrade.State == upgradestate.Switching {
		return checkForMissing, nil
	}
	// A sharded cluster may have recreated a collection under its name. Without this check, shards
	// would stay ready although they can neither read nor write it.
	var lacks string
	if err = m.Belongs(ctx, d.CurrentVersion, to); err == nil {
		lacks, err = m.completeIndexes(ctx, d, to)
	}
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case m.moved(ctx, d, err):
		return checkWhileMissing, nil
	case err != nil:
		// An unknown state must not look complete, or a switch could begin.
		m.indexing.set(d, to, err.Error())
		return checkWhileMissing, err
	}
	m.indexing.set(d, to, lacks)
	if lacks != "" {
		return checkWhileMissing, nil
	}
	return checkForMissing, nil
}

// moved reports whether an error comes from a collection that was renamed after the record was
// read, as in a switch. That is no fault, and the next check finds the new name.
func (m *Maintainer) moved(ctx context.Context, d upgradestate.Deployment, err error) bool {
	if !errors.Is(err, record.ErrNotFound) && !errors.Is(err, record.ErrFenced) {
		return false
	}
	now, getErr := m.Deployments.Get(ctx)
	return getErr == nil && now.Revision != d.Revision
}

// completeIndexes builds indexes as far as possible now, and describes one that is still missing.
// It starts no build when a switch may begin: first, the shards withdraw their ready reports.
func (m *Maintainer) completeIndexes(ctx context.Context, d upgradestate.Deployment, to string) (lacks string, err error) {
	dir, err := m.Registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return "", err
	}
	kinds, err := m.Indexed(ctx, d, dir)
	if err != nil {
		return "", err
	}
	for _, k := range kinds {
		// Before any build, so that the expiry is known whenever the version becomes active.
		if err := m.noteExpiry(ctx, d, to, k.Spec.Name, k.Expiry); err != nil {
			return "", err
		}
		missing, there, err := m.missingIndexes(ctx, to, k)
		if err != nil {
			return "", err
		}
		if _, err := m.reshape(ctx, to, k, there); err != nil {
			return "", err
		}
		// Indexes that refuse records come before the copy, all others after it.
		late := slices.DeleteFunc(slices.Clone(missing), record.Refuses)
		copied := len(late) == 0
		if !copied {
			key := syncer.KeyIn(d, upgradestate.Available{TargetVersion: dir.To(), TransformHash: dir.Hash()})
			if copied, err = syncer.Loaded(ctx, m.Deployments, d, to, key); err != nil {
				return "", fmt.Errorf("check whether everything is copied: %w", err)
			}
		}
		// The record may have changed during the calls above: a switch must not meet a build.
		now, err := m.Deployments.Get(ctx)
		if err != nil {
			return "", err
		}
		nearSwitch := upgradestate.AllReady(now) || now.Epoch != d.Epoch || now.Upgrade != nil && now.Upgrade.State == upgradestate.Switching
		build, what := k.Spec, ""
		if len(missing) > 0 {
			what = fmt.Sprintf("index %s of %s, which is ", record.IndexName(missing[0]), k.Spec.Name)
		}
		switch {
		case len(missing) == 0 && nearSwitch && !k.Follows:
			continue
		case len(missing) == 0: // build below compares the indexes with the declared ones
		case nearSwitch:
			lacks = what + "missing, and built before the switch begins"
			continue
		case now.Pace.Paused:
			lacks = what + "built when the pause ends"
			continue
		case !copied && len(late) == len(missing):
			lacks = what + "built once everything is copied"
			continue
		default:
			if !copied {
				build.Shape = syncer.Early(build.Shape)
				lacks = fmt.Sprintf("index %s of %s, which is built once everything is copied", record.IndexName(late[0]), k.Spec.Name)
			}
			// A build may take hours. Lacks must give the reason meanwhile.
			m.indexing.set(d, to, what+"being built")
			m.Log.Info("built indexes", zap.String("kind", k.Spec.Name), zap.String("version", to), zap.Int("missing", len(missing)))
		}
		changed, err := m.build(ctx, to, k, build, nearSwitch)
		if err != nil {
			return "", err
		}
		if changed != "" {
			lacks = changed
			continue
		}
		if len(missing) == 0 || !copied {
			continue
		}
		// Report an index that the database does not build. It would block the switch for ever
		// without a reason.
		if missing, _, err = m.missingIndexes(ctx, to, k); err != nil {
			return "", err
		}
		if len(missing) > 0 {
			lacks = fmt.Sprintf("index %s of %s, which the database has not built on request: build it yourself, or drop it in the source",
				record.IndexName(missing[0]), k.Spec.Name)
		}
	}
	return lacks, nil
}

// CheckIndexes returns an error unless the target of an upgrade has all its indexes, as declared.
func (m *Maintainer) CheckIndexes(ctx context.Context, d upgradestate.Deployment) error {
	to := d.Upgrade.TargetVersion
	dir, err := m.Registry.Direction(d.CurrentVersion, to)
	if err != nil {
		return err
	}
	kinds, err := m.Indexed(ctx, d, dir)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		at := upgradestate.BlockPlace{Version: to, Kind: k.Spec.Name}
		if err := m.checkIndexes(ctx, d, to, k); err != nil {
			return upgradestate.Blocked(upgradestate.BlockIndexes, at, err)
		}
	}
	return nil
}

func (m *Maintainer) checkIndexes(ctx context.Context, d upgradestate.Deployment, to string, k Indexed) error {
	if err := m.noteExpiry(ctx, d, to, k.Spec.Name, k.Expiry); err != nil {
		return err
	}
	missing, there, err := m.missingIndexes(ctx, to, k)
	if err != nil {
		return err
	}
	if text := k.unlike(there); text != "" {
		return errors.New(text)
	}
	if len(missing) > 0 {
		return fmt.Errorf("index %s of %s/%s is missing: it is built before the switch begins", record.IndexName(missing[0]), to, k.Spec.Name)
	}
	// The indexes exist. This call builds nothing, but fails if one has another form.
	return m.Database(to).BuildIndexes(ctx, k.Token, k.Spec)
}

// Indexed is a target kind with its required indexes.
type Indexed struct {
	Spec record.KindSpec // its TTL indexes are stopped
	// Expiry holds, by index name, the seconds after which TTL indexes delete once the target is
	// the current version.
	Expiry map[string]int64
	Token  record.Token
	// Follows means that indexes and options come from a kind of the source, and change with it.
	// Carried lists the indexes that came so.
	Follows bool
	Carried []string
	// Declared lists the indexes from the configuration, which do not depend on the source.
	Declared []string
}

// Indexed returns the target kinds of a direction whose indexes this package keeps. These are
// managed kinds, and fixed-name kinds with a Carry. In a rollback the latter belong to the
// application, and are left out.
func (m *Maintainer) Indexed(ctx context.Context, d upgradestate.Deployment, dir transform.Direction) (out []Indexed, err error) {
	if d.Upgrade != nil && d.Upgrade.Snapshot {
		return nil, nil
	}
	carries := m.following(d, dir)
	ns, _ := d.Namespace(dir.To())
	for _, spec := range dir.TargetKinds() {
		at, known := ns.Kind(spec.Name)
		carry, carried := carries[spec.Name]
		switch {
		case !known || spec.Fixed && !carried:
			continue
		// A kind with a pending rename may have either name.
		case at.Pending != nil:
			return nil, fmt.Errorf("an operation on %s of %s is not complete: its indexes are checked afterwards", spec.Name, dir.To())
		case carried:
			if spec.Shape, err = m.carriedShape(ctx, d, carry); err != nil {
				return nil, fmt.Errorf("carry options and indexes to %s: %w", spec.Name, err)
			}
		}
		if spec, err = m.withIndexed(ctx, dir.To(), spec, at); err != nil {
			return nil, err
		}
		k := Indexed{Token: syncer.TokenOf(at), Follows: carried, Carried: at.Carried}
		if carried {
			if k.Declared, err = carry.declared(); err != nil {
				return nil, fmt.Errorf("indexes of %s: %w", spec.Name, err)
			}
		}
		spec.Shape, k.Expiry = record.Unexpiring(spec.Shape)
		k.Spec = spec
		if len(spec.Shape.Indexes) > 0 || k.Follows {
			out = append(out, k)
		}
	}
	return out, nil
}

// following returns the target kinds of a direction that follow the source, with their Carry. In
// the rollback of a move between two locations nothing follows, because the collections belong to
// the application.
func (m *Maintainer) following(d upgradestate.Deployment, dir transform.Direction) map[string]Carry {
	if upgradestate.APIVersion(dir.From()) == upgradestate.APIVersion(dir.To()) && dir.To() == upgradestate.PreviousVersion(d) {
		return nil
	}
	return m.Carry.along(dir)
}

// carriedShape returns the shape that a fixed-name kind takes over from the current version.
func (m *Maintainer) carriedShape(ctx context.Context, d upgradestate.Deployment, carry Carry) (record.Shape, error) {
	if carry.From == "" {
		return carry.Shape(record.Shape{})
	}
	ns, _ := d.Namespace(d.CurrentVersion)
	from, known := ns.Kind(carry.From)
	name := carry.From // until the record has its place
	if known {
		name = from.Physical
	}
	info, err := m.Database(d.CurrentVersion).Describe(ctx, record.KindSpec{Name: carry.From, Fixed: true}, name)
	switch {
	case err != nil:
		return record.Shape{}, err
	case known && !info.Exists && from.Pending != nil:
		return record.Shape{}, fmt.Errorf("an operation on %s of %s is not complete: its options and indexes are checked afterwards", carry.From, d.CurrentVersion)
	case known && !info.Exists:
		return record.Shape{}, fmt.Errorf("collection %s of %s: %w", name, d.CurrentVersion, record.ErrNotFound)
	}
	// Near a switch, TTL indexes of the source may be stopped already. They are noted before that.
	// So read the record after the description: a stopped index without a note was stopped by the
	// application.
	if stops(info.Shape) {
		if d, err = m.Deployments.Get(ctx); err != nil {
			return record.Shape{}, err
		}
		ns, _ = d.Namespace(ns.Version)
		from, _ = ns.Kind(carry.From)
	}
	return carry.Shape(withoutShardKey(record.WithExpiry(info.Shape, stopped(info.Shape, from.Expiry))))
}

// withoutShardKey removes the hashed index of _id, which a collection has if it is sharded by it. A
// target with the same sharding has its own, and others need none.
func withoutShardKey(s record.Shape) record.Shape {
	s.Indexes = slices.DeleteFunc(slices.Clone(s.Indexes), func(ix bson.Raw) bool {
		hashed, _ := rawdoc.Lookup(ix, "key", "_id").StringValueOK()
		return hashed == "hashed"
	})
	return s
}

// missingIndexes returns the declared indexes of a kind that do not exist or are incomplete. there
// is the present shape of the kind.
func (m *Maintainer) missingIndexes(ctx context.Context, version string, k Indexed) (missing []bson.Raw, there record.Shape, err error) {
	info, err := m.Database(version).Describe(ctx, k.Spec, k.Token.Name)
	if err != nil {
		return nil, there, err
	}
	if !info.Exists || info.Token.ID != k.Token.ID {
		return nil, there, fmt.Errorf("collection %s of %s: %w", k.Token.Name, version, record.ErrNotFound)
	}
	for _, want := range k.Spec.Shape.Indexes {
		if !slices.ContainsFunc(info.Shape.Indexes, func(have bson.Raw) bool { return record.IndexName(have) == record.IndexName(want) }) {
			missing = append(missing, want)
		}
	}
	return missing, info.Shape, nil
}
