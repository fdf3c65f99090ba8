package cli

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

func pauseCommand() *cobra.Command {
	a := &asker{}
	var reason string
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Let bulk work rest on all controllers until 'resume'",
		Long: "Let bulk work rest on all controllers until 'resume': copying, comparing as a whole, and data\n" +
			"updates. Changes are followed all the time. No switch begins; one that runs goes on.",
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
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look later")
	return cmd
}

func resumeCommand() *cobra.Command {
	a := &asker{}
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Go on with bulk work after 'pause'",
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
		Short: "Change how fast bulk work goes, while it goes",
		Long: "Change how fast bulk work goes (copying, comparing as a whole, data updates), on all controllers\n" +
			"and at once. What is not given stays. Changes are followed at any pace.",
		Example: "  dbcontroller pace --max-rate 2000 --max-source-load 60 --window 22:00-05:00",
		Args:    onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := p.request(cmd)
			if err != nil {
				return err
			}
			if req == nil {
				return usage("nothing to set: give --max-rate, --max-source-load or --window")
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
		Short: "Let an upgrade that holds at ready switch",
		Long:  "Let an upgrade that holds at ready switch. It may come before everything is ready: then it does not hold.",
		Args:  onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, shown *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				return api.Switch(ctx, connect.NewRequest(&dbv1.SwitchRequest{
					Name: a.name, UpgradeId: meant(id, shown), DryRun: dryRun, RequestedBy: a.who(),
				}))
			})
		},
	}
	a.register(cmd)
	cmd.Flags().StringVar(&id, "upgrade-id", "", "only this attempt; empty: whichever runs")
	return cmd
}

func breachesCommand() *cobra.Command {
	a := &asker{}
	cmd := &cobra.Command{
		Use:   "accept-breaches",
		Short: "Say that what was written past fences was dealt with",
		Long: "Say that what was written past fences was dealt with: copied by hand, or not wanted. It counts no\n" +
			"more for 'verify' and for the rollback. The collections that were set aside stay.",
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

func policyCommand() *cobra.Command {
	a, p := &asker{}, &policyFlags{}
	var id string
	var noHold bool
	cmd := &cobra.Command{
		Use:   "set-policy",
		Short: "Change when the upgrade that runs may switch",
		Long:  "Change when the upgrade that runs may switch, before it does. What is not given stays.",
		Args:  onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &dbv1.SetPolicyRequest{}
			given := cmd.Flags().Changed
			switch {
			case given("hold") && noHold:
				return usage("--hold and --no-hold: give one of them")
			case given("hold"):
				req.Hold = &p.hold
			case noHold:
				hold := false
				req.Hold = &hold
			case !given("deadline") && !given("max-pause") && !given("max-hold") && !given("retries"):
				return usage("nothing to set: give --hold, --no-hold, --deadline, --max-pause, --max-hold or --retries")
			}
			deadline, err := asMillis("deadline", p.deadline)
			if err != nil {
				return err
			}
			maxPause, err := asMillis("max-pause", p.maxPause)
			if err != nil {
				return err
			}
			maxHold, err := asMillis("max-hold", p.maxHold)
			if err != nil {
				return err
			}
			if given("max-hold") {
				req.MaxHoldMs = &maxHold
			}
			if given("retries") {
				retries := int32(p.retries)
				req.Retries = &retries
			}
			if given("deadline") {
				req.DeadlineMs = &deadline
			}
			if given("max-pause") {
				req.MaxPauseMs = &maxPause
			}
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, shown *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				return api.SetPolicy(ctx, connect.NewRequest(&dbv1.SetPolicyRequest{
					Name: a.name, UpgradeId: meant(id, shown), Hold: req.Hold, DeadlineMs: req.DeadlineMs, MaxPauseMs: req.MaxPauseMs,
					MaxHoldMs: req.MaxHoldMs, Retries: req.Retries,
					DryRun: dryRun, RequestedBy: a.who(),
				}))
			})
		},
	}
	a.register(cmd)
	p.register(cmd)
	cmd.Flags().BoolVar(&noHold, "no-hold", false, "switch by itself when everything is ready")
	cmd.Flags().StringVar(&id, "upgrade-id", "", "only this attempt; empty: whichever runs")
	return cmd
}

func abortCommand() *cobra.Command {
	a := &asker{starts: true}
	var reason, id string
	cmd := &cobra.Command{
		Use:   "abort",
		Short: "End the upgrade that runs; the current version stays",
		Long: "End the upgrade that runs; the current version stays, and what was written is kept. During\n" +
			"SWITCHING this first completes what was announced, so that writes go on safely.",
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
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read it later")
	cmd.Flags().StringVar(&id, "upgrade-id", "", "abort only this attempt; empty: whichever runs")
	return cmd
}

func completeCommand() *cobra.Command {
	a := &asker{starts: true}
	var version, confirm string
	var unused, keep time.Duration
	var ignore bool
	cmd := &cobra.Command{
		Use:   "complete --version VERSION --confirm DEPLOYMENT/CLUSTER/DATABASE",
		Short: "Retire a version that was left: set its collections aside, drop them later; there is no rollback afterwards",
		Long: "Retire a version that was left: its collections get names that nobody uses, and are dropped for\n" +
			"good after --keep-for; what is kept for the sync with it goes at once. Until this command nothing\n" +
			"of an old namespace is ever deleted. It is refused while an upgrade runs, while a server serves\n" +
			"from that version or knows no other, and when its API was called lately. Without --confirm it says\n" +
			"what it would do, and the flag to give, which names the deployment, the cluster and the database:\n" +
			"staging's is refused in production. Killed anywhere, it goes on from there. The same call again\n" +
			"changes nothing; with another --keep-for it changes when what was set aside is dropped.",
		Example: "  dbcontroller complete --version v1 --unused-for 24h\n" +
			"  dbcontroller complete --version v1 --unused-for 24h \\\n" +
			"    --confirm services/bbs/deployments/eu/replicaSet/674d1f0c9b1e8a3c5d7f2a10/mongo:bbs_v1",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version == "" {
				return usage("no version named: give --version, e.g. --version v1")
			}
			millis, err := asMillis("unused-for", unused)
			if err != nil {
				return err
			}
			// The API takes 0 for the hour that is its default.
			millis = max(millis, 1)
			kept, err := asMillis("keep-for", keep)
			if err != nil {
				return err
			}
			return a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
				req := &dbv1.CompleteRequest{
					Name: a.name, Version: version, Confirm: confirm, IgnoreUsage: ignore, UnusedForMs: millis,
					// Without a confirmation the refusal says it all, on one line.
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
	cmd.Flags().StringVar(&confirm, "confirm", "", "deployment, cluster and database of the version, as the refusal without it says")
	cmd.Flags().DurationVar(&unused, "unused-for", time.Hour, "how long it must not have been served, and nobody have called its API; 0s: not at all")
	cmd.Flags().DurationVar(&keep, "keep-for", 24*time.Hour, "how long its collections are kept under other names before they are dropped; 0s: dropped at once")
	cmd.Flags().BoolVar(&ignore, "ignore-usage", false, "retire it although servers were called by its API lately, or cannot tell")
	return cmd
}
