// Package upstream connects the proxy to the clusters that hold the data. The driver finds the servers
// of a cluster, follows elections, and keeps connections. This package sends messages of clients
// over them.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/mnet"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/session" //nolint:staticcheck // the type of the clock that a topology needs
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"

	"dbcontroller.dev/internal/proxy/message"
)

// Cluster is one MongoDB cluster.
type Cluster struct {
	client   *mongo.Client
	topology *topology.Topology
	logins   map[*Login]*topology.Topology // not changed after Open
	lines    *lines                        // nil: those of a cluster with TLS, whose bytes only the driver can read
}

// Open connects to a cluster, with the login of the uri and with each of the others. The caller must close
// it. It returns before a server has answered.
func Open(uri string, logins ...*Login) (*Cluster, error) {
	opts := optionsOf(uri)
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("connect to a cluster: %w", err)
	}
	if opts.LoadBalanced != nil && *opts.LoadBalanced {
		return nil, errors.New("connect to a cluster: loadBalanced is not supported: cursors and transactions need the connection that they began on")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetAppName("dbcontroller-proxy"))
	if err != nil {
		return nil, fmt.Errorf("connect to a cluster: %w", err)
	}
	c := &Cluster{client: client, logins: map[*Login]*topology.Topology{}}
	if opts.TLSConfig == nil {
		c.lines = newLines()
	}
	if c.topology, err = c.follow(opts); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to a cluster: %w", err), client.Disconnect(context.Background()))
	}
	for _, l := range logins {
		if c.logins[l], err = c.follow(l.apply(optionsOf(uri))); err != nil {
			delete(c.logins, l)
			return nil, errors.Join(fmt.Errorf("connect to a cluster as %s: %w", l, err), c.Close(context.Background()))
		}
	}
	return c, nil
}

// optionsOf returns the options of connections for messages of clients. Clients decide about retries.
func optionsOf(uri string) *options.ClientOptions {
	opts := options.Client().ApplyURI(uri)
	opts.SetAppName("dbcontroller-proxy").SetMaxPoolSize(0).SetRetryWrites(false).SetRetryReads(false)
	return opts.SetCompressors(nil)
}

// follow begins to look for the servers of a cluster.
func (c *Cluster) follow(opts *options.ClientOptions) (*topology.Topology, error) {
	if c.lines != nil {
		opts.SetDialer(c.lines)
	}
	cfg, err := topology.NewConfig(opts, &session.ClusterClock{}) //nolint:staticcheck // as above
	if err != nil {
		return nil, err
	}
	t, err := topology.New(cfg)
	if err != nil {
		return nil, err
	}
	return t, t.Connect()
}

// Client returns a client for the proxy's own questions.
func (c *Cluster) Client() *mongo.Client { return c.client }

// Sharded reports whether the cluster is reached through routers. It waits until a server has answered.
func (c *Cluster) Sharded(ctx context.Context) (bool, error) {
	if _, err := c.topology.SelectServer(ctx, Want{Mode: PrimaryPreferred}); err != nil {
		return false, fmt.Errorf("no server: %w", err)
	}
	return c.topology.Kind() == description.TopologyKindSharded, nil
}

// Known returns the descriptions of the servers with data, and of the routers, that answer now.
func (c *Cluster) Known() (known []description.Server) {
	for _, s := range c.topology.Description().Servers {
		switch s.Kind {
		case description.ServerKindRSPrimary, description.ServerKindRSSecondary, description.ServerKindMongos, description.ServerKindStandalone:
			known = append(known, s)
		}
	}
	return known
}

// Close ends all connections.
func (c *Cluster) Close(ctx context.Context) error {
	errs := []error{c.topology.Disconnect(ctx), c.client.Disconnect(ctx)}
	for _, t := range c.logins {
		errs = append(errs, t.Disconnect(ctx))
	}
	return errors.Join(errs...)
}

