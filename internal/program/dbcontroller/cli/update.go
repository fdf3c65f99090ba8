package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

func updateCommand() *cobra.Command {
	return verb("update", "Change all records of a kind where they are, within the current version",
		listUpdatesCommand(), beginUpdateCommand(), cancelUpdateCommand())
}

func listUpdatesCommand() *cobra.Command {
	c := &connection{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the controller's data updates",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				all, err := unary(ctx, c, api.ListUpdates, &dbv1.ListUpdatesRequest{Name: c.name})
				if err != nil {
					return err
				}
				if c.json {
					return terminal.JSON(cmd.OutOrStdout(), all)
				}
				return renderTasks(cmd.OutOrStdout(), all.GetTasks())
			})
		},
	}
	c.register(cmd)
	return cmd
}

func renderTasks(w io.Writer, tasks []*dbv1.ListUpdatesResponse_Task) error {
	if len(tasks) == 0 {
		return terminal.Write(w, []byte("there are no data updates: add some to 'updates' in the configuration\n"))
	}
	var b bytes.Buffer
	t := terminal.Table(&b, "NAME\tVERSION\tKIND\tDESCRIPTION")
	for _, task := range tasks {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", task.GetName(), task.GetVersion(), task.GetKind(), cmp.Or(task.GetDescription(), "-"))
	}
	terminal.Flush(t)
	return terminal.Write(w, b.Bytes())
}

func beginUpdateCommand() *cobra.Command {
	a := &asker{starts: true}
	var task string
	cmd := &cobra.Command{
		Use:   "begin --task NAME",
		Short: "Apply a data update to every record of a kind",
		Long: "Apply a data update to every record of a kind while clients write. No write of a client is lost.\n" +
			"'get deployment' shows the progress, 'history' the result. Records that fail stay as they are and\n" +
			"are counted. No upgrade switches meanwhile. A repeated call changes nothing while the update runs;\n" +
			"afterwards it processes all records again.",
		Example: "  dbcontroller update begin --task fill-region",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if task == "" {
				return exit.Usagef("no data update given: use --task with a name from 'dbcontroller update list'")
			}
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				return api.BeginUpdate(ctx, connect.NewRequest(&dbv1.BeginUpdateRequest{
					Name: a.name, Task: task, DryRun: dryRun, RequestedBy: a.who(),
				}))
			})
		},
	}
	a.register(cmd)
	cmd.Flags().StringVar(&task, "task", "", "name of the data update")
	return cmd
}

func cancelUpdateCommand() *cobra.Command {
	a := &asker{}
	var reason, id string
	cmd := &cobra.Command{
		Use:   "cancel",
		Short: "Cancel the running data update; its changes stay",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, shown *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				run := id
				if run == "" {
					run = shown.GetUpdate().GetId() // the update that the dry run saw
				}
				return api.CancelUpdate(ctx, connect.NewRequest(&dbv1.CancelUpdateRequest{
					Name: a.name, UpdateId: run, Reason: reason, DryRun: dryRun, RequestedBy: a.who(),
				}))
			})
		},
	}
	a.register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, recorded in the history")
	cmd.Flags().StringVar(&id, "update-id", "", "cancel only this run; empty: any")
	return cmd
}
