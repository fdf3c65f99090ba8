package cli

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/access/client"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// serverEnv names the API when --server is not given.
const serverEnv = "DBCONTROLLER_SERVER"

// connection is the connection of the operator commands to a controller's API.
type connection struct {
	flags   client.Config
	context string
	name    string
	json    bool
}

func (c *connection) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.flags.Server, "server", "", "address of a controller's API, e.g. 127.0.0.1:7090 or https://ctl:7090 (default: $"+serverEnv+", or that of the context)")
	f.StringVar(&c.flags.CA, "tls-ca", "", "certificates of those who vouch for controllers (default: $DBCONTROLLER_TLS_CA, or the system's)")
	f.StringVar(&c.flags.Cert, "tls-cert", "", "client certificate (default: $DBCONTROLLER_TLS_CERT)")
	f.StringVar(&c.flags.Key, "tls-key", "", "key of the client certificate (default: $DBCONTROLLER_TLS_KEY)")
	f.StringVar(&c.flags.TokenFile, "token-file", "", "file with a bearer token (default: $DBCONTROLLER_TOKEN_FILE)")
	f.StringVar(&c.context, "context", "", "use this one of 'context list' (default: $DBCONTROLLER_CONTEXT, or the current one)")
	f.StringVar(&c.name, "name", "", "deployment, services/{service}/deployments/{region}; that of the context, or the controller's own, when empty")
	f.BoolVar(&c.json, "json", false, "print JSON")
}

// config is where to connect: as the flags say, else the environment, else a context. What
// a context says counts whole or not at all: its token is for its server, and no other.
func (c *connection) config() (client.Config, error) {
	given := client.Config{
		Server: cmp.Or(c.flags.Server, os.Getenv(serverEnv)), CA: cmp.Or(c.flags.CA, os.Getenv("DBCONTROLLER_TLS_CA")),
		Cert: cmp.Or(c.flags.Cert, os.Getenv("DBCONTROLLER_TLS_CERT")), Key: cmp.Or(c.flags.Key, os.Getenv("DBCONTROLLER_TLS_KEY")),
		TokenFile: cmp.Or(c.flags.TokenFile, os.Getenv("DBCONTROLLER_TOKEN_FILE")),
	}
	if given.Server != "" {
		if c.context != "" {
			return given, fmt.Errorf("--context %s and --server (or %s) are both given: give one of them", c.context, serverEnv)
		}
		return given, nil
	}
	all, err := readContexts()
	if err != nil {
		return given, err
	}
	name := cmp.Or(c.context, os.Getenv("DBCONTROLLER_CONTEXT"), all.Current)
	if name == "" {
		return given, fmt.Errorf("no controller named: give --server HOST:PORT, set %s, or choose one for good with 'dbcontroller context set'", serverEnv)
	}
	at, ok := all.Contexts[name]
	if !ok {
		return given, fmt.Errorf("there is no context %s: 'dbcontroller context list' shows those there are", name)
	}
	c.name = cmp.Or(c.name, at.Name)
	at.CA, at.Cert, at.Key = cmp.Or(given.CA, at.CA), cmp.Or(given.Cert, at.Cert), cmp.Or(given.Key, at.Key)
	at.TokenFile = cmp.Or(given.TokenFile, at.TokenFile)
	return at.Config, nil
}

func (c *connection) open() (dbcontrollerv1connect.DeploymentServiceClient, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	return client.Open(cfg)
}

// address is where open connects, as people write it.
func (c *connection) address() string {
	cfg, _ := c.config() // open has said what is wrong
	return strings.TrimSuffix(strings.TrimPrefix(cfg.Server, "http://"), "/")
}

// distrust says what is wrong with a connection's TLS; nil: nothing.
func distrust(err error, address string) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of %s is signed by nobody who is known here: give --tls-ca", address)
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is for another name: %w", address, name)
	case errors.As(err, &invalid):
		return fmt.Errorf("the certificate of %s does not count: %w", address, invalid)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("what answers at %s speaks no TLS: give http://HOST:PORT, without certificates", address)
	case strings.Contains(err.Error(), "malformed HTTP response"), strings.Contains(err.Error(), "400 Bad Request"):
		return fmt.Errorf("what answers at %s is not a controller's API, or speaks TLS: give https://HOST:PORT, or --tls-ca", address)
	}
	return nil
}
