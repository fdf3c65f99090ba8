package access

import (
	"crypto/x509"
	"net/http"
	"sync"
)

// Transport makes requests to servers whose authorities may be replaced while it is used.
// Connections that were made under former ones are not used for new requests: who is not
// vouched for any longer gets none.
type Transport struct {
	authorities *Authorities // nil: the system's
	pair        *KeyPair     // nil: no client certificate

	mu    sync.Mutex
	now   *http.Transport
	under *x509.CertPool // whose connections now has
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport returns one that connects as ClientTLS says.
func NewTransport(authorities *Authorities, pair *KeyPair) *Transport {
	return &Transport{authorities: authorities, pair: pair}
}

func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.current().RoundTrip(r)
}

// CloseIdleConnections is what http.Client calls.
func (t *Transport) CloseIdleConnections() { t.current().CloseIdleConnections() }

func (t *Transport) current() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	cfg := ClientTLS(t.authorities, t.pair)
	if t.now != nil && t.under == cfg.RootCAs {
		return t.now
	}
	if t.now != nil {
		// What is answered now comes to its end: such connections are closed when they are idle.
		t.now.CloseIdleConnections()
	}
	t.now, t.under = http.DefaultTransport.(*http.Transport).Clone(), cfg.RootCAs
	t.now.TLSClientConfig = cfg
	return t.now
}
