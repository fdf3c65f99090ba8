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
	"dbcontroller.dev/record/sealed"
	"dbcontroller.dev/upgradestate"
)

func keysCommand() *cobra.Command {
	return verb("keys", "Make keys that records are encrypted with, and bring records under them",
		newKeyCommand(), showKeysCommand(), rotateKeysCommand(), admitPlainCommand(), acceptKeysCommand())
}

func newKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "new FILE",
		Short: "Write a new key to a file that is not there yet",
		Long: "Write a new key, made at random, to a file that is not there yet, for its owner alone. Keep a copy\n" +
			"where the backups of the database are not: without the key nobody can read its records again.\n" +
			"It takes effect once 'encryption' of the configuration names it.",
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

// writeKey never replaces a file: it may hold the one copy of a key that is in use.
func writeKey(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names it
	if errors.Is(err, fs.ErrExist) {
		return usage("%s is there already, and keys are never replaced: name another file", path)
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
		Short: "Bring every record of the current version under the active key of the configuration",
		Long: "Bring every record of the current version's managed kinds under the key that the controller's\n" +
			"configuration has as active, or decrypt them where that is off, while clients go on. A controller\n" +
			"begins that by itself when another key becomes active; this begins it again after it was cancelled\n" +
			"or has failed on records, or looks at every record once more. 'get deployment' shows how far it is,\n" +
			"'update cancel' ends it.",
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
