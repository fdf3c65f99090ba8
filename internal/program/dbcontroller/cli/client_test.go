package cli

import (
	"context"
	"crypto/x509/pkix"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/accesstest"
	"dbcontroller.dev/internal/access/door"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
)

// guarded serves a fake behind TLS, for token alice and certificates of the authority.
func guarded(t *testing.T, dir string, f *fake) (address string, authority *accesstest.Authority) {
	t.Helper()
	authority = accesstest.NewAuthority(t)
	ca := authority.File(t, filepath.Join(dir, "ca.crt"))
	cert, key := authority.Files(t, dir, "listener", accesstest.Leaf{Subject: pkix.Name{CommonName: "controller"}})
	authority.Files(t, dir, "ann", accesstest.Leaf{Subject: pkix.Name{CommonName: "ann"}})
	for name, text := range map[string]string{
		"tokens": "alice alice-0123456789abcdef\nbob bob-0123456789abcdef\n", "token": "alice-0123456789abcdef\n", "bob": "bob-0123456789abcdef", "wrong": "mallory-0123456789",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lock := &door.Lock{}
	var err error
	if lock.KeyPair, err = access.OpenKeyPair("certificate", cert, key, nil); err != nil {
		t.Fatal(err)
	}
	if lock.Clients, err = access.OpenAuthorities("authorities", ca, nil); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.OpenTokens(filepath.Join(dir, "tokens"), nil)
	if err != nil {
		t.Fatal(err)
	}
	lock.Authenticators = []access.Authenticator{access.Certificates{}, tokens}
	if lock.Policy, err = access.NewPolicy([]access.Grant{{Role: access.Viewer, Identity: "token:alice"}, {Role: access.Viewer, Identity: "cert:CN=ann"}}); err != nil {
		t.Fatal(err)
	}
	d, err := door.Open(door.Config{What: "API port", Address: "127.0.0.1:0", Lock: lock, Table: access.Calls})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(dbcontrollerv1connect.NewDeploymentServiceHandler(f))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, mux) }()
	t.Cleanup(func() { cancel(); <-done })
	return d.Addr(), authority
}

