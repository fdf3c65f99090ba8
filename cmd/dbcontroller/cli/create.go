package cli

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/gen/dbcontroller/v1/dbcontrollerv1connect"
)

func createCommand() *cobra.Command {
	a := &asker{}
	var version string
	var ring int32
	cmd := &cobra.Command{
		Use:   "deployment",
		Short: "Create a deployment that is not there yet",
		Long: "Create a deployment that is not there yet. A controller does so by itself when it starts: at\n" +
			"initialVersion of the configuration; else at the version whose collections hold data; else at\n" +
			"the newest version that all servers know. Where several hold data it asks for this command or for\n" +
			"that setting. A deployment that is there is left as it is, whatever its version.",
		Example: "  dbcontroller create deployment --initial-version v1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ring < 0 {
				return fmt.Errorf("--ring-size %d: give the number of shards, or leave it out", ring)
			}
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				res, err := api.CreateDeployment(ctx, connect.NewRequest(&dbv1.CreateDeploymentRequest{
					Name: a.name, Version: version, RingSize: ring, DryRun: dryRun,
				}))
				if err != nil {
					return nil, err
				}
				return connect.NewResponse(res.Msg.Deployment), nil
			})
		},
	}
	a.connection.register(cmd)
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "say what would be done, and do nothing")
	cmd.Flags().StringVar(&version, "initial-version", "", "version that is served now, e.g. v1; empty: as a controller decides")
	cmd.Flags().Int32Var(&ring, "ring-size", 0, "number of shards, fixed for good; 0: as configured, or 16")
	return cmd
}
