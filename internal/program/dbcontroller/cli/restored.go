package cli

import (
	"context"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

func restoredCommand() *cobra.Command {
	a := &asker{}
	var follow, keep bool
	var confirm string
	cmd := &cobra.Command{
		Use:   "restored (--follow | --keep)",
		Short: "Decide which data count after a restore of the served database",
		Long: "Decide which data count after the database of the served version was restored from a backup while\n" +
			"another version followed it. --follow continues with the restored state and rebuilds the other\n" +
			"version from it. --keep switches to the other version as it is. Without --confirm the command\n" +
			"counts the writes that the choice loses, and changes nothing.",
		Example: "  dbcontroller restored --keep\n" +
			"  dbcontroller restored --keep --confirm services/bbs/deployments/eu/replicaSet/674d1f0c9b1e8a3c5d7f2a10/mongo:bbs_v1",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if follow == keep {
				return exit.Usagef("give --follow or --keep")
			}
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				return api.DecideRestored(ctx, connect.NewRequest(&dbv1.DecideRestoredRequest{
					Name: a.name, Follow: follow, Keep: keep, Confirm: confirm, DryRun: dryRun, RequestedBy: a.who(),
				}))
			})
		},
	}
	a.register(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "keep the restored state and rebuild the other version from it")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the other version's data and switch to it")
	cmd.Flags().StringVar(&confirm, "confirm", "", "deployment, cluster and database that were restored; the refusal prints it")
	return cmd
}
