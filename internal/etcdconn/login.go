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

// Reasons for which an etcd that is there is of no use to us. Open returns them; a person
// corrects the configuration, or etcd.
var (
	// ErrLogin: etcd knows no such user with this password, or wants a login and got none.
	ErrLogin = errors.New("etcd refuses the login")
	// ErrDenied: the user has no permission for what was asked.
	ErrDenied = errors.New("etcd denies permission")
	// ErrTLS: no connection, since one side refuses the other's certificate, or only one of
	// the two speaks TLS.
	ErrTLS = errors.New("etcd cannot be reached by TLS as configured")
)

// placeholder is what the client is given instead of the password. It keeps the one of its
// making for ever, while ours may change; login puts the real one in.
const placeholder = "read when it is sent"

// Between two attempts of a login that was good before and is refused now.
const (
	loginRetry    = 250 * time.Millisecond
	loginRetryMax = 2 * time.Second
)

// login gives each authentication the password of that moment.
//
// The client authenticates again by itself whenever etcd no longer takes its token: it has
// expired, the password was changed, or anything else about users and roles was. A password
// never changes in etcd and in a file at once, so a refusal after a first success is waited
// out like an etcd that is away, as long as the caller's context allows.
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
	var refusal error // of an attempt before
	for {
		password, err := l.password()
		if err == nil {
			err = invoke(ctx, method, &pb.AuthenticateRequest{Name: ask.Name, Password: password}, reply, cc, opts...)
			switch {
			case err == nil:
				l.proved.Store(true)
				return nil
			case refusal != nil && ctx.Err() != nil:
				return refusal // has more detail than that time is over
			case !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthFailed):
				return err
			}
		}
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

// freshTLS makes each connection with the certificates of that moment.
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

// ServerHandshake implements credentials.TransportCredentials. Nobody serves with it.
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
