// Package overetcd_test has the tests of package process over a real etcd. They are no tests of that
// package's own folder, for the go command gives those who use a package the modules that its
// tests need, and nobody needs an etcd server for that (integration.TestServiceOutsideTheTree).
package overetcd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/coord/embedetcd"
	"dbcontroller.dev/internal/program/process"
)

// TestEtcdWithUsers: a login that etcd refuses, and one that it wants, are one line that says
// what to correct.
func TestEtcdWithUsers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := embedetcd.Start(ctx, embedetcd.Config{Dir: t.TempDir(), Log: zap.NewNop(), PasswordCost: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	root, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // it is done with
	_, userErr := root.UserAdd(ctx, "root", "all")
	_, roleErr := root.UserGrantRole(ctx, "root", "root")
	_, enableErr := root.AuthEnable(ctx)
	if err := errors.Join(userErr, roleErr, enableErr); err != nil {
		t.Fatal(err)
	}
	at := `{endpoints: ["` + s.Endpoints()[0] + `"]`
	wrong := put(t, "password", "s3cret")
	for etcd, want := range map[string]string{
		at + "}": "give etcd.user and etcd.passwordFile in shop.yaml",
		at + ", user: root, passwordFile: " + wrong + "}": "correct what " + wrong + " holds, or etcd.user in shop.yaml",
	} {
		file := put(t, "shop.yaml", "deployment: services/shop/deployments/x\netcd: "+etcd+`
dbs:
- {namespace: shop/v1, backend: mongo, apiVersion: v1, mongo: {endpoint: "mongodb://127.0.0.1:1"}}
`)
		_, err := process.Start(ctx, process.Flags{Config: file, LogLevel: "error"})
		if err == nil {
			t.Fatalf("it starts with %s", etcd)
		}
		if got := err.Error(); !strings.Contains(got, want) || strings.Contains(got, "\n") || strings.Contains(got, "s3cret") {
			t.Errorf("%s\nis not one line with %q", got, want)
		}
	}
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