// TestProvingOneself: flags, environment and contexts lead to a controller that asks for
// proof; what is wrong is said in one line that says what to give.
func TestProvingOneself(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "home"))
	t.Setenv(serverEnv, "")
	address, _ := guarded(t, dir, &fake{deployment: clitest.Sample()})
	plain := serve(t, &fake{deployment: clitest.Sample()})
	file := func(name string) string { return filepath.Join(dir, name) }
	if text, err := os.ReadFile(file("token")); err != nil {
		t.Fatal(err)
	} else if err := os.WriteFile(file("open"), text, 0o600); err != nil {
		t.Fatal(err)
	} else if err := os.Chmod(file("open"), 0o604); err != nil {
		t.Fatal(err)
	}
	get := func(more ...string) []string { return append([]string{"get", "deployment"}, more...) }
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		want string // in the error; empty: it works
		warn string // on standard error; empty: nothing
	}{
		{name: "nothing given", args: get(), want: "no controller given: use --server HOST:PORT, set DBCONTROLLER_SERVER, or store one with 'dbcontroller context set'"},
		{name: "token", args: get("--server", address, "--tls-ca", file("ca.crt"), "--token-file", file("token"))},
		{name: "token that everybody can read", args: get("--server", address, "--tls-ca", file("ca.crt"), "--token-file", file("open")), warn: "open: everybody on this machine can read a secret"},
		{name: "certificate", args: get("--server", "https://"+address, "--tls-ca", file("ca.crt"), "--tls-cert", file("ann.crt"), "--tls-key", file("ann.key"))},
		{name: "environment", args: get(), env: map[string]string{serverEnv: address, "DBCONTROLLER_TLS_CA": file("ca.crt"), "DBCONTROLLER_TOKEN_FILE": file("token")}},
		{name: "no proof", args: get("--server", address, "--tls-ca", file("ca.crt")), want: "who calls is not proven: bring a client certificate, or a bearer token: give --token-file, or --tls-cert and --tls-key"},
		{name: "wrong token", args: get("--server", address, "--tls-ca", file("ca.crt"), "--token-file", file("wrong")), want: "the bearer token is not known here"},
		{name: "no role", args: get("--server", address, "--tls-ca", file("ca.crt"), "--token-file", file("bob")), want: "GetDeployment wants the role viewer, and token:bob has no role"},
		{name: "wrong role", args: []string{"pause", "--server", address, "--tls-ca", file("ca.crt"), "--token-file", file("token")}, want: "SetPace wants the role operator, and token:alice has the role viewer"},
		{name: "wrong role of a stream", args: []string{"verify", "--server", address, "--tls-ca", file("ca.crt"), "--token-file", file("token")}, want: "Verify wants the role operator, and token:alice has the role viewer"},
		{name: "unknown authority", args: get("--server", "https://"+address), want: "has an unknown CA: give --tls-ca"},
		{name: "without TLS", args: get("--server", address), want: "or uses TLS: give https://HOST:PORT, or --tls-ca"},
		{name: "TLS where there is none", args: get("--server", plain, "--tls-ca", file("ca.crt")), want: "does not use TLS"},
		{name: "token in the open", args: get("--server", "ctl.example.org:7090", "--token-file", file("token")), want: "a token would be readable on the way: give https://ctl.example.org:7090"},
		{name: "half a certificate", args: get("--server", "https://"+address, "--tls-cert", file("ann.crt")), want: "belong together"},
		{name: "password in the address", args: get("--server", "http://ann:s3cret@ctl"), want: `"***@ctl" is no address of a controller`},
		{name: "missing token", args: get("--server", address, "--tls-ca", file("ca.crt"), "--token-file", file("none")), want: "no such file"},
		{name: "unknown context", args: get("--context", "prod"), want: "there is no context prod"},
		{name: "keep a context", args: []string{"context", "set", "prod", "--server", address, "--tls-ca", file("ca.crt"), "--token-file", file("token"), "--name", "services/bbs/deployments/eu"}},
		{name: "it is the current one", args: get()},
		{name: "the environment's token is not for a named context", args: get("--context", "prod"), env: map[string]string{"DBCONTROLLER_TOKEN_FILE": file("wrong"), "DBCONTROLLER_TLS_CERT": file("none")}},
		{name: "nor for one that the environment names", args: get(), env: map[string]string{"DBCONTROLLER_CONTEXT": "prod", "DBCONTROLLER_TOKEN_FILE": file("wrong")}},
		{name: "nor for the current one", args: get(), env: map[string]string{"DBCONTROLLER_TOKEN_FILE": file("wrong"), "DBCONTROLLER_TLS_CA": file("none")}},
		{name: "a second one", args: []string{"context", "set", "laptop", "--server", plain}},
		{name: "use it", args: []string{"context", "use", "laptop"}},
		{name: "both ways", args: get("--context", "prod", "--server", plain), want: "give only one of them"},
		{name: "use none", args: []string{"context", "use", "stage"}, want: "there is no context stage"},
		{name: "bad name", args: []string{"context", "set", "a b", "--server", plain}, want: "is not a valid name of a context"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			_, diag, err := run(t, tc.args...)
			if !strings.Contains(diag, tc.warn) || strings.Contains(diag, "warning: ") != (tc.warn != "") {
				t.Errorf("it warns of %q, want %q", diag, tc.warn)
			}
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("%v, want %q", err, tc.want)
			}
			if err != nil && (strings.Contains(err.Error(), "0123456789") || strings.Contains(err.Error(), "s3cret")) {
				t.Errorf("a secret in %v", err)
			}
		})
	}
	out, _, err := run(t, "context", "list")
	if err != nil || !strings.Contains(out, "prod") || !strings.Contains(out, "*  laptop") || strings.Contains(out, "0123456789") {
		t.Errorf("%q %v", out, err)
	}
	path := filepath.Join(dir, "home", "dbcontroller", "config.yaml")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, "context", "list"); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
}

// TestContextsKeepTokensApart: the token of a context is for its server alone.
func TestContextsKeepTokensApart(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv(serverEnv, "")
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("alice-0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, "context", "set", "prod", "--server", "https://ctl.example.org", "--token-file", token); err != nil {
		t.Fatal(err)
	}
	c := &connection{}
	c.flags.Server = "127.0.0.1:7090"
	if cfg, err := c.config(); err != nil || cfg.TokenFile != "" {
		t.Errorf("another server gets the token %q, %v", cfg.TokenFile, err)
	}
}
