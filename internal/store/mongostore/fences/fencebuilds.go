package fences

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// Index builds and fences. During an index build the server refuses to rename the collection or to
// change its validator (12587), however long the build takes. For an applyOps it does not even
// refuse: it aborts itself (8.2, "Invariant failure" in applyCommand_inlock). Therefore:
//
//   - No switch begins while a build runs (Hindrances).
//   - An applyOps is sent only right after a check that found no build. If a build begins in that
//     moment, the node aborts. Another node is elected, which has every acknowledged write.
//   - Operations that give writes back (Unfence, and the opening after a flip) end builds that
//     began under the fence. Their clients get an error (276) and can repeat the build. Held writes
//     could otherwise wait for hours.

// errBuilding reports that an index build blocks an operation.
var errBuilding = errors.New("an index of the collection is being built, and a rename must wait for it")

// building returns the names of the indexes under construction, by build.
func (n *indexBuilds) building(ctx context.Context, name string) (map[string][]string, error) {
	listed, err := n.Indexed.Ask(ctx, name)
	if errors.Is(err, record.ErrNotFound) || conn.HasCode(err, conn.CodeViewWrite) {
		return nil, nil // a missing collection or a view has no indexes
	}
	if err != nil {
		return nil, err
	}
	builds := map[string][]string{}
	for _, ix := range listed {
		if ix.Building {
			builds[ix.Build] = append(builds[ix.Build], ix.Name)
		}
	}
	return builds, nil
}

// noBuilds returns errBuilding while an index of the collection is being built.
func (n *indexBuilds) noBuilds(ctx context.Context, name string) error {
	found, err := n.looks.Ask(ctx, name)
	if err != nil {
		return err
	}
	return found[name]
}

// lookForBuilds checks several collections at once, and returns an error for each that has a build.
// Callers send commands with the lock of the whole server afterwards, and one check at a time would
// wait behind those.
func (n *indexBuilds) lookForBuilds(ctx context.Context, names []string) (map[string]error, error) {
	return byName(names, func(name string) string { return name }, func(name string) error {
		builds, err := n.building(ctx, name)
		if err == nil && len(builds) > 0 {
			// A build in progress is the answer, not a failure of the check.
			err = fmt.Errorf("%s.%s: %w", n.Name, name, errBuilding)
		}
		return err
	}), nil
}

// byName calls look for several things at once and returns the results by name.
func byName[T any](all []T, name func(T) string, look func(T) error) map[string]error {
	found := make([]error, len(all))
	var g errgroup.Group
	g.SetLimit(conn.LooksAtOnce)
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
func (n *indexBuilds) stopBuilds(ctx context.Context, name string) error {
	builds, err := n.building(ctx, name)
	if err != nil {
		return err
	}
	for _, indexes := range builds {
		n.Log.Warn("ending an index build that blocks writes of clients", zap.String("collection", n.Name+"."+name), zap.Strings("indexes", indexes))
		err := n.DB.RunCommand(ctx, bson.D{{Key: "dropIndexes", Value: name}, {Key: "index", Value: indexes}}).Err()
		// The build may have ended by itself.
		if err != nil && !conn.HasCode(err, conn.CodeIndexNotFound, conn.CodeNamespaceNotFound) {
			return fmt.Errorf("end the index build of %s: %w", strings.Join(indexes, ", "), err)
		}
	}
	return nil
}

// Hindrances returns the index builds on the kinds' collections, and records that a sharded cluster
// would lose. A switch must wait for them.
func (n *indexBuilds) Hindrances(ctx context.Context, toks []record.Token) ([]record.Hindrance, error) {
	builds := make([]record.Hindrance, len(toks))
	g, looking := errgroup.WithContext(ctx) // lookups bounds the commands
	for i, tok := range toks {
		g.Go(func() error {
			found, err := n.building(looking, tok.Name)
			if err != nil {
				return fmt.Errorf("look for index builds on %s.%s: %w", n.Name, tok.Name, conn.WithPrivilege(err))
			}
			var names []string
			for _, indexes := range found {
				names = append(names, indexes...)
			}
			if slices.Sort(names); len(names) > 0 {
				builds[i] = record.Hindrance{Kind: tok.Kind, What: fmt.Sprintf("the build of index %s on %s.%s: wait until it ends, or stop it with dropIndexes",
					strings.Join(names, ", "), n.Name, tok.Name)}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	// Collections without a build left an empty entry.
	found := slices.DeleteFunc(builds, func(h record.Hindrance) bool { return h.What == "" })
	unmovable, err := n.unmovable(ctx, toks)
	if err != nil {
		return nil, fmt.Errorf("look for records that shards lose in %s: %w", n.Name, conn.WithPrivilege(err))
	}
	return append(found, unmovable...), nil
}
