package etcdconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Reasons to refuse a reachable etcd. Open returns them. An operator must correct the configuration
// or etcd.
var (
	// ErrLogin: etcd has no user with this password, or requires a login and received none.
	ErrLogin = errors.New("etcd refuses the login")
	// ErrDenied: the user lacks permission for the request.
	ErrDenied = errors.New("etcd denies permission")
	// ErrTLS: the connection failed because one side refused the other's certificate, or because
	// only one side uses TLS.
	ErrTLS = errors.New("etcd cannot be reached by TLS as configured")
)

// placeholder goes to the client instead of the password. The client keeps its first password for
// ever, while ours may change; login puts the real one into each request.
const placeholder = "read when it is sent"

// Bounds of the wait between two attempts of a login that etcd accepted earlier and refuses now.
const (
	loginRetry    = 250 * time.Millisecond
	loginRetryMax = 2 * time.Second
)

// login puts the current password into each authentication request.
//
// The client authenticates again whenever etcd rejects its token: the token expired, or someone
// changed the password, a user or a role. A password never changes in etcd and in a file at the
// same moment. After a first success, login therefore retries a refused password until the caller's
// context ends, as if etcd were unreachable.
type login struct {
	password func() (string, error)
	log      *zap.Logger
	proved   atomic.Bool // a login was accepted before
}

func (l *login) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ask, ok := req.(*pb.AuthenticateRequest)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(loginRetry),
		backoff.WithMaxInterval(loginRetryMax), backoff.WithMaxElapsedTime(0))
	var refusal error // from an earlier attempt
	for {
		password, err := l.password()
		if err == nil {
			err = invoke(ctx, method, &pb.AuthenticateRequest{Name: ask.Name, Password: password}, reply, cc, opts...)
			switch {
			case err == nil:
				l.proved.Store(true)
				return nil
			// The last attempt failed only because the caller's time ended.
			case refusal != nil && ctx.Err() != nil:
				return refusal // more detail than an expired deadline
			case !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthFailed):
				return err
			}
		}
		// Before any success the password is most likely wrong, and a retry would hide that.
		if !l.proved.Load() {
			return err
		}
		if refusal == nil {
			l.log.Warn("etcd refuses the login that it took before; tried again until it fits", zap.String("user", ask.Name), zap.Error(err))
		}
		refusal = err
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return refusal
		}
	}
}

// freshTLS builds each connection with the current certificates.
type freshTLS struct {
	make func() (*tls.Config, error)
}

var _ credentials.TransportCredentials = freshTLS{}

func (f freshTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	cfg, err := f.make()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(cfg).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials. No server uses it.
func (f freshTLS) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials of a client")
}

func (f freshTLS) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}).Info()
}

func (f freshTLS) Clone() credentials.TransportCredentials { return f }

func (f freshTLS) OverrideServerName(string) error {
	return errors.New("the server's name is the endpoint's")
}
