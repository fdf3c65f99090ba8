// Package accesstest creates the proofs of identities for tests: authorities with certificates, and
// issuers of JSON web tokens. It also provides addresses without a controller. It tests nothing
// itself.
//
// It is not for users and may change with any version.
package accesstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// NewAuthority returns a new authority that is valid for an hour.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Pool returns a pool with only this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Bundle returns the PEM certificates of several authorities.
func Bundle(all ...*Authority) []byte {
	var text []byte
	for _, a := range all {
		text = append(text, a.pem...)
	}
	return text
}

// File writes the authority's certificate to path and returns path.
func (a *Authority) File(t testing.TB, path string) string { return Replace(t, path, a.pem) }

// Leaf describes a certificate to sign.
type Leaf struct {
	Subject pkix.Name
	SPIFFE  []string
	Expired bool
}

// Sign returns a new certificate for localhost and 127.0.0.1, and its key, both as PEM.
func (a *Authority) Sign(t testing.TB, leaf Leaf) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: leaf.Subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	// Already expired, but not before its start.
	if leaf.Expired {
		template.NotAfter = time.Now().Add(-time.Minute)
	}
	for _, s := range leaf.SPIFFE {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// Certificate signs a certificate for a client.
func (a *Authority) Certificate(t testing.TB, leaf Leaf) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.Sign(t, leaf))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// Files signs a certificate and writes NAME.crt and NAME.key.
func (a *Authority) Files(t testing.TB, dir, name string, leaf Leaf) (cert, key string) {
	t.Helper()
	c, k := a.Sign(t, leaf)
	return Replace(t, filepath.Join(dir, name+".crt"), c), Replace(t, filepath.Join(dir, name+".key"), k)
}

// Replace replaces a file atomically, as tools that renew certificates do.
func Replace(t testing.TB, path string, text []byte) string {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Issuer signs JSON web tokens, and serves its keys on loopback.
type Issuer struct {
	URL string

	http   *httptest.Server
	pair   atomic.Pointer[tls.Certificate] // nil: plain HTTP
	server *oidctest.Server
	mu     sync.Mutex
	key    *ecdsa.PrivateKey
	id     string
	Asked  int // number of requests
	// Away makes the issuer refuse all requests.
	Away atomic.Bool
}

// NewIssuer starts an issuer over plain HTTP. It stops with the test.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := newIssuer()
	i.http.Start()
	return i.started(t)
}

// NewTLSIssuer starts an issuer with a certificate of an authority.
func NewTLSIssuer(t testing.TB, a *Authority) *Issuer {
	t.Helper()
	i := newIssuer()
	i.Certify(t, a)
	// Asked at each handshake, so that Certify takes effect.
	i.http.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*i.pair.Load()}}, nil
	}}
	i.http.Config.ErrorLog = log.New(io.Discard, "", 0) // tests cause failing handshakes
	i.http.StartTLS()
	return i.started(t)
}

func newIssuer() *Issuer {
	i := &Issuer{server: &oidctest.Server{Algorithms: []string{"ES256"}}}
	i.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.Asked++
		if i.Away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		i.server.ServeHTTP(w, r)
	}))
	return i
}

func (i *Issuer) started(t testing.TB) *Issuer {
	t.Helper()
	t.Cleanup(i.http.Close)
	i.URL = i.http.URL
	i.server.SetIssuer(i.URL)
	i.Rotate(t, "first")
	return i
}

// Certify gives the server a certificate of another authority and ends its connections, as a
// restart does.
func (i *Issuer) Certify(t testing.TB, a *Authority) {
	t.Helper()
	pair := a.Certificate(t, Leaf{Subject: pkix.Name{CommonName: "issuer"}})
	i.pair.Store(&pair)
	i.http.CloseClientConnections()
}

// Rotate replaces the signing key; the issuer then serves only the new key.
func (i *Issuer) Rotate(t testing.TB, id string) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.id = newKey(t), id
	i.server.PublicKeys = []oidctest.PublicKey{{PublicKey: i.key.Public(), KeyID: id, Algorithm: "ES256"}}
}

// Token signs claims. iss, aud, exp and iat have defaults.
func (i *Issuer) Token(t testing.TB, audience string, claims map[string]any) string {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	all := map[string]any{"iss": i.URL, "aud": audience, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	maps.Copy(all, claims)
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return oidctest.SignIDToken(i.key, i.id, "ES256", string(text))
}
