// Package client reaches the Deployment API from elsewhere: with TLS, a client certificate
// or a bearer token. The command line uses it, and so can applications.
package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"dbcontroller/access"
	"dbcontroller/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// Config is where the API is, and how to prove who one is. It has names of files, and no
// secrets.
type Config struct {
	// Server is host:port, or an address that begins with http:// or https://. Without it,
	// TLS is spoken if CA or Cert says so.
	Server    string `yaml:"server,omitempty"`
	CA        string `yaml:"tlsCA,omitempty"`     // file; empty: the system's authorities
	Cert      string `yaml:"tlsCert,omitempty"`   // file of a client certificate; empty: none
	Key       string `yaml:"tlsKey,omitempty"`    // file, with Cert
	TokenFile string `yaml:"tokenFile,omitempty"` // read again for each call, for it is replaced now and then
}

// URL is where calls go.
func (c Config) URL() (string, error) {
	server := c.Server
	if !strings.Contains(server, "://") {
		scheme := "http://"
		if c.CA != "" || c.Cert != "" {
			scheme = "https://"
		}
		server = scheme + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" && u.Path != "/" {
		return "", fmt.Errorf("%q is no address of a controller: give HOST:PORT or https://HOST:PORT", redacted(server))
	}
	switch {
	case u.Scheme == "http" && (c.CA != "" || c.Cert != ""):
		return "", fmt.Errorf("%s is without TLS, and a certificate was given: give https://%s", server, u.Host)
	case u.Scheme == "http" && c.TokenFile != "" && !loopback(u.Hostname()):
		return "", fmt.Errorf("%s is without TLS, and a token would be readable on the way: give https://%s", server, u.Host)
	case (c.Cert == "") != (c.Key == ""):
		return "", errors.New("a client certificate and its key belong together: give both")
	}
	return u.Scheme + "://" + u.Host, nil
}

// redacted hides what somebody put before an @.
func redacted(server string) string {
	if i := strings.LastIndexByte(server, '@'); i >= 0 {
		return "***" + server[i:]
	}
	return server
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Open returns a client of the API. Certificates are read again when they change.
func Open(c Config) (dbcontrollerv1connect.DeploymentServiceClient, error) {
	address, err := c.URL()
	if err != nil {
		return nil, err
	}
	h, err := c.HTTP()
	if err != nil {
		return nil, err
	}
	return dbcontrollerv1connect.NewDeploymentServiceClient(h, address), nil
}

// HTTP returns a client that proves who it is.
func (c Config) HTTP() (*http.Client, error) {
	if c.CA == "" && c.Cert == "" && c.TokenFile == "" {
		return http.DefaultClient, nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		authorities, err := access.OpenAuthorities("authorities of controllers", c.CA, nil)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = authorities.Pool()
	}
	if c.Cert != "" {
		pair, err := access.OpenKeyPair("client certificate", c.Cert, c.Key, nil)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return pair.Certificate(), nil
		}
	}
	h := &http.Client{
		Transport: transport,
		// A controller redirects nobody; whoever does wants the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if c.TokenFile != "" {
		if _, err := token(c.TokenFile); err != nil {
			return nil, err
		}
		h.Transport = bearer{transport, c.TokenFile}
	}
	return h, nil
}

// bearer sends the token of a file.
type bearer struct {
	*http.Transport
	file string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	t, err := token(b.file)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t)
	return b.Transport.RoundTrip(r)
}

// token reads a file. What it holds is in no error.
func token(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	t := strings.TrimSpace(string(text))
	if t == "" || strings.ContainsAny(t, " \t\r\n") {
		return "", fmt.Errorf("token: %s has not one token and nothing else", file)
	}
	return t, nil
}
