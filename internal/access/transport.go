package access

import (
	"crypto/x509"
	"net/http"
	"sync"
)

// Transport sends requests to servers, and accepts that the file of authorities changes. New
// requests never use a connection from before the change, because the authorities may no longer
// accept its server.
type Transport struct {
	authorities *Authorities // nil: the system's authorities
	pair        *KeyPair     // nil: no client certificate

	mu    sync.Mutex
	now   *http.Transport
	under *x509.CertPool // authorities of now's connections
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport returns a transport that connects as ClientTLS describes.
func NewTransport(authorities *Authorities, pair *KeyPair) *Transport {
	return &Transport{authorities: authorities, pair: pair}
}

func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.current().RoundTrip(r)
}

// CloseIdleConnections implements the optional interface of http.Client.
func (t *Transport) CloseIdleConnections() { t.current().CloseIdleConnections() }

// current returns the transport for the present authorities.
func (t *Transport) current() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	cfg := ClientTLS(t.authorities, t.pair)
	// The pool is replaced as a whole, so the pointer shows a change.
	if t.now != nil && t.under == cfg.RootCAs {
		return t.now
	}
	if t.now != nil {
		// Running requests continue. Their connections close when they become idle.
		t.now.CloseIdleConnections()
	}
	t.now, t.under = http.DefaultTransport.(*http.Transport).Clone(), cfg.RootCAs
	t.now.TLSClientConfig = cfg
	return t.now
}
