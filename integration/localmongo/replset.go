package localmongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// setName is the name of each replica set started here that is not part of a sharded cluster.
const setName = "rs0"

// hello is the part of the response to "hello" that shows a node's role.
type hello struct {
	SetName           string `bson:"setName"`
	Msg               string `bson:"msg"`
	IsWritablePrimary bool   `bson:"isWritablePrimary"`
	Secondary         bool   `bson:"secondary"`
	// ElectionID grows with each election. Only a primary has one.
	ElectionID bson.ObjectID `bson:"electionId"`
}

// poll calls try until it returns nil or a permanent error, or until ctx ends. It then returns the
// last error of try together with the error of ctx.
func poll(ctx context.Context, try func() error) error {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(200*time.Millisecond),
		backoff.WithMaxElapsedTime(0),
	)
	var last error
	err := backoff.Retry(func() error {
		last = try()
		return last
	}, backoff.WithContext(b, ctx))
	// The end of ctx alone would not tell why the attempts failed.
	if err != nil && ctx.Err() != nil && !errors.Is(last, ctx.Err()) {
		return errors.Join(ctx.Err(), last)
	}
	return err
}

// direct connects to the node at addr, whatever its role.
func direct(addr string) (*mongo.Client, error) {
	client, err := mongo.Connect(options.Client().
		ApplyURI("mongodb://" + addr + "/?directConnection=true").
		SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect to mongod: %w", err)
	}
	return client, nil
}

func ask(ctx context.Context, client *mongo.Client) (hello, error) {
	var h hello
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	if err != nil {
		return h, fmt.Errorf("ask mongod for its role: %w", err)
	}
	return h, nil
}

// initiate forms a replica set of the members. client must be connected directly to the first one.
func initiate(ctx context.Context, client *mongo.Client, name string, members []string, configServer bool) error {
	list := make(bson.A, len(members))
	for i, m := range members {
		list[i] = bson.D{{Key: "_id", Value: i}, {Key: "host", Value: m}}
	}
	config := bson.D{
		{Key: "_id", Value: name},
		{Key: "members", Value: list},
		// A fifth of the default of 10 s: tests kill primaries, and all members share one machine.
		// A shorter timeout would cause elections whenever that machine is busy.
		{Key: "settings", Value: bson.D{
			{Key: "electionTimeoutMillis", Value: 2000},
			{Key: "heartbeatIntervalMillis", Value: 500},
		}},
	}
	if configServer {
		config = append(config, bson.E{Key: "configsvr", Value: true})
	}
	cmd := bson.D{{Key: "replSetInitiate", Value: config}}
	if err := client.Database("admin").RunCommand(ctx, cmd).Err(); err != nil {
		return fmt.Errorf("initiate replica set: %w", err)
	}
	return nil
}

// awaitRole returns when client's node is primary, or secondary if secondaryWillDo is set.
func awaitRole(ctx context.Context, client *mongo.Client, secondaryWillDo bool) error {
	return poll(ctx, func() error {
		h, err := ask(ctx, client)
		switch {
		case err != nil:
			return err
		case h.IsWritablePrimary, secondaryWillDo && h.Secondary:
			return nil
		default:
			return errors.New("await replica set: node is neither primary nor secondary yet")
		}
	})
}

// disconnect closes client, even if the work's context has ended.
func disconnect(ctx context.Context, client *mongo.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// A clean close does not matter: the server may already be gone.
	_ = client.Disconnect(ctx)
}
