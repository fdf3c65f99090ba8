package localmongo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Server is a MongoDB that can be used now.
type Server struct {
	uri     string
	version string
	nodes   []*Node
	shards  []Shard

	stopOnce sync.Once
	stop     func(context.Context) error
	stopErr  error
}

// Start finds or starts a MongoDB of the given shape and returns when it takes
// writes. ctx bounds only the start; the server runs until Stop, and at most as
// long as this process. The error is a *NotFoundError when none can be had.
func Start(ctx context.Context, o Options) (*Server, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("localmongo options: %w", err)
	}
	p, tried, err := newFinder().find(ctx, o)
	if ctx.Err() != nil {
		// What was tried failed because of that, not for want of a MongoDB.
		return nil, fmt.Errorf("find mongod: %w", ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	var s *Server
	switch {
	case p.uri != "":
		s = &Server{uri: p.uri}
		if err = s.checkForeign(ctx); err != nil {
			return nil, fmt.Errorf("use the connection string in %s: %w", URIVariable, err)
		}
	case p.mongod != "":
		if s, err = startOwn(ctx, p, o); err != nil {
			return nil, err
		}
	default:
		// Docker is the last resort, and only a run shows whether its image
		// can be had.
		if s, err = startDocker(ctx, o); err != nil {
			return nil, &NotFoundError{Tried: append(tried, Attempt{Place: p.String(), Reason: err}), Sharded: o.Shards > 0}
		}
	}
	if s.version, err = askVersion(ctx, s.uri); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	report(o.Log, "MongoDB %s from %s", s.version, p)
	return s, nil
}

// URI is the connection string, with the credentials it needs. Where this
// process started the server it has a query part, so "&option=value" may be
// appended.
func (s *Server) URI() string { return s.uri }

// Version is the server's version, such as "8.2.0".
func (s *Server) Version() string { return s.version }

// Nodes returns the processes that this process runs: none for a connection
// string and for Docker. Those of a sharded cluster are in the order in which they
// start: the members of the shards, the config server, mongos.
func (s *Server) Nodes() []*Node { return append([]*Node(nil), s.nodes...) }

// Shards returns the shards of a sharded cluster, and none of another server.
func (s *Server) Shards() []Shard { return append([]Shard(nil), s.shards...) }

// Stop ends a server that Start started and removes its data; calling it again
// is harmless. A server reached by a connection string goes on running.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		if s.stop != nil {
			s.stopErr = s.stop(ctx)
		}
	})
	return s.stopErr
}

// checkForeign makes sure that a server we did not start is one that the tests
// can work with.
func (s *Server) checkForeign(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer disconnect(ctx, client)
	h, err := ask(ctx, client)
	if err != nil {
		return err
	}
	if h.SetName == "" && h.Msg != "isdbgrid" {
		return errors.New("it is a standalone server; a replica set or mongos is needed for change streams")
	}
	return nil
}

func askVersion(ctx context.Context, uri string) (string, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return "", fmt.Errorf("connect to mongod: %w", err)
	}
	defer disconnect(ctx, client)
	var info struct {
		Version string `bson:"version"`
	}
	err = client.Database("admin").RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	if err != nil {
		return "", fmt.Errorf("ask mongod for its version: %w", err)
	}
	return info.Version, nil
}

func report(log io.Writer, format string, args ...any) {
	// Progress notes only: a log that cannot be written stops nothing.
	_, _ = fmt.Fprintf(log, "localmongo: "+format+"\n", args...)
}
