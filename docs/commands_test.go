package docs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"dbcontroller.dev/integration/page"
	"dbcontroller.dev/internal/program/dbcontroller/cli"
)

var (
	// inText is what stands in backquotes within a line.
	inText = regexp.MustCompile("`([^`\n]+)`")
	// called is a call in a line of a shell, with what the shell does before it.
	called     = regexp.MustCompile(`(?:^|[|;&({]|\$ |\$\(|-- )\s*(?:\w+=\S+ )*(?:\./|bin/)?(?:dbcontroller|controller) +([a-z][^|;&)]*)`)
	redirected = regexp.MustCompile(` \d?[<>].*`)
)

// shownCalls are the calls of the program that a page shows, in blocks of commands and in its text.
func shownCalls(text string) (calls []string) {
	var lines []string
	for _, b := range page.Blocks(text) {
		for _, line := range strings.Split(strings.ReplaceAll(b.Text, "\\\n", " "), "\n") {
			if b.Language == "sh" || strings.HasPrefix(line, "$ ") {
				lines = append(lines, line)
			}
		}
	}
	for _, m := range inText.FindAllStringSubmatch(regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, ""), -1) {
		if strings.HasPrefix(m[1], "dbcontroller ") {
			lines = append(lines, m[1])
		}
	}
	for _, line := range lines {
		line, _, _ = strings.Cut(line, " #")
		for _, m := range called.FindAllStringSubmatch(line, -1) {
			call := redirected.ReplaceAllString(m[1], "")
			if call = strings.TrimSpace(call); call != "record 1" { // bytes of a format
				calls = append(calls, call)
			}
		}
	}
	return calls
}

// wrongCall is what is wrong with a call: its command, or a flag that this does not have.
func wrongCall(root *cobra.Command, call string) error {
	words := strings.Fields(strings.NewReplacer("'", "", `"`, "", "[", "", "]", "", "...", "", "…", "").Replace(call))
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if cmd == root || cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return errors.New("no such command: " + strings.Join(words, " "))
	}
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && name != "" && name != "help" && cmd.Flag(name) == nil {
			return errors.New(cmd.CommandPath() + " has no flag --" + name)
		}
	}
	return nil
}

// TestCommandsAreThere: each call of the program that a page shows names a command that there
// is, and flags that this has.
func TestCommandsAreThere(t *testing.T) {
	t.Parallel()
	root := cli.Program{Etcd: func(context.Context, string, *zap.Logger) ([]string, func() error, error) {
		return nil, nil, errors.New("no command runs here")
	}}.Command()
	all, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, "../examples/starter/service/README.md")
	seen := map[string]int{}
	for _, name := range slices.Concat(all, more) {
		if filepath.Base(name) == "CHANGELOG.md" {
			continue // which says what was
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range shownCalls(string(text)) {
			seen[filepath.Base(name)]++
			if err := wrongCall(root, call); err != nil {
				t.Errorf("%s shows %q: %v", name, call, err)
			}
		}
	}
	for name, least := range map[string]int{"README.md": 5, "program.md": 10, "operations.md": 20, "library.md": 4} {
		if seen[name] < least {
			t.Errorf("%s: %d calls were found, there have long been more", name, seen[name])
		}
	}
	t.Logf("%v", seen)
}

// TestWrongCallsAreSeen is the check of the check.
func TestWrongCallsAreSeen(t *testing.T) {
	t.Parallel()
	root := cli.Command(nil)
	for text, wrong := range map[string]string{
		"Say `dbcontroller parked waive --kind K --every`.":                       "dbcontroller parked waive has no flag --every",
		"```sh\nhead -1 x | dbcontroller lens look a.yaml\n```":                   "no such command: lens look a.yaml",
		"```sh\nbin/controller roll-back --name x # why\n```":                     `unknown command "roll-back" for "dbcontroller"`,
		"```sh\ndbcontroller complete --version v1 \\\n  --unused 1h\n```":        "dbcontroller complete has no flag --unused",
		"```text\n$ dbcontroller get deployment --server a:1\nanything --it\n```": "",
	} {
		var got string
		for _, call := range shownCalls(text) {
			if err := wrongCall(root, call); err != nil {
				got, _, _ = strings.Cut(err.Error(), "\n")
			}
		}
		if got != wrong {
			t.Errorf("%q: %q, want %q", text, got, wrong)
		}
	}
}
