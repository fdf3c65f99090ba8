package demo

import (
	"context"
	"fmt"

	"dbcontroller/config"
	"dbcontroller/record"
	"dbcontroller/record/mongostore"
	"dbcontroller/sample/bbs"
	"dbcontroller/transform"
	"dbcontroller/upgradestate"
	"dbcontroller/verify"
)

// comparison is what comparing the frozen old namespace with the new one found.
type comparison struct {
	records    int // of the old namespace
	compared   int
	mismatched int
}

// compare brings every record of the old namespace through the transform and compares it
// with the new one, and looks for what the old one does not have. Groups that clients
// wrote after the flip are not counted: the old namespace knows nothing of those writes.
func compare(ctx context.Context, cfg config.Config, registry *transform.Registry, d upgradestate.Deployment, late map[string][]string, note func(string)) (out comparison, err error) {
	dir, err := registry.Direction(oldVersion, newVersion)
	if err != nil {
		return out, err
	}
	spaces := map[string]*mongostore.Namespace{}
	for _, v := range []string{oldVersion, newVersion} {
		db, ok := cfg.DB(v)
		if !ok {
			return out, fmt.Errorf("version %s is not configured", v)
		}
		ns, err := mongostore.Open(ctx, mongostore.Config{URI: db.Endpoint.Reveal(), Database: db.Database, AppName: "demo-check"})
		if err != nil {
			return out, fmt.Errorf("database of %s: %w", v, err)
		}
		defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read
		spaces[v] = ns
	}
	skip, err := groupsOf(dir, late)
	if err != nil {
		return out, err
	}
	c := verify.New(spaces[oldVersion], spaces[newVersion], dir)
	src, dst := tokensOf(d, oldVersion), tokensOf(d, newVersion)
	different := map[transform.GroupID]bool{}
	type page func(context.Context, record.Tokens, record.Tokens, string, record.Range, int) (transform.Comparison, error)
	walk := func(kinds []record.KindSpec, next page) (groups int, err error) {
		for _, k := range kinds {
			for rest, done := (record.Range{}), false; !done; {
				const size = 1000
				p, err := next(ctx, src, dst, k.Name, rest, size)
				if err != nil {
					return groups, fmt.Errorf("compare %s: %w", k.Name, err)
				}
				groups += p.Compared
				for _, id := range p.Differ {
					if !skip[id] && !different[id] {
						different[id] = true
						if len(different) <= mostProblems {
							note(fmt.Sprintf("different: %s %s", k.Name, record.Key(id.Name)))
						}
					}
				}
				rest, done = p.Next, p.Done
			}
		}
		return groups, nil
	}
	if out.records, err = walk(dir.SourceKinds(), c.SourcePage); err != nil {
		return out, err
	}
	targets, err := walk(dir.TargetKinds(), c.TargetPage)
	out.compared, out.mismatched = out.records+targets, len(different)
	return out, err
}

// groupsOf finds the groups of the keys that were written late, by kind of the old version.
func groupsOf(dir transform.Direction, late map[string][]string) (map[transform.GroupID]bool, error) {
	groups := map[transform.GroupID]bool{}
	for kind, keys := range late {
		for _, key := range keys {
			k := record.Key(key)
			if kind == bbs.KindDesiredLRPs {
				k = record.StringKey(key)
			}
			id, ok, err := dir.GroupOf(kind, k)
			if err != nil || !ok {
				return nil, fmt.Errorf("group of %s %s (known %t): %w", kind, k, ok, err)
			}
			groups[id] = true
		}
	}
	return groups, nil
}

// tokensOf is where the kinds of a version are, as the record says after the switch.
func tokensOf(d upgradestate.Deployment, version string) record.Tokens {
	toks := record.Tokens{}
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		toks[k.Kind] = record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
	}
	return toks
}
