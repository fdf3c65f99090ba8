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

// Server is a MongoDB ready for use.
type Server struct {
	uri     string
	version string
	nodes   []*Node
	shards  []Shard

	stopOnce sync.Once
	stop     func(context.Context) error
	stopErr  error
}

// Start finds or starts a MongoDB of the wanted shape, and returns when it accepts writes. ctx
// bounds the start only. The server runs until Stop, and no longer than this process. The error is
// a *NotFoundError if no MongoDB is available.
func Start(ctx context.Context, o Options) (*Server, error) { return startFound(ctx, o, newFinder()) }

func startFound(ctx context.Context, o Options, f finder) (*Server, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("localmongo options: %w", err)
	}
	p, tried, err := f.find(ctx, o)
	if ctx.Err() != nil {
		// The attempts failed because ctx ended, and say nothing about the machine.
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
		// Docker is the last resort. Only a run shows whether its image is available.
		if s, err = startDocker(ctx, o); err != nil {
			return nil, &NotFoundError{Tried: append(tried, Attempt{Place: p.String(), Reason: err}), Sharded: o.Shards > 0}
		}
	}
	// This is also the first request by the URI that callers get, so a wrong one fails here.
	if s.version, err = askVersion(ctx, s.uri); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	report(o.Log, "MongoDB %s from %s", s.version, p)
	return s, nil
}

// URI returns the connection string with its credentials. If this process started the server, the
// string has a query part, so callers may append "&option=value".
func (s *Server) URI() string { return s.uri }

// Version returns the server's version, such as "8.2.0".
func (s *Server) Version() string { return s.version }

// Nodes returns the server processes that this process runs. There are none for a connection string
// or Docker. For a sharded cluster their order is the order of the start: the members of the
// shards, the config server, mongos.
func (s *Server) Nodes() []*Node { return append([]*Node(nil), s.nodes...) }

// Shards returns the shards of a sharded cluster; none for any other server.
func (s *Server) Shards() []Shard { return append([]Shard(nil), s.shards...) }

// Stop ends a server that Start has started and removes its data. Later calls do nothing and return
// the same error. A server reached by a connection string keeps running.
func (s *Server) Stop(ctx context.Context) error {
	// Tests often stop a server both themselves and by a deferred call.
	s.stopOnce.Do(func() {
		if s.stop != nil {
			s.stopErr = s.stop(ctx)
		}
	})
	return s.stopErr
}

// checkForeign refuses a server of a connection string that tests cannot work with.
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
	// mongos has no set name, but this message.
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
	// A log that cannot be written must not stop the start.
	_, _ = fmt.Fprintf(log, "localmongo: "+format+"\n", args...)
}
