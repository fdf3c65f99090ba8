package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// comparison is the result of comparing the two namespaces.
type comparison struct {
	records    int // in the old namespace
	compared   int
	mismatched int
}

// compare transforms every record of each namespace and compares it with the other namespace.
// Clients have stopped and the inactive namespace follows the active one. Both directions must
// therefore become equal within a moment.
func compare(ctx context.Context, cfg config.Config, registry *transform.Registry, d upgradestate.Deployment, note func(string)) (out comparison, err error) {
	spaces, views := map[string]databases.Space{}, map[string]transform.View{}
	for _, v := range []string{oldVersion, newVersion} {
		db, ok := cfg.DB(v)
		if !ok {
			return out, fmt.Errorf("version %s is not configured", v)
		}
		ns, err := databases.Open(ctx, db, databases.Config{App: "demo-check", Log: zap.NewNop()}, cfg.Path)
		if err != nil {
			return out, fmt.Errorf("database of %s: %w", v, err)
		}
		defer ns.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read
		// Read nothing older than now: a lagging replica would show differences that are gone.
		now, err := ns.Position(ctx)
		if err != nil {
			return out, fmt.Errorf("database of %s: %w", v, err)
		}
		spaces[v], views[v] = ns, transform.View{Tokens: tokensOf(d, v), NotBefore: now.At}
	}
	// Each direction has its own transform, and both must hold.
	for _, way := range [][2]string{{oldVersion, newVersion}, {newVersion, oldVersion}} {
		dir, err := registry.Direction(way[0], way[1])
		if err != nil {
			return out, err
		}
		w := walk{
			Comparer: verify.New(spaces[way[0]], spaces[way[1]], dir), src: views[way[0]], dst: views[way[1]],
			differ: map[transform.GroupID]string{},
		}
		// Sources find missing and wrong targets; targets find those without a source.
		sources, err := w.pages(ctx, dir.SourceKinds(), func(kind string) bool { return transform.SyncsFrom(dir, kind) }, w.SourcePage)
		if err != nil {
			return out, err
		}
		targets, err := w.pages(ctx, dir.TargetKinds(), func(kind string) bool { return transform.SyncsTo(dir, kind) }, w.TargetPage)
		if err != nil {
			return out, err
		}
		if err := w.settle(ctx); err != nil {
			return out, err
		}
		for i, id := range slices.SortedFunc(maps.Keys(w.differ), func(a, b transform.GroupID) int { return a.Spec - b.Spec }) {
			if i < mostProblems {
				note(fmt.Sprintf("different from %s to %s: %s %s", way[0], way[1], w.differ[id], record.Key(id.Name)))
			}
		}
		if way[0] == oldVersion {
			out.records = sources
		}
		out.compared += sources + targets
		out.mismatched += len(w.differ)
	}
	return out, nil
}

// walk compares everything in one direction.
type walk struct {
	*verify.Comparer
	src, dst transform.View
	differ   map[transform.GroupID]string // differing groups with their kind, for messages
}

type page func(context.Context, transform.View, transform.View, string, record.Range, int) (transform.Comparison, error)

func (w *walk) pages(ctx context.Context, kinds []record.KindSpec, synced func(string) bool, next page) (groups int, err error) {
	for _, k := range kinds {
		if !synced(k.Name) {
			continue
		}
		for rest, done := (record.Range{}), false; !done; {
			const size = 1000
			p, err := next(ctx, w.src, w.dst, k.Name, rest, size)
			if err != nil {
				return groups, fmt.Errorf("compare %s: %w", k.Name, err)
			}
			groups += p.Compared
			for _, id := range p.Differ {
				w.differ[id] = k.Name
			}
			rest, done = p.Next, p.Done
		}
	}
	return groups, nil
}

// settle compares differing groups again until they are equal or the time is up. The last writes
// may still be on their way.
func (w *walk) settle(ctx context.Context) error {
	for try := 0; len(w.differ) > 0 && try < 40; try++ {
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return err
		}
		left, err := w.Groups(ctx, w.src, w.dst, slices.Collect(maps.Keys(w.differ)))
		if err != nil {
			return fmt.Errorf("compare again: %w", err)
		}
		still := map[transform.GroupID]string{}
		for _, d := range left {
			still[d.ID] = w.differ[d.ID]
		}
		w.differ = still
	}
	return nil
}

// tokensOf returns the tokens of a version's kinds, from the deployment after the switch.
func tokensOf(d upgradestate.Deployment, version string) record.Tokens {
	toks := record.Tokens{}
	ns, _ := d.Namespace(version)
	for _, k := range ns.Kinds {
		toks[k.Kind] = record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
	}
	return toks
}
