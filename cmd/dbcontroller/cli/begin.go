package cli

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

func beginCommand() *cobra.Command {
	a, p, pace := &asker{starts: true}, &policyFlags{}, &paceFlags{}
	var target string
	var shards int32
	cmd := &cobra.Command{
		Use:   "deployment --target-version VERSION",
		Short: "Start moving a deployment to another version",
		Long: "Start moving a deployment to another version. Controllers copy and sync it, and switch when all\n" +
			"shards are ready, or, with --hold, when 'switch' asks for it; 'watch deployment' shows how far\n" +
			"they are. The same call again changes nothing.",
		Example: "  dbcontroller begin-upgrade deployment --name services/bbs.example.com/deployments/us-west2 \\\n" +
			"    --target-version v2 --total-shards-count 16 --hold",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if target == "" {
				return usage("no version named: give --target-version, e.g. --target-version v2")
			}
			if shards < 0 {
				return usage("--total-shards-count %d: give the ring size of the deployment, or leave it out", shards)
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
	cmd.Flags().Int32Var(&shards, "total-shards-count", 0, "refuse unless the deployment's ring has so many shards; 0: do not compare")
	return cmd
}

// upgrade is the steps that begin an upgrade, the pace before it so that it bounds the copy
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
	alone := &offline{}
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to the version that the latest switch came from",
		Long: "Go back to the version that the latest switch came from: begin-upgrade with that version as its\n" +
			"target. Its data has followed ever since the switch, so only what is still on its way is waited\n" +
			"for. The same call again changes nothing, also after the switch back.\n\n" +
			"Where the rollback was disabled, --to-snapshot goes back to the data as the switch left it. What\n" +
			"was written since is lost to the service then: the command counts it first, and goes on only\n" +
			"with --accept-loss and --confirm, which names the deployment, and the cluster and the database of\n" +
			"the version that is left, as the refusal says: staging's is refused in production.\n\n" +
			"When no controller can run any longer, --to-snapshot --offline --config FILE does that with etcd and\n" +
			"the old database alone; see docs/break-glass.md.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if accept && !snapshot {
				return usage("--accept-loss: nothing is lost without --to-snapshot: leave it out")
			}
			switch {
			case confirm != "" && !accept:
				return usage("--confirm: it is for --accept-loss: give both")
			case noController && (!snapshot || alone.config == ""):
				return usage("--offline: give --to-snapshot and --config FILE with it")
			case !noController && (alone.config != "" || alone.newLost):
				return usage("--config and --new-database-lost are for --offline: a controller has a configuration")
			case noController:
				alone.accept, alone.confirm, alone.dryRun, alone.by, alone.say = accept, confirm, a.dryRun, a.who(), cmd.ErrOrStderr()
				return alone.run(cmd.Context())
			}
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
				return refused("rollback: nothing was switched yet")
			case last.GetBack():
				announce(cmd.ErrOrStderr(), "will", []string{fmt.Sprintf("nothing: %s went back to %s already", last.GetId(), last.GetToVersion())})
				return a.answer(cmd, now, false)
			case snapshot && now.GetReverseSync().GetEnabled():
				return refused("rollback: %s follows %s: use rollback without --to-snapshot, nothing is lost; if the database of %s is lost, see docs/break-glass.md", last.GetFromVersion(), last.GetToVersion(), last.GetToVersion())
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
	cmd.Flags().BoolVar(&snapshot, "to-snapshot", false, "go back to the old data as the switch left it, without what was written since")
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "with --to-snapshot: lose what was written since")
	cmd.Flags().StringVar(&confirm, "confirm", "", "with --accept-loss: deployment, cluster and database that lose it, as the refusal without it says")
	cmd.Flags().BoolVar(&noController, "offline", false, "with --to-snapshot: do it here, for no controller can run any longer")
	cmd.Flags().StringVar(&alone.config, "config", "", "with --offline: configuration file (YAML)")
	cmd.Flags().BoolVar(&alone.newLost, "new-database-lost", false, "with --offline: the new database cannot be reached, and nobody writes there any longer")
	return cmd
}

// loss counts what a rollback to the snapshot would lose, and refuses it unless that is
// accepted, and confirmed for this database. A controller that is older wants no confirmation.
func (a *asker) loss(cmd *cobra.Command, accept bool, confirm string) error {
	api, err := a.open()
	if err != nil {
		return err
	}
	shown := newProgress(cmd.ErrOrStderr())
	defer shown.end()
	r, err := received(cmd.Context(), &a.connection, "estimate", api.EstimateLoss, &dbv1.EstimateLossRequest{Name: a.name}, func(m *dbv1.EstimateLossResponse) (*dbv1.WorkProgress, *dbv1.LossReport) {
		if m.GetReport() == nil && m.GetCompared() > 0 {
			shown.show("", fmt.Sprintf("compared %s groups", count(m.GetCompared())))
		}
		return m.GetWork(), m.GetReport()
	})
	if err != nil {
		return err
	}
	shown.end()
	numbers := fmt.Sprintf("%s created, %s changed, %s deleted since the switch, of %s groups", count(r.GetCreated()), count(r.GetChanged()), count(r.GetDeleted()), count(r.GetCompared()))
	if want := r.GetConfirm(); !a.dryRun && (!accept || want != "" && confirm != want) {
		if names := r.GetExamples(); len(names) > 0 {
			numbers += ", such as " + strings.Join(names[:min(3, len(names))], ", ")
		}
		flags := "--accept-loss"
		if want != "" {
			flags += " --confirm " + want
		}
		return refused("rollback: the rollback to the snapshot loses %s%s: to go back all the same, give %s", numbers, doubts(confirm, r.GetConfirmLacks()), flags)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "will lose: "+printable(numbers))
	for _, name := range r.GetExamples() {
		fmt.Fprintln(cmd.ErrOrStderr(), "  "+printable(name))
	}
	return nil
}

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
				return usage("--ring-size %d: give the number of shards, or leave it out", ring)
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
