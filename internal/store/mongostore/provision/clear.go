package provision

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/fences"
)

// ours lists the name prefixes of the collections that this package creates next to kinds.
var ours = []string{conn.MarksCollection, fences.OwnerCollection, conn.ScratchName, conn.GatePrefix, conn.GuardsName("")}

// Clear drops the collections that this package keeps next to kinds, once no kind is left. It
// returns the names of the collections that remain. If a foreign collection or another namespace is
// in the database, Clear drops nothing and returns all names. It never drops the database itself:
// MongoDB removes it with its last collection, so a user who starts to use it at this moment loses
// nothing.
func (n *Collections) Clear(ctx context.Context) (left []string, err error) {
	return n.clear(ctx, false)
}

// Vacate is Clear for a database in which others have collections: it drops this package's
// collections, and the views of completed versions, unless a namespace or kind still has an owner.
func (n *Collections) Vacate(ctx context.Context) (left []string, err error) {
	return n.clear(ctx, true)
}

func (n *Collections) clear(ctx context.Context, among bool) (left []string, err error) {
	all, err := n.List(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("clear %s: %w", n.Name, err)
	}
	var drop []string
	shared := false
	for _, c := range all {
		switch {
		// MongoDB drops its own collections with the database.
		case strings.HasPrefix(c.Name, "system."):
		case c.Name == fences.OwnerCollection:
			// Another namespace's mark means that the database is shared.
			owned, err := n.owned(ctx)
			if err != nil {
				return nil, fmt.Errorf("clear %s: %w", n.Name, err)
			}
			drop = append(drop, c.Name)
			shared = shared || owned
		// Views hold no data and do not keep a database in use.
		case c.Type != "view" && isOurs(c.Name), among && c.Retired():
			drop = append(drop, c.Name)
		default:
			left = append(left, c.Name)
			shared = shared || c.Type != "view" && !among
		}
	}
	// The marks of ownership go last: after a crash they show that the rest is not done.
	slices.SortStableFunc(drop, func(a, b string) int { return cmp.Compare(last(a), last(b)) })
	if shared {
		return append(left, drop...), nil
	}
	// A collection created since the listing is not in drop and stays.
	for _, name := range drop {
		if err := n.DropNamed(ctx, name); err != nil {
			return nil, conn.Classify(fmt.Sprintf("clear %s: drop %s", n.Name, name), err)
		}
	}
	return left, nil
}

// owned reports whether the database still has an ownership mark of a namespace or kind.
func (n *Collections) owned(ctx context.Context) (bool, error) {
	for _, prefix := range []string{fences.OwnerNamespace, fences.OwnerKind} {
		// After an error nothing is known: report the database as owned, so that nothing is
		// dropped.
		if docs, err := n.fences.OwnerDocs(ctx, prefix); err != nil || len(docs) > 0 {
			return true, err
		}
	}
	return false, nil
}

func last(name string) int {
	if name == fences.OwnerCollection {
		return 1
	}
	return 0
}

func isOurs(name string) bool {
	return slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
