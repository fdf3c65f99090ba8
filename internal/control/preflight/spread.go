package preflight

import (
	"context"
	"errors"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// spread checks where the records of a sharded source go. A new target is not sharded, so one
// cluster shard would receive all of its records. It also refuses a record with the _id MaxKey
// where a range-sharded collection would lose it.
func (p *plan) spread(ctx context.Context) error {
	if err := p.Belongs(ctx, p.dir.From(), p.dir.To()); err != nil {
		if err := p.failed(ctx, "databases", p.dir.From()+", "+p.dir.To(), err); err != nil {
			return err
		}
	}
	// An unsharded source fits on one shard already, so nothing needs a check.
	sources, err := p.shardedBy(ctx, p.dir.From(), p.dir.SourceKinds(), func(k record.KindSpec) string { return k.Name })
	if err != nil || len(sources) == 0 {
		return err
	}
	targets, err := p.shardedBy(ctx, p.dir.To(), p.dir.TargetKinds(), func(k record.KindSpec) string { return record.PhysicalName(k.Name, 1) })
	if err != nil {
		return err
	}
	for _, k := range p.dir.SourceKinds() {
		// A range-sharded collection may lose such a record.
		if s := sources[k.Name]; s.MaxKey && s.Loses != "" {
			p.fail("sharding", k.Name, "the source %s is sharded by %s and has a record with the _id MaxKey: %s", s.Name, s.Key, s.Loses)
		}
	}
	for _, k := range p.dir.TargetKinds() {
		target, known := targets[k.Name]
		source, same := sources[k.Name]
		if !same && !slices.ContainsFunc(p.dir.SourceKinds(), func(s record.KindSpec) bool { return s.Name == k.Name }) {
			for _, s := range p.dir.SourceKinds() { // renamed kind: any sharded source kind
				if source.Key == "" {
					source = sources[s.Name]
				}
			}
		}
		if target.Loses != "" && (source.MaxKey || target.MaxKey) {
			p.fail("sharding", k.Name, "the target %s is sharded by %s, and there is a record with the _id MaxKey: %s", target.Name, target.Key, target.Loses)
		}
		switch {
		case !known || source.Key == "":
		case target.Key != "":
			p.ok("sharding", k.Name, "the source %s is sharded by %s, the target %s by %s. The switch stops moves of their chunks", source.Name, source.Key, target.Name, target.Key)
		case !target.Cluster:
			p.warn("sharding", k.Name, "the source %s is sharded by %s, and the database of %s is not in a sharded cluster: all records must fit there", source.Name, source.Key, p.dir.To())
		default:
			p.warn("sharding", k.Name, "the source %s is sharded by %s, and the target %s is not: all records go to one shard. Shard it before the copy: "+
				"sh.shardCollection(%q, %s); a target that has records already needs the index %s first", source.Name, source.Key, target.Name, target.Name, source.Key, source.Key)
		}
	}
	return nil
}

// shardedBy describes the collections of kinds. It omits source collections that are neither
// sharded nor hold a record with the _id MaxKey. It reports a failure for a target whose sharding
// prevents finding records by key.
func (p *plan) shardedBy(ctx context.Context, version string, kinds []record.KindSpec, first func(record.KindSpec) string) (map[string]record.Sharding, error) {
	ns, ok := p.Space(version).(Sharder)
	if !ok {
		return nil, nil
	}
	out := map[string]record.Sharding{}
	places := upgradestate.EnginePlaces(p.record, version)
	for _, k := range kinds {
		if transform.IsLineage(k.Name) {
			continue
		}
		// A kind has its first name until the record knows a later one.
		name := first(k)
		if at := places[k.Name]; len(at) > 0 {
			name = at[0].Name
		}
		if version == p.dir.To() {
			_, err := p.Space(version).Describe(ctx, k, name)
			var refused *record.UnsupportedError
			if errors.As(err, &refused) {
				p.fail("sharding", k.Name, "it cannot be a target: %v", err)
				continue
			}
		}
		s, err := ns.Sharding(ctx, k, name)
		// Continue with the other kinds, so that the report names every problem.
		if err != nil {
			if err := p.failed(ctx, "sharding", k.Name, err); err != nil {
				return nil, err
			}
			continue
		}
		if s.Key != "" || s.MaxKey || version == p.dir.To() {
			out[k.Name] = s
		}
	}
	return out, nil
}
