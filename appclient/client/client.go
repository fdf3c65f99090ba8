// Package client opens clients of the Deployment API, with TLS and with a client certificate or a
// bearer token. It is for programs that read or control upgrades, and the command line uses it. An
// application that only follows its data uses package appclient. The controller decides which calls
// a caller may make. Begin to read at Open.
package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/watchedfile"
)

// Config holds the address of the API and the caller's proof. It contains file names, and no
// secrets.
type Config struct {
	// Server is host:port, or an address with the prefix http:// or https://. Without a prefix, TLS
	// is used if CA or Cert is set. Commas separate several controllers. Calls go to the one that
	// answered last, and to the others if it cannot be reached.
	Server    string `yaml:"server,omitempty"`
	CA        string `yaml:"tlsCA,omitempty"`     // file; empty: the system's authorities
	Cert      string `yaml:"tlsCert,omitempty"`   // file of a client certificate; empty: none
	Key       string `yaml:"tlsKey,omitempty"`    // file; required with Cert
	TokenFile string `yaml:"tokenFile,omitempty"` // file of a bearer token; read again after a change
}

// URLs returns the addresses of the controllers. It returns an error if an address or its
// combination with the other fields is unsafe or invalid.
func (c Config) URLs() ([]*url.URL, error) {
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("a client certificate and its key belong together: give both")
	}
	var out []*url.URL
	for server := range strings.SplitSeq(c.Server, ",") {
		u, err := c.url(strings.TrimSpace(server))
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

func (c Config) url(server string) (*url.URL, error) {
	if !strings.Contains(server, "://") {
		scheme := "http://"
		if c.CA != "" || c.Cert != "" {
			scheme = "https://"
		}
		server = scheme + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("%q is no address of a controller: give HOST:PORT or https://HOST:PORT", redacted(server))
	}
	switch {
	case u.Scheme == "http" && (c.CA != "" || c.Cert != ""):
		return nil, fmt.Errorf("%s is without TLS, and a certificate was given: give https://%s", server, u.Host)
	// Everyone on the network path could read the token.
	case u.Scheme == "http" && c.TokenFile != "" && !loopback(u.Hostname()):
		return nil, fmt.Errorf("%s is without TLS, and a token would be readable on the way: give https://%s", server, u.Host)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// redacted hides text before an @, which may be a password.
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

// Open returns a client of the API. It does not connect yet. The error is about the Config or its
// files. The client reads certificate files again after a change.
func Open(c Config, opts ...connect.ClientOption) (dbcontrollerv1connect.DeploymentServiceClient, error) {
	at, err := c.URLs()
	if err != nil {
		return nil, err
	}
	base, err := c.transport()
	if err != nil {
		return nil, err
	}
	h := &http.Client{
		Transport: &failover{at: at, base: base},
		// A controller never redirects. A server that redirects is after the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return dbcontrollerv1connect.NewDeploymentServiceClient(h, at[0].String(), opts...), nil
}

// transport returns a transport that proves the caller.
func (c Config) transport() (http.RoundTripper, error) {
	// The default transport shares its connections with the rest of the process.
	if c.CA == "" && c.Cert == "" && c.TokenFile == "" {
		return http.DefaultTransport, nil
	}
	var authorities *access.Authorities
	var pair *access.KeyPair
	var err error
	if c.CA != "" {
		if authorities, err = access.OpenAuthorities("authorities of controllers", c.CA, nil); err != nil {
			return nil, err
		}
	}
	if c.Cert != "" {
		if pair, err = access.OpenKeyPair("client certificate", c.Cert, c.Key, nil); err != nil {
			return nil, err
		}
	}
	t := access.NewTransport(authorities, pair)
	if c.TokenFile == "" {
		return t, nil
	}
	// Open reads the file now, so that a wrong path fails at the start.
	token, err := watchedfile.Open("token", nil, func(texts [][]byte) (string, error) { return parseToken(c.TokenFile, texts[0]) }, watchedfile.Secret(c.TokenFile))
	if err != nil {
		return nil, err
	}
	return bearer{t, token}, nil
}

// bearer adds the token from a file to each request.
type bearer struct {
	*access.Transport
	token *watchedfile.Value[string]
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	// A RoundTripper must not modify its request.
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token.Get())
	return b.Transport.RoundTrip(r)
}

// parseToken returns the token in a file. Its errors quote nothing of the file.
func parseToken(file string, text []byte) (string, error) {
	t := strings.TrimSpace(string(text))
	// Headers refuse control characters: a call would fail later, without showing the reason.
	if t == "" || strings.ContainsFunc(t, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return "", fmt.Errorf("%s has not one token and nothing else", file)
	}
	return t, nil
}
