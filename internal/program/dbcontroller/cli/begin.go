package cli

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/offline"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

func beginCommand() *cobra.Command {
	a, p, pace := &asker{starts: true}, &policyFlags{}, &paceFlags{}
	var target string
	var shards int32
	cmd := &cobra.Command{
		Use:   "deployment --target-version VERSION",
		Short: "Start an upgrade to another version",
		Long: "Start an upgrade. Controllers copy all records, keep them in sync, and switch when all shards are\n" +
			"ready. With --hold they wait for 'switch'. 'watch deployment' shows the progress. A repeated call\n" +
			"changes nothing.",
		Example: "  dbcontroller begin-upgrade deployment --name services/bbs.example.com/deployments/us-west2 \\\n" +
			"    --target-version v2 --total-shards-count 16 --hold",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if target == "" {
				return exit.Usagef("no version given: use --target-version, e.g. --target-version v2")
			}
			if shards < 0 {
				return exit.Usagef("--total-shards-count %d: give the ring size of the deployment, or omit the flag", shards)
			}
			steps, err := a.upgrade(cmd, p, pace, &dbv1.BeginUpgradeRequest{TargetVersion: target, TotalShardsCount: shards})
			if err != nil {
				return err
			}
			return a.do(cmd, steps...)
		},
	}
	a.register(cmd)
	p.register(cmd)
	pace.register(cmd)
	cmd.Flags().StringVar(&target, "target-version", "", "version to move to, e.g. v2")
	cmd.Flags().Int32Var(&shards, "total-shards-count", 0, "refuse if the ring has another number of shards; 0: do not check")
	return cmd
}

// upgrade returns the steps that begin an upgrade. The pace comes first, so that it limits the copy
// from the first record on.
func (a *asker) upgrade(cmd *cobra.Command, p *policyFlags, pace *paceFlags, req *dbv1.BeginUpgradeRequest) ([]step, error) {
	policy, err := p.policy()
	if err != nil {
		return nil, err
	}
	change, err := pace.request(cmd)
	if err != nil {
		return nil, err
	}
	var steps []step
	if change != nil {
		steps = append(steps, a.pace(change))
	}
	return append(steps, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
		return api.BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{
			Name: a.name, TargetVersion: req.TargetVersion, TotalShardsCount: req.TotalShardsCount, Policy: policy,
			ToSnapshot: req.ToSnapshot, AcceptLoss: req.AcceptLoss, Confirm: req.Confirm, DryRun: dryRun, RequestedBy: a.who(),
		}))
	}), nil
}

func rollbackCommand() *cobra.Command {
	a, p, pace := &asker{starts: true}, &policyFlags{}, &paceFlags{}
	var snapshot, accept, noController bool
	var confirm string
	alone := &offline.Rollback{}
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Return to the version before the latest switch",
		Long: "Return to the version that the latest switch came from. It is an upgrade with that version as its\n" +
			"target. That version has followed all changes since the switch, so the command waits only for the\n" +
			"latest ones. A repeated call changes nothing, also after the switch back.\n\n" +
			"If the rollback was disabled, use --to-snapshot: it returns to the data as the switch left them.\n" +
			"The service loses all later writes. The command counts them first and needs --accept-loss and\n" +
			"--confirm. --confirm names the deployment, the cluster and the database, so that a command for\n" +
			"staging cannot hit production.\n\n" +
			"If no controller can run, --to-snapshot --offline --config FILE does this with etcd and the old\n" +
			"database alone; see docs/break-glass.md.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Reject flag combinations before any call, so that a wrong command line changes nothing.
			if accept && !snapshot {
				return exit.Usagef("--accept-loss: without --to-snapshot nothing is lost: omit the flag")
			}
			switch {
			case confirm != "" && !accept:
				return exit.Usagef("--confirm: give it together with --accept-loss")
			case noController && (!snapshot || alone.Config == ""):
				return exit.Usagef("--offline: give --to-snapshot and --config FILE with it")
			case !noController && (alone.Config != "" || alone.NewLost):
				return exit.Usagef("--config and --new-database-lost: give them only with --offline; a controller has its own configuration")
			case noController:
				alone.Accept, alone.Confirm, alone.DryRun, alone.By, alone.Say = accept, confirm, a.dryRun, a.who(), cmd.ErrOrStderr()
				return alone.Run(cmd.Context())
			}
			// The latest switch names the target version. Read it first, and answer a repeated
			// rollback here.
			var now *dbv1.Deployment
			err := a.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				d, err := unary(ctx, &a.connection, api.GetDeployment, &dbv1.GetDeploymentRequest{Name: a.name})
				now = d
				return err
			})
			if err != nil {
				return err
			}
			last := now.GetLastSwitch()
			switch {
			case last == nil:
				return exit.Refusedf("rollback: no switch was made yet")
			// A repeated rollback after the switch back must succeed without starting the opposite
			// upgrade.
			case last.GetBack():
				announce(cmd.ErrOrStderr(), "will", []string{fmt.Sprintf("nothing: %s returned to %s already", last.GetId(), last.GetToVersion())})
				return a.answer(cmd, now, false)
			// Reverse sync has kept the old version current. Its snapshot would only lose data.
			case snapshot && now.GetReverseSync().GetEnabled():
				return exit.Refusedf("rollback: %s follows %s: use rollback without --to-snapshot, so that nothing is lost; if the database of %s is lost, see docs/break-glass.md", last.GetFromVersion(), last.GetToVersion(), last.GetToVersion())
			// Count the loss and ask for the confirmation before the upgrade begins, never during
			// it.
			case snapshot && now.GetUpgradeState() == nil:
				if err := a.explain(a.loss(cmd, accept, confirm)); err != nil {
					return err
				}
			}
			steps, err := a.upgrade(cmd, p, pace, &dbv1.BeginUpgradeRequest{
				TargetVersion: last.GetFromVersion(), ToSnapshot: snapshot, AcceptLoss: accept, Confirm: confirm,
			})
			if err != nil {
				return err
			}
			return a.do(cmd, steps...)
		},
	}
	a.register(cmd)
	p.register(cmd)
	pace.register(cmd)
	cmd.Flags().BoolVar(&snapshot, "to-snapshot", false, "return to the old data as the switch left them; lose later writes")
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "with --to-snapshot: accept the loss of later writes")
	cmd.Flags().StringVar(&confirm, "confirm", "", "with --accept-loss: deployment, cluster and database that lose writes; the refusal prints it")
	cmd.Flags().BoolVar(&noController, "offline", false, "with --to-snapshot: run without a controller")
	cmd.Flags().StringVar(&alone.Config, "config", "", "with --offline: configuration file (YAML)")
	cmd.Flags().BoolVar(&alone.NewLost, "new-database-lost", false, "with --offline: the new database is unreachable and takes no more writes")
	return cmd
}

