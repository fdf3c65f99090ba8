package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"dbcontroller.dev/config"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/offline"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/upgradestate"
)

func keysCommand() *cobra.Command {
	return verb("keys", "Make keys that records are encrypted with, and bring records under them",
		newKeyCommand(), offline.ShowKeysCommand(), rotateKeysCommand(), offline.AdmitPlainCommand(), offline.AcceptKeysCommand())
}

func newKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new FILE",
		Short: "Generate a key in a new file",
		Long: "Generate a random key and write it to a new file that only its owner can read. Keep a copy away\n" +
			"from the backups of the database: without the key the records cannot be read again. The key takes\n" +
			"effect when 'encryption' in the configuration names it.",
		Example: "  dbcontroller keys new keys/a001",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key := make([]byte, sealed.KeySize)
			if _, err := rand.Read(key); err != nil {
				return err
			}
			if err := writeKey(args[0], config.EncodeKey(key)); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote a new key to %s: keep a copy of it apart from the backups of the database\n", args[0])
			return err
		},
	}
}

// writeKey creates a key file. It never replaces a file, which may hold the only copy of a key in
// use.
func writeKey(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- operators name the file
	if errors.Is(err, fs.ErrExist) {
		return exit.Usagef("%s exists already, and keys are never replaced: give another file", path)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}

func rotateKeysCommand() *cobra.Command {
	a := &asker{starts: true}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Encrypt all records of the current version with the active key",
		Long: "Encrypt every record of managed kinds of the current version with the active key of the\n" +
			"controller's configuration, or decrypt it if that is off. Clients continue meanwhile. A controller\n" +
			"starts this by itself when the active key changes. Use this command after a cancelled or failed\n" +
			"rotation, or to check every record again. 'get deployment' shows the progress, 'update cancel'\n" +
			"ends it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				return api.BeginUpdate(ctx, connect.NewRequest(&dbv1.BeginUpdateRequest{
					Name: a.name, Task: upgradestate.RotateKeys, DryRun: dryRun, RequestedBy: a.who(),
				}))
			})
		},
	}
	a.register(cmd)
	return cmd
}
