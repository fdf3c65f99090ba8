package cli

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
)

func pauseCommand() *cobra.Command {
	a := &asker{}
	var reason string
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause bulk work on all controllers until 'resume'",
		Long: "Pause bulk work on all controllers until 'resume': copies, whole comparisons and data updates.\n" +
			"Controllers still apply changes. No switch begins; a running one continues.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paused := true
			req := &dbv1.SetPaceRequest{Paused: &paused}
			if cmd.Flags().Changed("reason") {
				req.Reason = &reason
			}
			return a.do(cmd, a.pace(req))
		},
	}
	a.register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, recorded in the history")
	return cmd
}

func resumeCommand() *cobra.Command {
	a := &asker{}
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Resume bulk work after 'pause'",
		Args:  onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paused := false
			return a.do(cmd, a.pace(&dbv1.SetPaceRequest{Paused: &paused}))
		},
	}
	a.register(cmd)
	return cmd
}

func paceCommand() *cobra.Command {
	a, p := &asker{}, &paceFlags{}
	cmd := &cobra.Command{
		Use:   "pace",
		Short: "Change the speed of bulk work",
		Long: "Change the speed of bulk work (copies, whole comparisons, data updates) on all controllers at\n" +
			"once. Omitted flags keep their values. Changes are always applied at full speed.",
		Example: "  dbcontroller pace --max-rate 2000 --max-source-load 60 --window 22:00-05:00",
		Args:    onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := p.request(cmd)
			if err != nil {
				return err
			}
			if req == nil {
				return exit.Usagef("nothing to set: give --max-rate, --max-source-load or --window")
			}
			return a.do(cmd, a.pace(req))
		},
	}
	a.register(cmd)
	p.register(cmd)
	return cmd
}

func switchCommand() *cobra.Command {
	a := &asker{starts: true}
	var id string
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Let a held upgrade switch",
		Long: "Let a ready upgrade switch that waits because of --hold. Before it is ready, the command removes\n" +
			"the hold.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, shown *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				return api.Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{
					Name: a.name, UpgradeId: meant(id, shown), DryRun: dryRun, RequestedBy: a.who(),
				}))
			})
		},
	}
	a.register(cmd)
	cmd.Flags().StringVar(&id, "upgrade-id", "", "only this upgrade; empty: any")
	return cmd
}

func breachesCommand() *cobra.Command {
	a := &asker{}
	cmd := &cobra.Command{
		Use:   "accept-breaches",
		Short: "Acknowledge writes that bypassed a fence",
		Long: "Acknowledge writes that bypassed a fence: they were copied by hand, or are not wanted. 'verify'\n" +
			"and the rollback no longer count them. The collections that hold them stay.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				return api.AcceptBreaches(ctx, connect.NewRequest(&dbv1.AcceptBreachesRequest{Name: a.name, DryRun: dryRun, RequestedBy: a.who()}))
			})
		},
	}
	a.register(cmd)
	return cmd
}

func abortCommand() *cobra.Command {
	a := &asker{starts: true}
	var reason, id string
	cmd := &cobra.Command{
		Use:   "abort",
		Short: "End the running upgrade; the current version stays",
		Long: "End the running upgrade. The current version stays, with all writes. During SWITCHING the command\n" +
			"first completes announced operations, so that writes can safely continue.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, shown *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				return api.AbortUpgrade(ctx, connect.NewRequest(&dbv1.AbortUpgradeRequest{
					Name: a.name, Reason: reason, UpgradeId: meant(id, shown), DryRun: dryRun, RequestedBy: a.who(),
				}))
			})
		},
	}
	a.register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, recorded in the history")
	cmd.Flags().StringVar(&id, "upgrade-id", "", "abort only this upgrade; empty: any")
	return cmd
}

func completeCommand() *cobra.Command {
	a := &asker{starts: true}
	var version, confirm string
	var unused, keep time.Duration
	var ignore bool
	cmd := &cobra.Command{
		Use:   "complete --version VERSION --confirm DEPLOYMENT/CLUSTER/DATABASE",
		Short: "Retire an old version; there is no rollback afterwards",
		Long: "Retire a version that the deployment has left. Its collections are renamed, and dropped after\n" +
			"--keep-for. The state for syncing it is dropped at once. No data of an old version are deleted\n" +
			"before this command. It is refused while an upgrade runs, while a server serves that version or\n" +
			"knows no other one, and while its API was called recently. Without --confirm it prints what it\n" +
			"would do and the flag to give. That flag names the deployment, the cluster and the database, so\n" +
			"that a command for staging cannot hit production. After a crash, controllers continue it. A\n" +
			"repeated call changes nothing, except that another --keep-for changes the time of the drop.\n" +
			"It is refused while the version's database does not answer. If that database is lost for good,\n" +
			"end the confirmation with /lost: nothing is dropped there.",
		Example: "  dbcontroller complete --version v1 --unused-for 24h\n" +
			"  dbcontroller complete --version v1 --unused-for 24h \\\n" +
			"    --confirm services/bbs/deployments/eu/replicaSet/674d1f0c9b1e8a3c5d7f2a10/mongo:bbs_v1",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version == "" {
				return exit.Usagef("no version given: use --version, e.g. --version v1")
			}
			millis, err := asMillis("unused-for", unused)
			if err != nil {
				return err
			}
			// The API takes 0 for its default, an hour.
			millis = max(millis, 1)
			kept, err := asMillis("keep-for", keep)
			if err != nil {
				return err
			}
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				req := &dbv1.CompleteRequest{
					Name: a.name, Version: version, Confirm: confirm, IgnoreUsage: ignore, UnusedForMs: millis,
					// Without a confirmation, skip the dry run: the refusal states everything on
					// one line.
					DryRun: a.dryRun || dryRun && confirm != "", RequestedBy: a.who(),
				}
				if cmd.Flags().Changed("keep-for") {
					req.KeepForMs = &kept
				}
				return api.Complete(ctx, connect.NewRequest(req))
			})
		},
	}
	a.register(cmd)
	cmd.Flags().StringVar(&version, "version", "", "version to retire, e.g. v1")
	cmd.Flags().StringVar(&confirm, "confirm", "", "deployment, cluster and database of the version; the refusal prints it")
	cmd.Flags().DurationVar(&unused, "unused-for", time.Hour, "minimum time since it was the current version and its API was called; 0s: none")
	cmd.Flags().DurationVar(&keep, "keep-for", 24*time.Hour, "time until its renamed collections are dropped; 0s: at once")
	cmd.Flags().BoolVar(&ignore, "ignore-usage", false, "retire it although its API was called recently, or servers cannot report calls")
	return cmd
}