// loss counts the writes that a rollback to the snapshot would lose. It refuses the rollback until
// --accept-loss and --confirm match this database. Older controllers send no confirmation text, and
// --accept-loss is then enough.
func (a *asker) loss(cmd *cobra.Command, accept bool, confirm string) error {
	api, err := a.open()
	if err != nil {
		return err
	}
	shown := terminal.NewProgress(cmd.ErrOrStderr())
	defer shown.End()
	r, err := received(cmd.Context(), &a.connection, "estimate", api.EstimateLoss, &dbv1.EstimateLossRequest{Name: a.name}, func(m *dbv1.EstimateLossResponse) (*dbv1.WorkProgress, *dbv1.LossReport) {
		if m.GetReport() == nil && m.GetCompared() > 0 {
			shown.Show("", fmt.Sprintf("compared %s groups", terminal.Count(m.GetCompared())))
		}
		return m.GetWork(), m.GetReport()
	})
	if err != nil {
		return err
	}
	// End the progress line before the numbers, or they would be written over it.
	shown.End()
	numbers := fmt.Sprintf("%s created, %s changed, %s deleted since the switch, of %s groups", terminal.Count(r.GetCreated()), terminal.Count(r.GetChanged()), terminal.Count(r.GetDeleted()), terminal.Count(r.GetCompared()))
	if want := r.GetConfirm(); !a.dryRun && (!accept || want != "" && confirm != want) {
		if names := r.GetExamples(); len(names) > 0 {
			numbers += ", such as " + strings.Join(names[:min(3, len(names))], ", ")
		}
		flags := "--accept-loss"
		if want != "" {
			flags += " --confirm " + want
		}
		return exit.Refusedf("rollback: the rollback to the snapshot loses %s%s: to accept that, give %s", numbers, offline.Doubts(confirm, r.GetConfirmLacks()), flags)
	}
	// Accepted. Still print the loss, for the log of the operator.
	fmt.Fprintln(cmd.ErrOrStderr(), "will lose: "+printable.Line(numbers))
	for _, name := range r.GetExamples() {
		fmt.Fprintln(cmd.ErrOrStderr(), "  "+printable.Line(name))
	}
	return nil
}

func createCommand() *cobra.Command {
	a := &asker{}
	var version string
	var ring int32
	cmd := &cobra.Command{
		Use:   "deployment",
		Short: "Create a deployment",
		Long: "Create a deployment. A starting controller does this by itself: at initialVersion of the\n" +
			"configuration; otherwise at the version whose collections hold data; otherwise at the newest\n" +
			"version that all servers know. If several versions hold data, the controller asks for this command\n" +
			"or for that setting. An existing deployment stays as it is.",
		Example: "  dbcontroller create deployment --initial-version v1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ring < 0 {
				return exit.Usagef("--ring-size %d: give the number of shards, or leave it out", ring)
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
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "print the effect, change nothing")
	cmd.Flags().StringVar(&version, "initial-version", "", "current version, e.g. v1; empty: the controller decides")
	cmd.Flags().Int32Var(&ring, "ring-size", 0, "number of shards, can never change; 0: as configured, or 16")
	return cmd
}
