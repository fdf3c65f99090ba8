package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/base/watchedfile"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// serverEnv is the environment variable for the API address without --server.
const serverEnv = "DBCONTROLLER_SERVER"

// connection is the connection of operator commands to a controller's API.
type connection struct {
	flags   client.Config
	context string
	name    string
	timeout time.Duration
	json    bool
	cmd     *cobra.Command // its standard error receives warnings; nil: no warnings
}

// defaultTimeout limits a call that a healthy controller answers at once.
const defaultTimeout = 30 * time.Second

func (c *connection) register(cmd *cobra.Command) {
	f := cmd.Flags()
	c.cmd = cmd
	f.StringVar(&c.flags.Server, "server", "", "addresses of controllers, e.g. 127.0.0.1:7090 or https://a:7090,https://b:7090; tried in this order (default: $"+serverEnv+", or the context's)")
	f.StringVar(&c.flags.CA, "tls-ca", "", "file with the CA of controllers (default: the context's, or without a context $DBCONTROLLER_TLS_CA, or the system's)")
	f.StringVar(&c.flags.Cert, "tls-cert", "", "file with the client certificate (default: the context's, or without a context $DBCONTROLLER_TLS_CERT)")
	f.StringVar(&c.flags.Key, "tls-key", "", "file with the client's key (default: the context's, or without a context $DBCONTROLLER_TLS_KEY)")
	f.StringVar(&c.flags.TokenFile, "token-file", "", "file with a bearer token (default: the context's, or without a context $DBCONTROLLER_TOKEN_FILE)")
	f.StringVar(&c.context, "context", "", "named controller, see 'context list' (default: $DBCONTROLLER_CONTEXT, or the current one)")
	f.StringVar(&c.name, "name", "", "deployment, services/{service}/deployments/{region}; empty: the context's, or the controller's own")
	f.DurationVar(&c.timeout, "timeout", defaultTimeout, "limit for an answer, or for the next progress message of a long call")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.VarP(&output{&c.json}, "output", "o", "output format: text or json")
}

// output is the flag --output, with the same effect as --json.
type output struct{ json *bool }

func (o *output) String() string {
	if o.json != nil && *o.json {
		return "json"
	}
	return "text"
}

func (o *output) Type() string { return "format" }

func (o *output) Set(s string) error {
	if s != "json" && s != "text" {
		return errors.New("use text or json")
	}
	*o.json = s == "json"
	return nil
}

// config returns where to connect: from flags, then the environment, then a context. A context
// applies as a whole or not at all, because its token is meant only for its server.
func (c *connection) config() (client.Config, error) {
	given := client.Config{
		Server: cmp.Or(c.flags.Server, os.Getenv(serverEnv)), CA: cmp.Or(c.flags.CA, os.Getenv("DBCONTROLLER_TLS_CA")),
		Cert: cmp.Or(c.flags.Cert, os.Getenv("DBCONTROLLER_TLS_CERT")), Key: cmp.Or(c.flags.Key, os.Getenv("DBCONTROLLER_TLS_KEY")),
		TokenFile: cmp.Or(c.flags.TokenFile, os.Getenv("DBCONTROLLER_TOKEN_FILE")),
	}
	if given.Server != "" {
		if c.context != "" {
			return given, exit.Usagef("--context %s and --server (or %s): give only one of them", c.context, serverEnv)
		}
		return given, nil
	}
	all, err := readContexts()
	if err != nil {
		return given, err
	}
	name := cmp.Or(c.context, os.Getenv("DBCONTROLLER_CONTEXT"), all.Current)
	if name == "" {
		return given, exit.Usagef("no controller given: use --server HOST:PORT, set %s, or store one with 'dbcontroller context set'", serverEnv)
	}
	at, ok := all.Contexts[name]
	if !ok {
		return given, exit.Usagef("there is no context %s: 'dbcontroller context list' shows all contexts", name)
	}
	c.name = cmp.Or(c.name, at.Name)
	// Ignore credentials from the environment here: they belong to the server named there. The
	// current context may have changed ('context use'), and its server must not get that token.
	at.CA, at.Cert, at.Key = cmp.Or(c.flags.CA, at.CA), cmp.Or(c.flags.Cert, at.Cert), cmp.Or(c.flags.Key, at.Key)
	at.TokenFile = cmp.Or(c.flags.TokenFile, at.TokenFile)
	return at.Config, nil
}

func (c *connection) open() (dbcontrollerv1connect.DeploymentServiceClient, error) {
	if c.timeout <= 0 {
		return nil, exit.Usagef("--timeout %s: give a duration, such as 30s", c.timeout)
	}
	cfg, err := c.config()
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	plain, err := client.Open(cfg)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	// Warn early about secrets that other users can read.
	for _, secret := range []string{cfg.TokenFile, cfg.Key} {
		if c.cmd != nil && secret != "" && watchedfile.Secret(secret).Exposed() {
			fmt.Fprintf(c.cmd.ErrOrStderr(), "warning: %s: %s\n", printable.Line(secret), watchedfile.ExposedText)
		}
	}
	// The check of older controllers calls the API itself, so it needs a client of its own.
	interceptors := []connect.Interceptor{refusesOlder(plain, c.address())}
	if !c.json { // JSON output escapes by itself; programs need the raw text
		interceptors = append(interceptors, terminal.Quoting{})
	}
	api, err := client.Open(cfg, connect.WithInterceptors(interceptors...))
	return api, exit.With(exit.Usage, err)
}

// unary makes one short call within --timeout.
func unary[Q, S any](ctx context.Context, c *connection, f func(context.Context, *connect.Request[Q]) (*connect.Response[S], error), req *Q) (*S, error) {
	return within(ctx, c.timeout, f, req)
}

// within makes one call with the given time limit.
func within[Q, S any](ctx context.Context, most time.Duration, f func(context.Context, *connect.Request[Q]) (*connect.Response[S], error), req *Q) (*S, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	res, err := f(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// address returns the address that open connects to, in the form that people write.
func (c *connection) address() string {
	cfg, _ := c.config() // open has reported the error
	var at []string
	for server := range strings.SplitSeq(cfg.Server, ",") {
		at = append(at, strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(server), "http://"), "/"))
	}
	return strings.Join(at, ", ")
}

// distrust returns the TLS problem behind err as advice, or nil if err is no TLS problem.
func distrust(err error, address string) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of %s has an unknown CA: give --tls-ca", address)
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of %s is for another name: %w", address, name)
	case errors.As(err, &invalid):
		return fmt.Errorf("the certificate of %s is not valid: %w", address, invalid)
	// The HTTP library has no error type for this case and the next.
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("the server at %s does not use TLS: give http://HOST:PORT, without certificates", address)
	case strings.Contains(err.Error(), "malformed HTTP response"), strings.Contains(err.Error(), "400 Bad Request"):
		return fmt.Errorf("the server at %s is not a controller's API, or uses TLS: give https://HOST:PORT, or --tls-ca", address)
	}
	return nil
}
