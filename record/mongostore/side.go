package mongostore

import (
	"context"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// GuardsName is the side collection that holds the guards and tombstones of a
// fixed-name kind, in the kind's own database.
func GuardsName(kind string) string { return "dbc_guards." + kind }

// sideCollections remembers which side collections are known to exist, so that they
// are created in advance: creations by transactions would conflict with each other.
type sideCollections struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// ensureSide creates a fixed-name kind's side collection unless it is known.
func (n *Namespace) ensureSide(ctx context.Context, kind string) error {
	name := GuardsName(kind)
	n.sides.mu.Lock()
	_, known := n.sides.known[name]
	n.sides.mu.Unlock()
	if known {
		return nil
	}
	err := n.db.RunCommand(ctx, bson.D{
		{Key: "create", Value: name},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Err()
	if err != nil && !hasCode(err, codeNamespaceExists) {
		return classify(fmt.Sprintf("create %s", name), err)
	}
	n.sides.mu.Lock()
	defer n.sides.mu.Unlock()
	if n.sides.known == nil {
		n.sides.known = make(map[string]struct{})
	}
	n.sides.known[name] = struct{}{}
	return nil
}

// forgetSide is called after a side collection was dropped.
func (n *Namespace) forgetSide(kind string) {
	n.sides.mu.Lock()
	defer n.sides.mu.Unlock()
	delete(n.sides.known, GuardsName(kind))
}
