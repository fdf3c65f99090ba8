package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/watchedfile"
)

// KeyPair is a certificate with its key. It reads the files again after each change. While a
// half-written pair does not match, the old one stays in force.
type KeyPair struct {
	files *watchedfile.Value[*tls.Certificate]
}

// OpenKeyPair reads the files of a certificate and its key. Messages call the pair by the name what.
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

// Certificate returns the pair from the latest readable files.
func (k *KeyPair) Certificate() *tls.Certificate { return k.files.Get() }

// Authorities are certificates that sign others. They come from a file that is read again after
// each change.
type Authorities struct {
	file *watchedfile.Value[*x509.CertPool]
}

// OpenAuthorities reads the file, which must hold a certificate. A later version without one, such
// as a half-written file, leaves the former authorities in force.
func OpenAuthorities(what, path string, log *zap.Logger) (*Authorities, error) {
	return openAuthorities(what, path, log, false)
}

// OpenClientAuthorities is OpenAuthorities for authorities of clients. An operator may remove the
// last one later; then every client certificate is refused.
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
		// A PEM header without a certificate is a half-written file, not a removal.
		// At the start an empty file is a mistake; later it may be a removal.
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

// Pool returns the certificates of the latest readable file.
func (a *Authorities) Pool() *x509.CertPool { return a.file.Get() }

// signed reports whether an authority signs the first certificate for a client. The others may lead
// to the authority.
func (a *Authorities) signed(certificates []*x509.Certificate) bool {
	if len(certificates) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, c := range certificates[1:] {
		between.AddCert(c)
	}
	_, err := certificates[0].Verify(x509.VerifyOptions{
		Roots: a.Pool(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}

// ServerTLS returns the TLS configuration of a listener: version 1.2 or newer, with the pair's
// certificate at the time of each connection. clients, if not nil, sign client certificates. A
// client may omit its certificate; the Guard decides about other proofs.
//
// Sessions are not resumed. Otherwise a client could return with a certificate of a removed
// authority.
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
		// Each handshake uses the present authorities, so a removal takes effect at once.
		now := base.Clone()
		now.ClientCAs = clients.Pool()
		return now, nil
	}
	return cfg
}

// Leaf returns the parsed certificate of the pair.
func (k *KeyPair) Leaf() *x509.Certificate { return k.Certificate().Leaf }

// ClientTLS returns the TLS configuration of a new connection: version 1.2 or newer. It accepts
// servers with a certificate of authorities, or of the system's if nil. It offers the pair's
// certificate if pair is not nil.
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
