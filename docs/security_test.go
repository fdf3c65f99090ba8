package docs_test

import (
	"bytes"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"dbcontroller.dev/config"
	"dbcontroller.dev/integration/page"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
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
			mask := ""
			for _, line := range strings.Split(strings.TrimSpace(b.Text), "\n") {
				commands++
				if strings.HasPrefix(line, "umask ") {
					mask = line + "\n" // for each command after it, as in one shell
				}
				if args, ours := strings.CutPrefix(line, "dbcontroller "); ours {
					root := cli.Command(nil)
					root.SetArgs(strings.Fields(args))
					root.SetOut(new(bytes.Buffer))
					if err := root.ExecuteContext(t.Context()); err != nil {
						t.Fatalf("line %d: %s: %v", b.Line, line, err)
					}
					continue
				}
				if out, err := exec.CommandContext(t.Context(), "bash", "-ec", mask+line).CombinedOutput(); err != nil {
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
	for _, file := range []string{"ca.key", "listener.key", "dashboard.token", "tokens"} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others than its owner: %v, %v", file, info, err)
		}
	}
	var grants []access.Grant
	for _, role := range cfg.Access.Roles {
		grants = append(grants, access.Grant{Role: access.Role(role.Role), Identity: role.Identity})
	}
	if _, err := access.NewPolicy(grants); err != nil {
		t.Error(err)
	}
}

// makesSecret is a command that writes a key, a token or a password to a file.
var makesSecret = regexp.MustCompile(`(?m)-keyout |openssl (?:rand|genpkey|genrsa|ecparam)|/dev/u?random|> *\S*(?:token|passw|secret|\.key)|mongodb-keyfile`)

// keptPrivate is what has to come before it.
var keptPrivate = regexp.MustCompile(`umask 0?077|install -m 0?600`)

// openSecret is the first command of a block that makes a secret which others can read; "": none.
func openSecret(block string) string {
	at := makesSecret.FindStringIndex(block)
	if at == nil || keptPrivate.MatchString(block[:at[0]]) {
		return ""
	}
	return block[at[0]:at[1]]
}

// TestSecretsAreMadeForTheirOwner: no page shows how to make a key, a token or a password that
// everybody on the machine can read.
func TestSecretsAreMadeForTheirOwner(t *testing.T) {
	t.Parallel()
	for block, want := range map[string]string{
		"openssl rand -hex 32 > t.token\n":               "openssl rand",
		"umask 077\nopenssl rand -hex 32 > t.token\n":    "",
		"openssl rand -hex 32 > t.token\numask 077\n":    "openssl rand",
		"echo secret > password\n":                       "> passw",
		"install -m 600 /dev/null k.key; make > k.key\n": "",
		"dbcontroller get\n":                             "",
	} {
		if got := openSecret(block); got != want {
			t.Errorf("of %q it found %q, want %q", block, got, want)
		}
	}
	pages := 0
	err := filepath.WalkDir(filepath.Dir(pageFolder), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pages++
		for _, b := range page.Blocks(string(text)) {
			if found := openSecret(b.Text); found != "" && (b.Language == "sh" || b.Language == "") {
				t.Errorf("%s, line %d: %q makes a secret that others can read: begin the block with umask 077", path, b.Line, found)
			}
		}
		return nil
	})
	if err != nil || pages < 20 {
		t.Fatalf("%d pages, %v", pages, err)
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
