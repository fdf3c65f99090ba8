package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/refusal"
	"dbcontroller.dev/vrunner"
)

// ForwardedHeader names the region that forwarded a request. Such a request goes no further, so that
// two regions cannot send it back and forth.
const ForwardedHeader = "Dbcontroller-Forwarded"

// otherRegion is the API of another region's servers.
type otherRegion struct {
	name      string
	transport *http.Transport
	client    *http.Client
	proxy     *httputil.ReverseProxy
}

// Limits of calls to other regions.
const (
	regionDial = 5 * time.Second
	// regionPing is the idle time of a connection after which it is tried, and the time for the
	// answer. A watch of a region that is cut off ends after twice this time.
	regionPing   = 5 * time.Second
	regionAnswer = 30 * time.Second // until the head of an answer to a write
)

// newOtherRegion opens no connection. ping is regionPing, but in tests.
func newOtherRegion(c config.Region, own string, ping time.Duration, logger *zap.Logger) (*otherRegion, error) {
	base, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, err
	}
	var authorities *access.Authorities
	var pair *access.KeyPair
	if c.CAFile != "" {
		if authorities, err = access.OpenAuthorities("caFile", c.CAFile, logger); err != nil {
			return nil, err
		}
	}
	if c.CertFile != "" {
		if pair, err = access.OpenKeyPair("certFile and keyFile", c.CertFile, c.KeyFile, logger); err != nil {
			return nil, err
		}
	}
	t := &http.Transport{
		DialContext:     (&net.Dialer{Timeout: regionDial}).DialContext,
		TLSClientConfig: access.ClientTLS(authorities, pair), TLSHandshakeTimeout: regionDial,
		HTTP2:     &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: ping},
		Protocols: new(http.Protocols), IdleConnTimeout: time.Minute,
	}
	// Only HTTP/2 can find out that the connection of an idle watch is dead.
	if t.Protocols.SetHTTP2(true); base.Scheme == "http" {
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	o := &otherRegion{name: c.Name, transport: t, client: &http.Client{Transport: t}}
	answering := t.Clone()
	answering.ResponseHeaderTimeout = regionAnswer
	o.proxy = &httputil.ReverseProxy{
		Transport: answering,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			// The certificate of this server counts there. What proves the client here is for nobody else.
			// The server there would compare what a browser says about a page with its own origins.
			// This server has done so.
			for name := range r.Out.Header {
				if name == "Authorization" || name == "Cookie" || name == "Origin" || name == "Referer" || strings.HasPrefix(name, "Sec-Fetch-") {
					r.Out.Header.Del(name)
				}
			}
			r.Out.Header.Set(ForwardedHeader, own)
		},
		// This server answers for the pages that may read it.
		ModifyResponse: func(res *http.Response) error {
			for name := range res.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					res.Header.Del(name)
				}
			}
			return nil
		},
		ErrorHandler: o.failed,
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	return o, nil
}

func (o *otherRegion) close() {
	o.transport.CloseIdleConnections()
	if t, ok := o.proxy.Transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// failed answers a request that the region did not answer. It answers after the context ended, too:
// without an answer net/http sends a status of success.
func (o *otherRegion) failed(w http.ResponseWriter, r *http.Request, err error) {
	// This server ended the request, for example because the client's proof counts no more.
	if cause := new(connect.Error); errors.As(context.Cause(r.Context()), &cause) {
		refusal.Write(w, r, cause)
		return
	}
	reason, text := refusal.OutcomeUnknown, "the answer of region %s to a write is lost: read the record"
	// Without a connection nothing was sent.
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
		reason, text = refusal.RegionUnavailable, "region %s owns the record and cannot be reached; call again"
	}
	refusal.Write(w, r, refusal.New(reason, fmt.Errorf(text, o.name)))
}

// forwarder returns the function that sends requests to their owners, or nil if they are refused.
func (c *regionCopies) forwarder() vrunner.Forward {
	if c == nil || !c.cfg.Forward {
		return nil
	}
	return func(w http.ResponseWriter, req *http.Request, body []byte, region string) bool {
		o := c.others[region]
		if o == nil || req.Header.Get(ForwardedHeader) != "" {
			return false
		}
		out := req.Clone(req.Context())
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		o.proxy.ServeHTTP(w, out)
		return true
	}
}
