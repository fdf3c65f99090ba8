package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/record"
)

// Index builds and fences. While a collection has one, the server refuses to rename it and
// to change its validator (12587), for as long as the build takes. In an applyOps it does
// not even refuse: it aborts itself (8.2, "Invariant failure" in applyCommand_inlock). So
//
//   - no switch begins while one runs (Hindrances);
//   - an applyOps is sent only right after a look that found none. A build that begins in
//     the moment between is what remains: the node ends and another is elected, which has
//     everything that was acknowledged;
//   - what gives writes back (Unfence, and the opening after a flip) ends builds that began
//     under the fence: their clients get an error that they were aborted (276) and can
//     repeat them, while held writes could wait for hours.

// errBuilding reports that an index build holds an operation up.
var errBuilding = errors.New("an index of the collection is being built, which no rename can pass")

// building returns the names of the indexes of a collection that are being built, by build.
func (n *Namespace) building(ctx context.Context, name string) (map[string][]string, error) {
	listed, err := n.listIndexes(ctx, record.Token{Name: name})
	if errors.Is(err, record.ErrNotFound) || hasCode(err, codeViewWrite) {
		return nil, nil // what is gone, or a view, has no indexes
	}
	if err != nil {
		return nil, err
	}
	builds := map[string][]string{}
	for _, ix := range listed {
		if ix.building {
			builds[ix.build] = append(builds[ix.build], ix.name)
		}
	}
	return builds, nil
}

// noBuilds refuses while an index of the collection is being built.
func (n *Namespace) noBuilds(ctx context.Context, name string) error {
	found, err := n.looks.ask(ctx, name)
	if err != nil {
		return err
	}
	return found[name]
}

// lookForBuilds looks at several collections, and returns what keeps each from being renamed.
// The looks do not meet the commands that are sent after them, which have the lock of the
// whole server: one by one they would wait for each other.
func (n *Namespace) lookForBuilds(ctx context.Context, names []string) (map[string]error, error) {
	return byName(names, func(name string) string { return name }, func(name string) error {
		builds, err := n.building(ctx, name)
		if err == nil && len(builds) > 0 {
			err = fmt.Errorf("%s.%s: %w", n.name, name, errBuilding)
		}
		return err
	}), nil
}

// byName looks at several things at once and returns what came of each.
func byName[T any](all []T, name func(T) string, look func(T) error) map[string]error {
	found := make([]error, len(all))
	var g errgroup.Group
	g.SetLimit(looksAtOnce)
	for i, one := range all {
		g.Go(func() error { found[i] = look(one); return nil })
	}
	_ = g.Wait()
	by := make(map[string]error, len(all))
	for i, one := range all {
		by[name(one)] = found[i]
	}
	return by
}

// stopBuilds ends the index builds of a collection.
func (n *Namespace) stopBuilds(ctx context.Context, name string) error {
	builds, err := n.building(ctx, name)
	if err != nil {
		return err
	}
	for _, indexes := range builds {
		n.log.Warn("ending an index build that keeps clients from writing", zap.String("collection", n.name+"."+name), zap.Strings("indexes", indexes))
		err := n.db.RunCommand(ctx, bson.D{{Key: "dropIndexes", Value: name}, {Key: "index", Value: indexes}}).Err()
		if err != nil && !hasCode(err, codeIndexNotFound, codeNamespaceNotFound) {
			return fmt.Errorf("end the index build of %s: %w", strings.Join(indexes, ", "), err)
		}
	}
	return nil
}

// looksAtOnce is how many collections are looked at together: hundreds one after the other
// would be felt, for it is done while writes are held, and so would hundreds of connections
// that are opened first.
const looksAtOnce = 16

// Hindrances looks for index builds on the kinds' collections, and for records that a
// sharded cluster does not keep.
func (n *Namespace) Hindrances(ctx context.Context, toks []record.Token) ([]record.Hindrance, error) {
	builds := make([]record.Hindrance, len(toks))
	g, looking := errgroup.WithContext(ctx)
	g.SetLimit(looksAtOnce)
	for i, tok := range toks {
		g.Go(func() error {
			found, err := n.building(looking, tok.Name)
			if err != nil {
				return fmt.Errorf("look for index builds on %s.%s: %w", n.name, tok.Name, withPrivilege(err))
			}
			var names []string
			for _, indexes := range found {
				names = append(names, indexes...)
			}
			if slices.Sort(names); len(names) > 0 {
				builds[i] = record.Hindrance{Kind: tok.Kind, What: fmt.Sprintf("the build of index %s on %s.%s: wait for its end, or stop it with dropIndexes",
					strings.Join(names, ", "), n.name, tok.Name)}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(builds, func(h record.Hindrance) bool { return h.What == "" })
	unmovable, err := n.unmovable(ctx, toks)
	if err != nil {
		return nil, fmt.Errorf("look for records that shards lose in %s: %w", n.name, withPrivilege(err))
	}
	return append(found, unmovable...), nil
}