// Conn returns a connection of a login to a server that fits; nil: that of the uri. The caller must call
// Release. Connections of one login are never used for another.
func (c *Cluster) Conn(ctx context.Context, as *Login, want Want) (*Conn, error) {
	t := c.topology
	if as != nil {
		var ok bool
		if t, ok = c.logins[as]; !ok {
			return nil, fmt.Errorf("the cluster was opened without the login %s", as)
		}
	}
	for left := tries; ; left-- {
		server, err := t.SelectServer(ctx, want)
		if err != nil {
			return nil, fmt.Errorf("no server: %w", err)
		}
		conn, err := server.Connection(ctx)
		if err != nil {
			if as != nil && refused(err) {
				return nil, fmt.Errorf("%w %s", ErrLogin, as) // the cause says no more, and the client must not see it
			}
			return nil, fmt.Errorf("no server: %w", err)
		}
		one := &Conn{conn: conn, line: c.lines.of(conn), server: server}
		if err = one.check(); err == nil {
			return one, nil
		}
		one.fail(err)
		one.Release()
		// Nothing was sent yet, and the driver knows now that the server is gone, so the next selection waits for
		// another one. A driver of a client repeats only once, and may have met a second proxy that knows as little.
		if left == 1 {
			return nil, fmt.Errorf("no server: %w", err)
		}
	}
}

// tries is the number of servers that Conn selects at most.
const tries = 3

// Conn is a connection that one client uses now.
type Conn struct {
	conn   *mnet.Connection
	line   *line // below conn; nil: messages go through the driver
	server driver.Server
	broken bool
}

// Address returns the server's address.
func (c *Conn) Address() address.Address { return c.conn.Address() }

// Server returns the description of the server.
func (c *Conn) Server() description.Server { return c.conn.Description() }

// check returns an error if the server has ended the connection while nobody used it, as a server that is killed does.
func (c *Conn) check() error {
	if c.line == nil || c.line.alive() {
		return nil
	}
	return topology.ConnectionError{ConnectionID: c.conn.ID(), Wrapped: io.EOF}
}

// Exchange sends a request and returns the reply. After an error the outcome of the request is unknown.
func (c *Conn) Exchange(ctx context.Context, request []byte) (message.Message, error) {
	return c.ExchangeTo(ctx, request, nil)
}

// ExchangeTo is Exchange for a getMore, whose batch a taker may take while it arrives. nil: the reply is read whole, as
// it is on connections with TLS. Of a batch that was taken, the reply has no documents.
func (c *Conn) ExchangeTo(ctx context.Context, request []byte, to Taker) (message.Message, error) {
	var m message.Message
	var err error
	if c.line != nil {
		m, err = c.line.exchange(ctx, c.conn.ID(), request, to)
	} else {
		m, err = c.byDriver(ctx, request)
	}
	if err == nil {
		err = c.answers(m, request)
	}
	if err != nil {
		c.fail(err)
		return message.Message{}, err
	}
	c.learn(m.Body)
	return m, nil
}

// byDriver is Exchange through the driver.
func (c *Conn) byDriver(ctx context.Context, request []byte) (m message.Message, err error) {
	if err := c.conn.Write(ctx, request); err != nil {
		return m, err
	}
	b, err := c.conn.Read(ctx)
	if err != nil {
		return m, err
	}
	if m, err = message.Parse(b); err != nil {
		return m, fmt.Errorf("%s sent a reply that is no message: %w", c.Address(), err)
	}
	return m, nil
}

// answers returns an error for a reply to another request. Its data may be those of another user. No request allows
// more than one reply, so each reply names its request.
func (c *Conn) answers(m message.Message, request []byte) error {
	if !answers(m.ReplyTo, request) {
		_, id, _, _, _, _ := wiremessage.ReadHeader(request)
		return fmt.Errorf("%s answered request %d instead of request %d", c.Address(), m.ReplyTo, id)
	}
	return nil
}

// fail makes Release end the connection. The next bytes on it belong to the failed request.
func (c *Conn) fail(err error) {
	c.broken = true
	if p, ok := c.server.(driver.ErrorProcessor); ok {
		p.ProcessError(err, c.conn)
	}
}

// learn tells the driver that a server is no primary any longer, so that it looks for the next one.
func (c *Conn) learn(reply bsoncore.Document) {
	if v, err := reply.LookupErr("ok"); err == nil {
		if ok, _ := v.AsInt64OK(); ok == 1 {
			return
		}
	}
	p, ok := c.server.(driver.ErrorProcessor)
	if !ok {
		return
	}
	var e driver.Error
	if err := driver.ExtractErrorFromServerResponse(reply); errors.As(err, &e) {
		p.ProcessError(e, c.conn)
		c.broken = c.broken || loggedOut(e)
	}
}

// Release gives the connection back.
func (c *Conn) Release() {
	if c.broken {
		// An expired connection is closed by the pool, and not used again.
		if e, ok := c.conn.ReadWriteCloser.(interface{ Expire() error }); ok {
			_ = e.Expire()
			return
		}
	}
	_ = c.conn.Close() // back into the pool
}
