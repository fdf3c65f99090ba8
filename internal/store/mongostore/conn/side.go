package conn

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// GuardsName returns the name of the side collection with the guards and tombstones of a fixed-name
// kind. It is in the kind's database.
func GuardsName(kind string) string { return "dbc_guards." + kind }

// sideCollections remembers the side collections that exist. They are created before the
// transactions that use them, because creations inside transactions would conflict.
type sideCollections struct {
	mu    sync.Mutex
	known map[string]struct{}
}

// EnsureSide creates a fixed-name kind's side collection unless it is known to exist.
func (n *Conn) EnsureSide(ctx context.Context, kind string) error {
	name := GuardsName(kind)
	n.sides.mu.Lock()
	_, known := n.sides.known[name]
	n.sides.mu.Unlock()
	if known {
		return nil
	}
	err := n.DB.RunCommand(ctx, bson.D{
		{Key: "create", Value: name},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Err()
	// Another process may create it at the same time.
	if err != nil && !HasCode(err, CodeNamespaceExists) {
		return Classify(fmt.Sprintf("create %s", name), err)
	}
	n.sides.mu.Lock()
	defer n.sides.mu.Unlock()
	if n.sides.known == nil {
		n.sides.known = make(map[string]struct{})
	}
	n.sides.known[name] = struct{}{}
	return nil
}

// ForgetSide forgets a side collection that was dropped.
func (n *Conn) ForgetSide(kind string) {
	n.sides.mu.Lock()
	defer n.sides.mu.Unlock()
	delete(n.sides.known, GuardsName(kind))
}

// ForgetSides forgets the side collections of all kinds whose names begin with prefix.
func (n *Conn) ForgetSides(prefix string) {
	n.sides.mu.Lock()
	defer n.sides.mu.Unlock()
	for name := range n.sides.known {
		if strings.HasPrefix(name, GuardsName(prefix)) {
			delete(n.sides.known, name)
		}
	}
}
