// Package etcdconn connects to an etcd cluster. TLS certificates and the login may change while the
// connection lives. If etcd is unreachable or refuses, the caller gets one clear line. A request
// can be marked so that it is sent at most once.
//
// The package gives keys no meaning and does not handle responses. The coordination store and the
// record store on etcd do that. Begin to read at Open.
package etcdconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// defaultDialTimeout bounds Open's wait for the cluster's first response.
const defaultDialTimeout = 5 * time.Second

// After keepAliveTime without traffic the client probes a connection. It drops the connection if no
// response arrives within keepAliveTimeout, so that calls to a vanished member do not hang. The
// server's minimum between probes is 5 s.
const (
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// Config holds the endpoints of etcd, and the credentials to log in there.
type Config struct {
	Endpoints []string // URLs or host:port; at least one
	// DialTimeout bounds Open. Zero means 5 s.
	DialTimeout time.Duration
	// Scope is the prefix of all the caller's keys. Open reads below it only, so a user with
	// permission for that prefix alone suffices. Empty: any key.
	Scope string
	// Username is for etcd's own authentication; empty for none. Each authentication calls Password
	// again, so the password may change. A nil Password is an empty one.
	Username string
	Password func() (string, error)
	// TLS is called for each new connection, so certificates may change. Nil: plain connections, or
	// the system roots if an endpoint begins with https.
	TLS func() (*tls.Config, error)
	// MaxRequest is the largest request in bytes; 0 is the client's own limit of 2 MiB. etcd has a
	// limit of its own, --max-request-bytes.
	MaxRequest int
	Log        *zap.Logger // nil for none
}

// Conn is a connection to etcd. It is safe for concurrent use. The caller must Close it.
type Conn struct {
	*clientv3.Client
	scope string // for messages and the first read
	user  string
	dials *dials
}

// Connections returns the number of connections opened so far, and 0 for a Conn that Open did not
// make.
func (c *Conn) Connections() uint64 {
	if c.dials == nil {
		return 0
	}
	return c.dials.n.Load()
}

// dials counts the connections of a client. gRPC reports a connection before its first request.
type dials struct{ n atomic.Uint64 }

func (*dials) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*dials) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*dials) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (d *dials) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, begun := s.(*stats.ConnBegin); begun {
		d.n.Add(1)
	}
}

// Open connects, and waits until the cluster answers a linearizable read. A wrong address, a wrong
// password or a cluster without quorum therefore fails at once.
func Open(ctx context.Context, cfg Config) (*Conn, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("open etcd: no endpoints are configured")
	}
	if cfg.DialTimeout <= 0 {
		cfg.DialTimeout = defaultDialTimeout
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	// The client must outlive ctx. While the client is built, though, ctx may cancel: with a
	// password, building it already sends a request for a token.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	between := []grpc.UnaryClientInterceptor{sendOnce}
	made := &dials{}
	options := []grpc.DialOption{grpc.WithStatsHandler(made)}
	// With a user name the client sends Authenticate itself. login replaces the password in that
	// request.
	password := ""
	if cfg.Username != "" {
		if cfg.Password == nil {
			cfg.Password = func() (string, error) { return "", nil }
		}
		password = placeholder
		between = append(between, (&login{password: cfg.Password, log: cfg.Log}).intercept)
	}
	if cfg.TLS != nil {
		// The last credentials win, so these replace the client's own.
		options = append(options, grpc.WithTransportCredentials(freshTLS{cfg.TLS}))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		Context:              base,
		DialTimeout:          cfg.DialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Username:             cfg.Username,
		Password:             password,
		MaxCallSendMsgSize:   cfg.MaxRequest,
		DialOptions:          append(options, grpc.WithChainUnaryInterceptor(between...)),
		// The client warns about each of its own retries. If it gives up, the caller gets the
		// error.
		Logger: cfg.Log.Named("etcd").WithOptions(zap.IncreaseLevel(zap.ErrorLevel)),
	})
	if err != nil {
		stop()
		cancel()
		// The client wraps the end of ctx in a text of its own, which would hide the reason.
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, unreachable(cfg, err)
	}
	if !stop() {
		cancel()
		_ = client.Close() // unused so far
		return nil, unreachable(cfg, ctx.Err())
	}
	c := &Conn{Client: client, scope: cfg.Scope, user: cfg.Username, dials: made}
	// clientv3.New does not wait for a connection. Only a read proves that the cluster answers.
	first, done := context.WithTimeout(ctx, cfg.DialTimeout)
	defer done()
	if err := c.ping(first); err != nil {
		_ = c.Close() // the error of the ping is the one that matters
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, unreachable(cfg, err)
	}
	return c, nil
}

// ping does a linearizable read. It bypasses the client's retries, whose error hides the reason for
// a failed connection.
func (c *Conn) ping(ctx context.Context) error {
	_, err := pb.NewKVClient(c.ActiveConnection()).Range(ctx,
		&pb.RangeRequest{Key: []byte(c.scope + "ping"), CountOnly: true}, grpc.WaitForReady(true))
	return c.Denied(err)
}

// Denied turns a refused permission into ErrDenied, with advice. It returns other errors unchanged.
func (c *Conn) Denied(err error) error {
	if !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		return err
	}
	who := "the user"
	if c.user != "" {
		who = fmt.Sprintf("user %q", c.user)
	}
	return fmt.Errorf("%w: grant a role of %s what is needed: etcdctl role grant-permission ROLE --prefix=true readwrite %s", ErrDenied, who, c.scope)
}
