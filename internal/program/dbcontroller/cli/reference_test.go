package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

//go:generate go test . -run TestReferenceIsCurrent -update

// TestReferenceIsCurrent keeps docs/cli.md as the commands are.
func TestReferenceIsCurrent(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Command line\n\nGenerated from the commands by `go generate ./internal/program/dbcontroller/cli`; a test fails when it is not current.\n" +
		"Results go to standard output, diagnostics to standard error; what fails says so in one line, and in its exit status.\n")
	b.WriteString("\n## Exit status\n\nThese stay as they are. A script tries again on 6 and 7, asks or repeats on 8, and needs somebody on all others.\n\n| status | kind | when |\n| --- | --- | --- |\n")
	for _, e := range exit.All {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", e.Status, e.Name, e.Meaning)
	}
	reference(&b, Program{Etcd: func(context.Context, string, *zap.Logger) ([]string, func() error, error) {
		return nil, nil, errors.New("no command runs here")
	}}.Command())
	clitest.Golden(t, "../../../../docs/cli.md", b.String())
}

// reference writes a section for a command and for each below it.
func reference(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."))
	if cmd.Long != "" {
		fmt.Fprintf(b, "\n%s\n", cmd.Long)
	}
	if cmd.Runnable() && !cmd.HasSubCommands() || cmd.Name() == "parked" || cmd.Name() == "proxy" {
		fmt.Fprintf(b, "\n    %s\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\nExample:\n\n  %s\n", strings.ReplaceAll(cmd.Example, "\n", "\n  "))
	}
	var rows []string
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		def := f.DefValue
		if def == "" || def == "false" || def == "[]" {
			def = "-"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", strings.TrimSpace("--"+f.Name+" "+kind), def, usage))
	})
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n| flag | default | meaning |\n| --- | --- | --- |\n%s", strings.Join(rows, ""))
	}
	for _, sub := range cmd.Commands() {
		reference(b, sub)
	}
}
