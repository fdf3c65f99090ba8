package appclient

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
)

// otherClusterError means that a client does not reach the collections of a location.
type otherClusterError struct {
	loc  *pb.Location
	kind *pb.KindLocation // a collection that it does not reach
	one  bool             // the client is Config.Mongo
}

func (e otherClusterError) Error() string {
	client, advice := "the client from MongoAt", "return a client that is connected to that cluster"
	if e.one {
		client, advice = "Mongo", "connect it to that cluster, or give MongoAt if versions are in several clusters"
	}
	return fmt.Sprintf("the data of %s is in the cluster at %s, and %s finds no collection %s.%s with UUID %s: %s",
		e.loc.GetVersion(), e.loc.GetHosts(), client, e.kind.GetDatabase(), e.kind.GetCollection(), e.kind.GetId(), advice)
}

// identified reports whether a location has the identity of a collection. Those of older
// controllers have none.
func identified(loc *pb.Location) bool {
	return slices.ContainsFunc(loc.GetKinds(), func(k *pb.KindLocation) bool { return k.GetId() != "" })
}

// recognize checks, once for each cluster, that a client reaches the data of a location. A name
// proves nothing: a write to a missing collection creates it. One matching identity is enough,
// because the application may have replaced other collections a moment ago.
func (a *App) recognize(ctx context.Context, client *mongo.Client, loc *pb.Location) error {
	if !identified(loc) {
		return nil
	}
	key := clusterKey(loc)
	a.mu.Lock()
	known := a.recognized[key]
	a.mu.Unlock()
	if known {
		return nil
	}
	var stranger *pb.KindLocation
	for _, k := range loc.GetKinds() {
		if k.GetId() == "" {
			continue
		}
		id, err := identityOf(ctx, client, k)
		if err != nil {
			return fmt.Errorf("check that this is the cluster of %s, at %s: %w", loc.GetVersion(), loc.GetHosts(), err)
		}
		if id == k.GetId() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.recognized[key] = true
			a.cluster = loc.GetCluster() // for locations of older controllers
			return nil
		}
		stranger = k
	}
	return otherClusterError{loc, stranger, a.cfg.Mongo != nil}
}

// identityOf returns the UUID of a collection. It is empty for a view and a missing collection.
func identityOf(ctx context.Context, client *mongo.Client, k *pb.KindLocation) (string, error) {
	// Without a session, because a caller's transaction cannot list collections. From the primary,
	// because names on a secondary may be those from before a switch.
	db := client.Database(k.GetDatabase(), options.Database().SetReadPreference(readpref.Primary()))
	found, err := db.ListCollectionSpecifications(mongo.NewSessionContext(ctx, nil), bson.D{{Key: "name", Value: k.GetCollection()}})
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", k.GetCollection(), err)
	}
	if len(found) != 1 || found[0].Type != "collection" || found[0].UUID == nil {
		return "", nil
	}
	return hex.EncodeToString(found[0].UUID.Data), nil
}
