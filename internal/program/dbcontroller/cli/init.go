package cli

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/examples/starter"
	"dbcontroller.dev/internal/program/build"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

func initCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "init", Short: "Generate a starter project", Args: cobra.NoArgs}
	cmd.AddCommand(initServiceCommand())
	return cmd
}

// modulePath accepts module paths that are safe in import statements.
var modulePath = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._~-]*(/[A-Za-z0-9._~-]+)*$`)

func initServiceCommand() *cobra.Command {
	var module, name string
	cmd := &cobra.Command{
		Use:   "service DIR",
		Short: "Generate a small Go service in two versions, with tests",
		Long: "Generate a small service in Go in a new folder: messages and their code, handlers of two versions,\n" +
			"a lens between them, tests, a server, a controller and a configuration. The service stores tasks.\n" +
			"Its packages and its deployment have the name of the folder, or that of --name. Its README.md\n" +
			"explains how to run and upgrade it.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if module == "" {
				module = filepath.Base(dir)
			}
			// A Go package name allows no hyphens and, by convention, no underscores or capitals.
			if name == "" {
				name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(filepath.Base(dir)))
			}
			if err := starter.CheckName(name); err != nil {
				return exit.Usagef("%v: give another name with --name", err)
			}
			if !modulePath.MatchString(module) {
				return exit.Usagef("%q is not a path of a Go module: give one with --module, such as example.com/tasks", module)
			}
			version := build.Read().Version
			if !strings.HasPrefix(version, "v") {
				version = "latest" // a local build: no release to require
			}
			// The generated go.mod requires the release of this program, so that both fit.
			files, err := starter.Write(dir, name, module, version)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %d files of service %s, module %s, into %s\nnext: cd %s && go get dbcontroller.dev@%s && go mod tidy && go test ./...\n"+
				"before there is a published release: cd %s && go mod edit -replace dbcontroller.dev=PATH_OF_A_CHECKOUT && go mod tidy && go test ./...\nREADME.md there says how to run it\n",
				len(files), name, module, args[0], args[0], version, args[0])
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the service, its Go package and its proto packages: lower-case letters and digits (default: the name of the folder)")
	cmd.Flags().StringVar(&module, "module", "", "path of the service's Go module (default: the name of the folder)")
	return cmd
}
