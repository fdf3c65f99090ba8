package docs_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/access"
	"dbcontroller.dev/cmd/dbcontroller/cli"
	"dbcontroller.dev/config"
	"dbcontroller.dev/integration/page"
)

// TestSecurityIsSetUpAsWritten executes the commands of security.md in the order of the
// page, and opens with its configuration what they have made.
func TestSecurityIsSetUpAsWritten(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("openssl is not installed: the page's commands need it")
		}
		t.Skip("openssl is not installed")
	}
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "home"))
	t.Chdir(dir)
	var cfg config.Config
	commands := 0
	text := string(readPage(t))
	for _, b := range page.Blocks(text) {
		switch b.Language {
		case "yaml":
			var err error
			if cfg, err = config.Parse("bbs.yaml", []byte(b.Text), nil); err != nil {
				t.Fatalf("line %d: %v", b.Line, err)
			}
		case "sh":
			for _, line := range strings.Split(strings.TrimSpace(b.Text), "\n") {
				commands++
				if args, ours := strings.CutPrefix(line, "dbcontroller "); ours {
					root := cli.Command(nil)
					root.SetArgs(strings.Fields(args))
					root.SetOut(new(bytes.Buffer))
					if err := root.ExecuteContext(t.Context()); err != nil {
						t.Fatalf("line %d: %s: %v", b.Line, line, err)
					}
					continue
				}
				if out, err := exec.CommandContext(t.Context(), "bash", "-ec", line).CombinedOutput(); err != nil {
					t.Fatalf("line %d: %s: %v\n%s", b.Line, line, err, out)
				}
			}
		}
	}
	if commands < 8 || len(cfg.Access.Roles) == 0 {
		t.Fatalf("found %d commands and %d roles", commands, len(cfg.Access.Roles))
	}
	pair, err := access.OpenKeyPair("certificate", cfg.Access.Cert, cfg.Access.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf().VerifyHostname("localhost"); err != nil {
		t.Error(err)
	}
	if got := pair.Leaf().IPAddresses; len(got) != 1 || !got[0].Equal(net.IPv4(127, 0, 0, 1)) {
		t.Errorf("it is for the addresses %v", got)
	}
	if _, err := access.OpenAuthorities("authorities", cfg.Access.ClientCA, nil); err != nil {
		t.Error(err)
	}
	tokens, err := access.OpenTokens(cfg.Access.Tokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile("dashboard.token")
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
	if id, err := tokens.Authenticate(t.Context(), r); err != nil || id.Name != "token:dashboard" {
		t.Errorf("the token proves %q, %v", id.Name, err)
	}
	var grants []access.Grant
	for _, role := range cfg.Access.Roles {
		grants = append(grants, access.Grant{Role: access.Role(role.Role), Identity: role.Identity})
	}
	if _, err := access.NewPolicy(grants); err != nil {
		t.Error(err)
	}
}

var pageFolder, _ = os.Getwd() // before any test goes elsewhere

func readPage(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(pageFolder, "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
