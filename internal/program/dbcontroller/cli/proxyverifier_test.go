package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/proxy/login"
)

// TestVerifier: the file that the command writes is one for the proxy, for its owner alone, and is never replaced.
// The password comes from a file or from standard input.
func TestVerifier(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	password, out := filepath.Join(dir, "password"), filepath.Join(dir, "shop.json")
	if err := os.WriteFile(password, []byte("hunter2\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"proxy", "verifier", "--user", "shop", "--password-file", password, "--out", out, "--sha1"}
	if printed, _, err := run(t, args...); err != nil || printed != "" {
		t.Fatalf("%v, %q", err, printed)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := login.Open([]login.Account{{Database: "admin", Name: "shop", File: out}}, zap.NewNop()); err != nil {
		t.Error(err)
	}
	if _, _, err := run(t, args...); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("%v", err)
	}
	var printed bytes.Buffer
	root := Program{}.Command()
	root.SetArgs([]string{"proxy", "verifier", "--user", "shop", "--database", "people"})
	root.SetIn(strings.NewReader("hunter2\n"))
	root.SetOut(&printed)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := login.Parse(printed.Bytes(), "people", "shop"); err != nil || len(v) != 1 || strings.Contains(printed.String(), "hunter2") {
		t.Errorf("%s, %v", printed.String(), err)
	}
	for _, tc := range []struct {
		text, want string
		args       []string
	}{
		{"hunter2", "--user is missing", nil},
		{"\n", "the password is empty", []string{"--user", "shop"}},
		{"hunter2\nhunter2", "more than one line", []string{"--user", "shop"}},
		{strings.Repeat("hunter2", 1000), "longer than 4096 bytes", []string{"--user", "shop"}},
		{"hunter2\x07", "a character that SCRAM-SHA-256 does not allow", []string{"--user", "shop"}},
		{"", "no such file", []string{"--user", "shop", "--password-file", filepath.Join(dir, "none")}},
	} {
		root := Program{}.Command()
		root.SetArgs(append([]string{"proxy", "verifier"}, tc.args...))
		root.SetIn(strings.NewReader(tc.text))
		root.SetOut(&printed)
		err := root.ExecuteContext(t.Context())
		if err == nil || exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: %v, want %s", tc.text, err, tc.want)
		}
	}
}

// TestWrongVerifier: a proxy does not start with a verifier that is missing or wrong, and says which one it is.
func TestWrongVerifier(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, verifier := filepath.Join(dir, "proxy.yaml"), filepath.Join(dir, "shop.json")
	password := filepath.Join(dir, "password")
	for file, text := range map[string]string{password: "hunter2", config: `
listen: 127.0.0.1:0
upstream: mongodb://127.0.0.1:1/
users: [{name: shop, verifier: shop.json, login: {password: "$(file:` + password + `)"}}]
deployments:
- application: shop-proxy
  controllers: ["127.0.0.1:1"]
  database: shop
  collections: {orders: orders}
  uris: {v1: "mongodb://127.0.0.1:1/"}
`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ text, want string }{
		{"", "verifier of shop@admin: stat " + verifier}, {"hunter2", "verifier of shop@admin: " + verifier + ": not JSON"},
	} {
		if tc.text != "" {
			if err := os.WriteFile(verifier, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := run(t, "proxy", "--config", config)
		if err == nil || exit.Of(err) != exit.Misconfig || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, exit %d, want %s", err, exit.Of(err), tc.want)
		}
	}
}
