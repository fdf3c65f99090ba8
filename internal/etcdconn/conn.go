// Package etcdconn connects to an etcd cluster: TLS and a login that may change while the
// connection lives, one clear line where etcd cannot be reached or refuses, and requests that
// are sent at most once.
//
// What keys mean, and what becomes of an answer, belongs to those who use the connection: the
// coordination store and the record store on etcd.
package etcdconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// defaultDialTimeout is how long Open waits for an answer of the cluster.
const defaultDialTimeout = 5 * time.Second

// Connections that are silent for keepAliveTime are probed, and given up after
// keepAliveTimeout more: calls to a member that vanished without a word do not hang.
// The server's minimum between probes is 5 s.
const (
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// Config holds which etcd, and how to log in there.
type Config struct {
	Endpoints []string // URLs or host:port; at least one
	// DialTimeout bounds Open. Zero is 5 s.
	DialTimeout time.Duration
	// Scope is a prefix below which all keys of the caller are. Open reads there and nowhere
	// else, so that a user with permission for it alone will do. Empty: any key.
	Scope string
	// Username is for etcd's own authentication, empty for none. Password is asked at each
	// authentication, so that it may change.
	Username string
	Password func() (string, error)
	// TLS is asked for each new connection, so that certificates may change; nil for plain
	// connections, and for system roots where an endpoint begins with https.
	TLS func() (*tls.Config, error)
	// MaxRequest is how many bytes a request may have; 0: the client's own bound, of 2 MiB.
	// etcd has its own, --max-request-bytes.
	MaxRequest int
	Log        *zap.Logger // nil for none
}

// Conn is a connection to etcd. It is safe for concurrent use; Close ends it.
type Conn struct {
	*clientv3.Client
	scope string // for messages and the first read
	user  string
}

// Open connects and waits until the cluster answers a linearizable read, so that a
// wrong address, a wrong password or a cluster without quorum shows at once.
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
	// The client's life must not end with ctx, but ctx may cut short its making, which
	// asks for a token where there is a password.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	between := []grpc.UnaryClientInterceptor{sendOnce}
	var options []grpc.DialOption
	password := ""
	if cfg.Username != "" {
		if cfg.Password == nil {
			cfg.Password = func() (string, error) { return "", nil }
		}
		password = placeholder
		between = append(between, (&login{password: cfg.Password, log: cfg.Log}).intercept)
	}
	if cfg.TLS != nil {
		// After the client's own, which it replaces.
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
		// The client warns of each retry that it makes by itself; what it gives up on
		// comes back as an error.
		Logger: cfg.Log.Named("etcd").WithOptions(zap.IncreaseLevel(zap.ErrorLevel)),
	})
	if err != nil {
		stop()
		cancel()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, unreachable(cfg, err)
	}
	if !stop() {
		cancel()
		_ = client.Close() // nothing was done with it
		return nil, unreachable(cfg, ctx.Err())
	}
	c := &Conn{Client: client, scope: cfg.Scope, user: cfg.Username}
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

// ping reads linearizably. It does not go through the client's retries, whose error
// does not report why a connection cannot be made.
func (c *Conn) ping(ctx context.Context) error {
	_, err := pb.NewKVClient(c.ActiveConnection()).Range(ctx,
		&pb.RangeRequest{Key: []byte(c.scope + "ping"), CountOnly: true}, grpc.WaitForReady(true))
	return c.Denied(err)
}

// Denied makes a refusal of permission ErrDenied and adds what to do; other errors stay.
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
