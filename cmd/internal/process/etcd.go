package process

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"dbcontroller.dev/access"
	"dbcontroller.dev/config"
	"dbcontroller.dev/coord/etcdcoord"
	"dbcontroller.dev/deployment"
	"dbcontroller.dev/internal/etcdconn"
	"dbcontroller.dev/watchedfile"
)

// etcdFlags adds the flags that say where etcd is, and how to get in.
func etcdFlags(fs *pflag.FlagSet, e *config.Etcd) {
	fs.StringSliceVar(&e.Endpoints, "etcd-endpoints", nil, "instead of etcd.endpoints of the configuration, as the following are of their keys: host:port or https://host:port, with commas between")
	fs.StringVar(&e.CAFile, "etcd-ca-file", "", "certificates of the authority of etcd (etcd.caFile)")
	fs.StringVar(&e.CertFile, "etcd-cert-file", "", "certificate to show to etcd (etcd.certFile)")
	fs.StringVar(&e.KeyFile, "etcd-key-file", "", "its key (etcd.keyFile)")
	fs.StringVar(&e.User, "etcd-user", "", "user of etcd (etcd.user)")
	fs.StringVar(&e.PasswordFile, "etcd-password-file", "", "file with the user's password (etcd.passwordFile)")
}

// merge puts what the flags say over what the configuration says.
func merge(e, flags config.Etcd) (config.Etcd, error) {
	if len(flags.Endpoints) > 0 {
		e.Endpoints = flags.Endpoints
	}
	for _, pair := range []struct {
		to   *string
		from string
	}{
		{&e.CAFile, flags.CAFile}, {&e.CertFile, flags.CertFile}, {&e.KeyFile, flags.KeyFile},
		{&e.User, flags.User}, {&e.PasswordFile, flags.PasswordFile},
	} {
		if pair.from != "" {
			*pair.to = pair.from
		}
	}
	if key, want := e.Refusal(); key != "" {
		return e, fmt.Errorf("etcd.%s, or its flag: %s", key, want)
	}
	return e, nil
}

// openEtcd connects. The files are read now, so that a wrong one is an error of the start,
// and again whenever they are needed.
func openEtcd(ctx context.Context, e config.Etcd, log *zap.Logger) (*etcdcoord.Store, error) {
	cfg := etcdcoord.Config{Endpoints: e.Endpoints, Scope: deployment.DefaultPrefix + "/", Username: e.User, Log: log}
	if e.User != "" {
		password, err := watchedfile.Open("etcd.passwordFile", log, passwordOf(e.PasswordFile), watchedfile.Secret(e.PasswordFile))
		if err != nil {
			return nil, &fileError{err}
		}
		cfg.Password = func() (string, error) { return password.Get(), nil }
	}
	if e.IsTLS() {
		var err error
		if cfg.TLS, err = clientTLS(e, log); err != nil {
			return nil, &fileError{err}
		}
	}
	if far := config.Beyond(e.Endpoints); len(far) > 0 && !e.IsTLS() {
		log.Warn("plaintext connection to etcd on another machine: who can listen there reads what is sent; use https:// and etcd.caFile", zap.Strings("endpoints", far))
	}
	return etcdcoord.Open(ctx, cfg)
}

// passwordOf takes a file that has nothing but a password, and perhaps the end of its line.
func passwordOf(path string) func([][]byte) (string, error) {
	return func(texts [][]byte) (string, error) {
		password := strings.TrimRight(string(texts[0]), "\r\n")
		if password == "" {
			return "", fmt.Errorf("%s is empty", path)
		}
		return password, nil
	}
}

// clientTLS is the TLS of each new connection, with the certificates of that moment.
func clientTLS(e config.Etcd, log *zap.Logger) (func() (*tls.Config, error), error) {
	var authorities *access.Authorities
	var pair *access.KeyPair
	var err error
	if e.CAFile != "" {
		if authorities, err = access.OpenAuthorities("etcd.caFile", e.CAFile, log); err != nil {
			return nil, err
		}
	}
	if e.CertFile != "" {
		if pair, err = access.OpenKeyPair("etcd.certFile and etcd.keyFile", e.CertFile, e.KeyFile, log); err != nil {
			return nil, err
		}
	}
	return func() (*tls.Config, error) { return access.ClientTLS(authorities, pair), nil }, nil
}

// fileError is a file of the configuration that cannot be used.
type fileError struct{ error }

func (e *fileError) Unwrap() error { return e.error }

// EtcdError is an etcd that cannot be reached, or refuses this process. Any other error of
// Start is a mistake in what was given.
type EtcdError struct{ error }

func (e *EtcdError) Unwrap() error { return e.error }

// correct is what a person does about an etcd that cannot be used.
func correct(err error, e config.Etcd) string {
	var file *fileError
	switch {
	case errors.As(err, &file):
		return "correct the file, or the key"
	case errors.Is(err, etcdconn.ErrLogin) && e.User == "":
		return "give etcd.user and etcd.passwordFile"
	case errors.Is(err, etcdconn.ErrLogin):
		return "correct what " + e.PasswordFile + " holds, or etcd.user"
	case errors.Is(err, etcdconn.ErrDenied):
		return "or name another etcd.user"
	case errors.Is(err, etcdconn.ErrTLS) && !e.IsTLS():
		return "write https:// in etcd.endpoints and give etcd.caFile"
	case errors.Is(err, etcdconn.ErrTLS):
		return "correct etcd.caFile, etcd.certFile and etcd.keyFile, or the scheme of etcd.endpoints,"
	default:
		return "start etcd, or correct etcd.endpoints"
	}
}
