package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"dbcontroller.dev/internal/base/watchedfile"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/proxy/login"
)

// longestPassword bounds what is read for a password.
const longestPassword = 4096

func verifierCommand() *cobra.Command {
	var name, database, source, out string
	var old bool
	cmd := &cobra.Command{
		Use:   "verifier --user NAME",
		Short: "Make the file by which a proxy checks the password of a user",
		Long: "Read a password and print the verifier for it: salt, iteration count and two keys, from which the\n" +
			"password cannot be read. 'users' in the configuration of the proxy names the file. The password comes\n" +
			"from standard input or from a file, without the line end at its end.",
		Example: "  dbcontroller proxy verifier --user shop --out shop.json < password\n" +
			"  pass show shop | dbcontroller proxy verifier --user shop > shop.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return exit.Usagef("--user is missing: give the user name in the application's connection string")
			}
			password, err := readPassword(cmd.InOrStdin(), source)
			if err != nil {
				return err
			}
			text, err := login.New(database, name, password, old)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return writeVerifier(out, text)
		},
	}
	cmd.Flags().StringVar(&name, "user", "", "user name")
	cmd.Flags().StringVar(&database, "database", "admin", "authSource of the application's connection string")
	cmd.Flags().StringVar(&source, "password-file", "", "file with the password; empty: standard input")
	cmd.Flags().StringVar(&out, "out", "", "new file for the verifier; empty: standard output")
	cmd.Flags().BoolVar(&old, "sha1", false, "add SCRAM-SHA-1, for applications that name it as authMechanism")
	return cmd
}

func readPassword(in io.Reader, source string) (string, error) {
	if source != "" {
		texts, err := watchedfile.Read("--password-file", watchedfile.Secret(source))
		if err != nil {
			return "", exit.With(exit.Usage, err)
		}
		return passwordOf(texts[0])
	}
	// A terminal would show it.
	if file, ok := in.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return "", exit.Usagef("no password on standard input: give it by a pipe, or give --password-file")
		}
	}
	text, err := io.ReadAll(io.LimitReader(in, longestPassword+1))
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return passwordOf(text)
}

func passwordOf(text []byte) (string, error) {
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case password == "":
		return "", exit.Usagef("the password is empty: give it by standard input or --password-file")
	case len(text) > longestPassword:
		return "", exit.Usagef("the password is longer than %d bytes", longestPassword)
	case strings.ContainsAny(password, "\r\n"):
		return "", exit.Usagef("the password has more than one line")
	}
	return password, nil
}

// writeVerifier creates a file that only its owner can read. It never replaces one.
func writeVerifier(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- operators name the file
	if errors.Is(err, fs.ErrExist) {
		return exit.Usagef("%s exists already: give another file, and rename it, so that a proxy never reads a part of it", path)
	}
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}
