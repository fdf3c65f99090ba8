// Package etcdlogin converts the etcd settings of a configuration into a connection configuration,
// for the coordination store and for databases in etcd. It reads passwords and certificates from
// their files whenever they are needed, so that a changed file needs no restart.
//
// The package does not own connections or the data in etcd.
package etcdlogin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/watchedfile"
	"dbcontroller.dev/internal/coord/etcdconn"
)

// Config checks all files now and reads them again when they are needed. It returns a *FileError
// for an unusable file.
func Config(e config.Etcd, log *zap.Logger) (etcdconn.Config, error) {
	cfg := etcdconn.Config{Endpoints: e.Endpoints, Username: e.User, Log: log}
	if e.User != "" {
		password, err := watchedfile.Open("etcd.passwordFile", log, passwordOf(e.PasswordFile), watchedfile.Secret(e.PasswordFile))
		if err != nil {
			return cfg, &FileError{err}
		}
		cfg.Password = func() (string, error) { return password.Get(), nil }
	}
	if e.IsTLS() {
		var err error
		if cfg.TLS, err = clientTLS(e, log); err != nil {
			return cfg, &FileError{err}
		}
	}
	return cfg, nil
}

// passwordOf parses a file that holds a password and perhaps a line end.
func passwordOf(path string) func([][]byte) (string, error) {
	return func(texts [][]byte) (string, error) {
		// Editors add a line end. A password with one at its end cannot be meant.
		password := strings.TrimRight(string(texts[0]), "\r\n")
		if password == "" {
			return "", fmt.Errorf("%s is empty", path)
		}
		return password, nil
	}
}

// clientTLS returns the TLS configuration for a new connection, with the certificates at that time.
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

// FileError reports a configured file that cannot be used.
type FileError struct{ error }

func (e *FileError) Unwrap() error { return e.error }

// Correct returns advice for an etcd that cannot be used. embedded means that it was found through
// dataDir, so that no setting names it.
func Correct(err error, e config.Etcd, embedded bool) string {
	var file *FileError
	switch {
	case errors.As(err, &file):
		return "correct the file, or the key"
	case errors.Is(err, etcdconn.ErrLogin) && e.User == "":
		return "give etcd.user and etcd.passwordFile"
	case errors.Is(err, etcdconn.ErrLogin):
		return "correct what " + e.PasswordFile + " holds, or etcd.user"
	case errors.Is(err, etcdconn.ErrDenied):
		return "or name another etcd.user"
	// The server wants TLS, and the configuration has none.
	case errors.Is(err, etcdconn.ErrTLS) && !e.IsTLS():
		return "write https:// in etcd.endpoints and give etcd.caFile"
	case errors.Is(err, etcdconn.ErrTLS):
		return "correct etcd.caFile, etcd.certFile and etcd.keyFile, or the scheme of etcd.endpoints,"
	// No setting names this etcd, so advice about settings would mislead.
	case embedded:
		return "start the controller or the 'dbcontroller etcd' that hosts it again, or name etcd.endpoints"
	default:
		return "start etcd, or correct etcd.endpoints"
	}
}
