package process

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access/accesstest"
)

// start starts a process that finds etcd as a configuration says, which has to fail.
func start(t *testing.T, etcd string, flags Flags) string {
	t.Helper()
	flags.Config, flags.LogLevel = put(t, "shop.yaml", "deployment: services/shop/deployments/x\netcd: "+etcd+`
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "mongodb://127.0.0.1:1"}}
`), "error"
	p, err := Start(t.Context(), flags)
	if err == nil {
		p.Close()
		t.Fatalf("it starts with %s", etcd)
	}
	return err.Error()
}

// put writes a file into a folder of its own.
func put(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serveTLS is a server with a certificate of an authority, whatever it serves.
func serveTLS(t *testing.T, a *accesstest.Authority) (at string) {
	t.Helper()
	pair := a.Certificate(t, accesstest.Leaf{Subject: pkix.Name{CommonName: "server"}})
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// TestEtcdThatCannotBeUsed: what is wrong with how etcd is reached is one line, which names
// the key and the file, and nothing that a file holds.
func TestEtcdThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	trusted := accesstest.NewAuthority(t)
	at := serveTLS(t, trusted)
	dir := t.TempDir()
	other := accesstest.NewAuthority(t).File(t, filepath.Join(dir, "other.crt"))
	ca := trusted.File(t, filepath.Join(dir, "ca.crt"))
	cert, _ := trusted.Files(t, dir, "one", accesstest.Leaf{Subject: pkix.Name{CommonName: "one"}})
	_, key := trusted.Files(t, dir, "two", accesstest.Leaf{Subject: pkix.Name{CommonName: "two"}})
	text := put(t, "secret", "s3cret\n")
	empty := put(t, "empty", "\n")
	shared := put(t, "shared", "s3cret")
	if err := os.Chmod(shared, 0o666); err != nil {
		t.Fatal(err)
	}
	const file = "correct the file, or the key in shop.yaml"
	for name, tc := range map[string]struct {
		etcd  string
		flags Flags
		want  []string
	}{
		"no CA file":                {etcd: `{endpoints: ["` + at + `"], caFile: none.crt}`, want: []string{"etcd.caFile: ", "none.crt: no such file", file}},
		"CA file without any":       {etcd: `{endpoints: ["` + at + `"], caFile: ` + text + `}`, want: []string{"etcd.caFile: ", text, "no certificate", file}},
		"CA file of others":         {etcd: `{endpoints: ["https://` + at + `"], caFile: ` + other + `}`, want: []string{at, "unknown authority", "correct etcd.caFile", "in shop.yaml"}},
		"key of another":            {etcd: `{endpoints: ["` + at + `"], caFile: ` + ca + `, certFile: ` + cert + `, keyFile: ` + key + `}`, want: []string{"etcd.certFile and etcd.keyFile: ", key, file}},
		"no password file":          {etcd: `{endpoints: ["` + at + `"], user: mover, passwordFile: none}`, want: []string{"etcd.passwordFile: ", "none: no such file", file}},
		"empty password file":       {etcd: `{endpoints: ["` + at + `"], user: mover, passwordFile: ` + empty + `}`, want: []string{"etcd.passwordFile: ", empty + " is empty", file}},
		"password others can write": {etcd: `{endpoints: ["` + at + `"], user: mover, passwordFile: ` + shared + `}`, want: []string{"etcd.passwordFile: ", "chmod go-w", file}},
		"user without password":     {etcd: `{endpoints: ["` + at + `"]}`, flags: Flags{Etcd: config.Etcd{User: "mover"}}, want: []string{"etcd.passwordFile, or its flag: missing"}},
		"password without user":     {etcd: `{endpoints: ["` + at + `"]}`, flags: Flags{Etcd: config.Etcd{PasswordFile: text}}, want: []string{"etcd.user, or its flag: missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := start(t, tc.etcd, tc.flags)
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s\nhas no %q", got, want)
				}
			}
			if strings.Contains(got, "\n") || strings.Contains(got, "s3cret") {
				t.Errorf("%q is more than one line, or shows a secret", got)
			}
		})
	}
}

// TestPlaintextToAnotherMachine is warned of once, before anything is sent.
func TestPlaintextToAnotherMachine(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody is asked
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for endpoint, want := range map[string]int{"192.0.2.1:2379": 1, "http://192.0.2.1:2379": 1, "https://192.0.2.1:2379": 0, l.Addr().String(): 0} {
		logs, seen := observer.New(zap.WarnLevel)
		if store, err := openEtcd(ctx, config.Etcd{Endpoints: []string{endpoint}}, zap.New(logs)); err == nil {
			_ = store.Close()
			t.Errorf("%s is open", endpoint)
		}
		if n := seen.FilterMessageSnippet("plaintext connection to etcd on another machine").Len(); n != want {
			t.Errorf("%s: it is warned of %d times, want %d", endpoint, n, want)
		}
	}
}
