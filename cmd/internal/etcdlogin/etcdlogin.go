// Package etcdlogin makes of the keys that a configuration has for an etcd how to connect to it:
// the coordination store, and databases that are in etcd. Passwords and certificates are those
// that their files hold whenever one is needed.
//
// What is kept in etcd belongs to who connects, and so does when.
package etcdlogin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/access"
	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/etcdconn"
	"dbcontroller.dev/watchedfile"
)

// Config reads the files now, so that a wrong one is an error of the start, a *FileError, and
// has them read again whenever they are needed.
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

// FileError is a file of the configuration that cannot be used.
type FileError struct{ error }

func (e *FileError) Unwrap() error { return e.error }

// Correct is what a person does about an etcd that cannot be used; embedded: about one that was
// found through dataDir, which no key of the configuration names.
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
	case errors.Is(err, etcdconn.ErrTLS) && !e.IsTLS():
		return "write https:// in etcd.endpoints and give etcd.caFile"
	case errors.Is(err, etcdconn.ErrTLS):
		return "correct etcd.caFile, etcd.certFile and etcd.keyFile, or the scheme of etcd.endpoints,"
	case embedded:
		return "start the controller or the 'dbcontroller etcd' that hosts it again, or name etcd.endpoints"
	default:
		return "start etcd, or correct etcd.endpoints"
	}
}
