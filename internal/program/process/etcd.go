package process

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord/etcdcoord"
	"dbcontroller.dev/internal/program/etcdlogin"
)

// etcdFlags adds the flags for etcd's address and login.
func etcdFlags(fs *pflag.FlagSet, e *config.Etcd) {
	fs.StringSliceVar(&e.Endpoints, "etcd-endpoints", nil, "endpoints of etcd instead of etcd.endpoints, host:port or https://host:port, separated by commas; the flags below replace their keys likewise")
	fs.StringVar(&e.CAFile, "etcd-ca-file", "", "CA of etcd (etcd.caFile)")
	fs.StringVar(&e.CertFile, "etcd-cert-file", "", "client certificate for etcd (etcd.certFile)")
	fs.StringVar(&e.KeyFile, "etcd-key-file", "", "key of that certificate (etcd.keyFile)")
	fs.StringVar(&e.User, "etcd-user", "", "user of etcd (etcd.user)")
	fs.StringVar(&e.PasswordFile, "etcd-password-file", "", "file with the user's password (etcd.passwordFile)")
}

// merge replaces settings of the configuration by flags that were given. It refuses a combination
// that the configuration would refuse.
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
	// File and flags may each be right and contradict each other together.
	if key, want := e.Refusal(); key != "" {
		return e, fmt.Errorf("etcd.%s, or its flag: %s", key, want)
	}
	return e, nil
}

// openEtcd connects to the coordination store.
func openEtcd(ctx context.Context, e config.Etcd, log *zap.Logger) (*etcdcoord.Store, error) {
	login, err := etcdlogin.Config(e, log)
	if err != nil {
		return nil, err
	}
	if far := config.Beyond(e.Endpoints); len(far) > 0 && !e.IsTLS() {
		log.Warn("plaintext connection to etcd on another machine: who can listen there reads what is sent; use https:// and etcd.caFile", zap.Strings("endpoints", far))
	}
	return etcdcoord.Open(ctx, etcdcoord.Config{
		Endpoints: login.Endpoints, Scope: deployment.DefaultPrefix + "/", Username: login.Username, Password: login.Password, TLS: login.TLS, Log: log,
	})
}

// EtcdError reports that etcd is unreachable or refuses this process. All other errors of Start are
// mistakes in the configuration or the flags.
type EtcdError struct{ error }

func (e *EtcdError) Unwrap() error { return e.error }
