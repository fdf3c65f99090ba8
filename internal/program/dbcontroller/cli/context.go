package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"dbcontroller.dev/appclient/client"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// contexts is a user's file of named controllers. It holds file names and no secrets. Anyone who
// can write it can direct the user's commands to another server.
type contexts struct {
	Current  string               `yaml:"current"`
	Contexts map[string]contextAt `yaml:"contexts"`
}

// contextAt is one named controller.
type contextAt struct {
	client.Config `yaml:",inline"`
	Name          string `yaml:"name,omitempty"` // deployment; empty: the controller's own
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// contextsPath returns $XDG_CONFIG_HOME/dbcontroller/config.yaml, or the equivalent of this system.
func contextsPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "dbcontroller", "config.yaml"), nil
}

// readContexts reads the file. A missing file gives no contexts.
func readContexts() (contexts, error) {
	var all contexts
	path, err := contextsPath()
	if err != nil {
		return all, nil //nolint:nilerr // a user without a home directory has no contexts
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, fmt.Errorf("contexts: %w", err)
	}
	// A context decides which server gets the token. Refuse a file that others can access.
	if info.Mode().Perm()&0o077 != 0 {
		return all, exit.Usagef("contexts: other users can access %s: run chmod 600 on it", path)
	}
	text, err := os.ReadFile(path) // #nosec G304 -- a file of the caller, which only its owner may change
	if err != nil {
		return all, fmt.Errorf("contexts: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		// Do not include the library's error: it quotes the file, which may hold a token by
		// mistake.
		return all, exit.Usagef("contexts: %s does not have the format of 'context set': correct or remove it", path)
	}
	return all, nil
}

// writeContexts replaces the file atomically.
func writeContexts(all contexts) error {
	path, err := contextsPath()
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(path), "config-*.new") // mode 0600
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	// Write beside the file and rename: a crash must not leave half of it.
	_, err = next.Write(text)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("contexts: %w", errors.Join(err, os.Remove(next.Name())))
	}
	return nil
}

func contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "context", Short: "Manage named controller addresses",
		Long: "Manage named controllers: address, deployment, and the files of certificates and tokens. They are stored\n" +
			"in $XDG_CONFIG_HOME/dbcontroller/config.yaml, which holds names of files and no secrets. --server and\n" +
			serverEnv + " have precedence.",
		RunE: func(*cobra.Command, []string) error {
			return exit.Usagef("no command given: use 'dbcontroller context list', 'set' or 'use'")
		},
	}
	cmd.AddCommand(setContextCommand(), useContextCommand(), listContextsCommand())
	return cmd
}

func setContextCommand() *cobra.Command {
	var at contextAt
	cmd := &cobra.Command{
		Use:     "set NAME --server ADDRESS",
		Short:   "Add or change a named controller; the first one becomes current",
		Example: "  dbcontroller context set prod --server https://ctl.example.org:7090 --tls-ca ca.crt --token-file token",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := args[0]
			if !contextName.MatchString(name) {
				return exit.Usagef("%q is not a valid name of a context: use letters, digits, and any of . _ -", name)
			}
			if at.Server == "" {
				return exit.Usagef("no controller given: use --server HOST:PORT")
			}
			// Check now: a wrong address would fail each later command.
			if _, err := at.URLs(); err != nil {
				return exit.With(exit.Usage, err)
			}
			// Commands run in any working directory, so the context stores absolute paths.
			for _, path := range []*string{&at.CA, &at.Cert, &at.Key, &at.TokenFile} {
				if *path == "" {
					continue
				}
				absolute, err := filepath.Abs(*path)
				if err != nil {
					return err
				}
				if _, err := os.Stat(absolute); err != nil {
					return err
				}
				*path = absolute
			}
			all, err := readContexts()
			if err != nil {
				return err
			}
			if all.Contexts == nil {
				all.Contexts = map[string]contextAt{}
			}
			all.Contexts[name] = at
			// Only the first context becomes current by itself: an addition must not redirect
			// commands.
			all.Current = cmp.Or(all.Current, name)
			return writeContexts(all)
		},
	}
	f := cmd.Flags()
	f.StringVar(&at.Server, "server", "", "addresses of controllers, separated by commas")
	f.StringVar(&at.Name, "name", "", "deployment; empty: the controller's own")
	f.StringVar(&at.CA, "tls-ca", "", "file with the CA of controllers")
	f.StringVar(&at.Cert, "tls-cert", "", "client certificate")
	f.StringVar(&at.Key, "tls-key", "", "key of the client certificate")
	f.StringVar(&at.TokenFile, "token-file", "", "file with a bearer token")
	return cmd
}

func useContextCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Use a named controller for all commands",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readContexts()
			if err != nil {
				return err
			}
			if _, ok := all.Contexts[args[0]]; !ok {
				return exit.Usagef("there is no context %s: 'dbcontroller context list' shows all contexts", args[0])
			}
			all.Current = args[0]
			return writeContexts(all)
		},
	}
}

func listContextsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List named controllers; a star marks the current one",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := readContexts()
			if err != nil {
				return err
			}
			var b bytes.Buffer
			t := terminal.Table(&b, "\tNAME\tSERVER\tDEPLOYMENT\tPROVES ITSELF BY")
			for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
				at, star, by := all.Contexts[name], "", "-"
				if name == all.Current {
					star = "*"
				}
				switch {
				case at.TokenFile != "":
					by = "a token"
				case at.Cert != "":
					by = "a certificate"
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", star, name, at.Server, cmp.Or(at.Name, "-"), by)
			}
			terminal.Flush(t)
			return terminal.Write(cmd.OutOrStdout(), trimLines(b.Bytes()))
		},
	}
}
