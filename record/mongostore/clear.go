package mongostore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ours are the beginnings of the names of what this package keeps next to kinds.
var ours = []string{marksCollection, ownerCollection, scratchName, gatePrefix, GuardsName("")}

// Clear drops what this package keeps next to kinds, once no kind is left, and returns the
// names of what is in the database then. It drops nothing, and names all of it, while there
// is a collection of anybody else, who may be a namespace that lives here as well. MongoDB
// itself removes a database with its last collection, so that one which somebody begins to
// use in this moment is not dropped under them.
func (n *Namespace) Clear(ctx context.Context) (left []string, err error) {
	all, err := n.list(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("clear %s: %w", n.name, err)
	}
	var drop []string
	shared := false
	for _, c := range all {
		switch {
		case strings.HasPrefix(c.Name, "system."):
		case c.Name == ownerCollection:
			owned, err := n.owned(ctx)
			if err != nil {
				return nil, fmt.Errorf("clear %s: %w", n.name, err)
			}
			drop = append(drop, c.Name)
			shared = shared || owned
		case c.Type != "view" && isOurs(c.Name):
			drop = append(drop, c.Name)
		default:
			left = append(left, c.Name)
			shared = shared || c.Type != "view"
		}
	}
	if shared {
		return append(left, drop...), nil
	}
	for _, name := range drop {
		if err := n.dropNamed(ctx, name); err != nil {
			return nil, classify(fmt.Sprintf("clear %s: drop %s", n.name, name), err)
		}
	}
	return left, nil
}

// owned reports whether any namespace, or kind, is still somebody's.
func (n *Namespace) owned(ctx context.Context) (bool, error) {
	for _, prefix := range []string{ownerNamespace, ownerKind} {
		if docs, err := n.ownerDocs(ctx, prefix); err != nil || len(docs) > 0 {
			return true, err
		}
	}
	return false, nil
}

func isOurs(name string) bool {
	return slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
