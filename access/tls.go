package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller.dev/watchedfile"
)

// KeyPair is a certificate with its key, from files that are read again when they change.
// A half-written pair, whose key does not belong to its certificate, leaves the old one in
// force.
type KeyPair struct {
	files *watchedfile.Value[*tls.Certificate]
}

// OpenKeyPair reads the files.
func OpenKeyPair(what, cert, key string, log *zap.Logger) (*KeyPair, error) {
	files, err := watchedfile.Open(what, log, func(texts [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
		}
		return &pair, nil
	}, watchedfile.Public(cert), watchedfile.Secret(key))
	if err != nil {
		return nil, err
	}
	return &KeyPair{files}, nil
}

// Certificate is the pair as the files have it now.
func (k *KeyPair) Certificate() *tls.Certificate { return k.files.Get() }

// Authorities are certificates that vouch for others, from a file that is read again when
// it changes.
type Authorities struct {
	file *watchedfile.Value[*x509.CertPool]
}

// OpenAuthorities reads the file, which has to hold a certificate: one that is being written, say,
// leaves the former ones in force.
func OpenAuthorities(what, path string, log *zap.Logger) (*Authorities, error) {
	return openAuthorities(what, path, log, false)
}

// OpenClientAuthorities is OpenAuthorities for those that vouch for clients. When the last one is
// taken out later, nobody is vouched for any longer.
func OpenClientAuthorities(what, path string, log *zap.Logger) (*Authorities, error) {
	return openAuthorities(what, path, log, true)
}

func openAuthorities(what, path string, log *zap.Logger, revocable bool) (*Authorities, error) {
	if log == nil {
		log = zap.NewNop()
	}
	opened := false
	f, err := watchedfile.Open(what, log, func(texts [][]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		switch {
		case pool.AppendCertsFromPEM(texts[0]):
		case !opened || !revocable || bytes.Contains(texts[0], []byte("-----BEGIN")):
			return nil, errors.New(path + " has no certificate in PEM form")
		default:
			log.Error("no authority is left in the file: every certificate is refused", zap.String("what", what), zap.String("file", path))
		}
		opened = true
		return pool, nil
	}, watchedfile.Trusted(path))
	if err != nil {
		return nil, err
	}
	return &Authorities{f}, nil
}

// Pool is what the file has now.
func (a *Authorities) Pool() *x509.CertPool { return a.file.Get() }

// ServerTLS is the TLS of a listener: 1.2 and newer, with the pair as it is when a
// connection is made. clients, if not nil, vouch for client certificates, which a client
// may leave out: whether it has to prove itself, and how else, is up to the Guard.
//
// Sessions are not resumed: a client would otherwise come in by a certificate whose
// authority was taken out meanwhile.
func ServerTLS(pair *KeyPair, clients *Authorities) *tls.Config {
	base := &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Certificate(), nil },
	}
	if clients == nil {
		return base
	}
	base.ClientAuth = tls.VerifyClientCertIfGiven
	base.ClientCAs = clients.Pool()
	cfg := base.Clone()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = clients.Pool()
		return now, nil
	}
	return cfg
}

// Leaf is the certificate itself.
func (k *KeyPair) Leaf() *x509.Certificate { return k.Certificate().Leaf }

// ClientTLS is the TLS of a connection that is made now: 1.2 and newer, to servers that
// authorities vouch for, or the system's if nil, and with a certificate if pair is not nil.
func ClientTLS(authorities *Authorities, pair *KeyPair) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities != nil {
		cfg.RootCAs = authorities.Pool()
	}
	if pair != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Certificate(), nil }
	}
	return cfg
}
