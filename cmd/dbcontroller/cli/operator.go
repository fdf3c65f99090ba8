package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"dbcontroller/deployment"
	dbv1 "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// callTimeout bounds a call that is answered at once when all is well.
const callTimeout = 30 * time.Second

// operatorCommands are the commands that talk to a controller's API.
func operatorCommands() []*cobra.Command {
	return []*cobra.Command{
		verb("begin-upgrade", "Start moving a deployment to another version", beginCommand()),
		verb("get", "Show a deployment", getCommand()),
		verb("watch", "Follow a deployment as it changes", watchCommand()),
		listCommand(), rollbackCommand(), abortCommand(), parkedCommand(), verifyCommand(),
	}
}

// verb is a command that only has a meaning with a noun after it.
func verb(name, short string, nouns ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%s: unknown object %q: use '%s %s'", name, args[0], cmd.CommandPath(), nouns[0].Name())
			}
			return fmt.Errorf("%s what? use '%s %s'", name, cmd.CommandPath(), nouns[0].Name())
		},
	}
	cmd.AddCommand(nouns...)
	return cmd
}

func beginCommand() *cobra.Command {
	c := &client{}
	var target string
	var shards int32
	cmd := &cobra.Command{
		Use:   "deployment --target-version VERSION",
		Short: "Start moving a deployment to another version",
		Long: "Start moving a deployment to another version. Controllers copy and sync it, and switch when all\n" +
			"shards are ready; 'watch deployment' shows how far they are. The same call again changes nothing.",
		Example: "  dbcontroller begin-upgrade deployment --name services/bbs.example.com/deployments/us-west2 \\\n" +
			"    --target-version v2 --total-shards-count 16",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if target == "" {
				return errors.New("no version named: give --target-version, e.g. --target-version v2")
			}
			if shards < 0 {
				return fmt.Errorf("--total-shards-count %d: give the ring size of the deployment, or leave it out", shards)
			}
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				res, err := api.BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{
					Name: c.name, TargetVersion: target, TotalShardsCount: shards,
				}))
				if err != nil {
					return err
				}
				return c.print(cmd, res.Msg)
			})
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&target, "target-version", "", "version to move to, e.g. v2")
	cmd.Flags().Int32Var(&shards, "total-shards-count", 0, "refuse unless the deployment's ring has so many shards; 0: do not compare")
	return cmd
}

func rollbackCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Go back to the version that the latest switch came from",
		Long: "Go back to the version that the latest switch came from: begin-upgrade with that version as its\n" +
			"target. Its data has followed ever since the switch, so only what is still on its way is waited\n" +
			"for. The same call again changes nothing, also after the switch back.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				now, err := api.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{Name: c.name}))
				if err != nil {
					return err
				}
				switch last := now.Msg.GetLastSwitch(); {
				case last == nil:
					return errors.New("rollback: nothing was switched yet")
				case last.GetBack():
					return c.print(cmd, now.Msg) // this has been done
				default:
					res, err := api.BeginUpgrade(ctx, connect.NewRequest(&dbv1.BeginUpgradeRequest{Name: c.name, TargetVersion: last.GetFromVersion()}))
					if err != nil {
						return err
					}
					return c.print(cmd, res.Msg)
				}
			})
		},
	}
	c.register(cmd)
	return cmd
}

func getCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "deployment",
		Short: "Show a deployment: versions, upgrade, progress, fences, servers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				res, err := api.GetDeployment(ctx, connect.NewRequest(&dbv1.GetDeploymentRequest{Name: c.name}))
				if err != nil {
					return err
				}
				return c.print(cmd, res.Msg)
			})
		},
	}
	c.register(cmd)
	return cmd
}

func listCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the deployments that the controllers' etcd knows",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				res, err := api.ListDeployments(ctx, connect.NewRequest(&dbv1.ListDeploymentsRequest{}))
				if err != nil {
					return err
				}
				if c.json {
					return printJSON(cmd.OutOrStdout(), res.Msg)
				}
				return renderList(cmd.OutOrStdout(), res.Msg.GetDeployments())
			})
		},
	}
	c.register(cmd)
	cmd.Flags().Lookup("name").Hidden = true
	return cmd
}

func abortCommand() *cobra.Command {
	c := &client{}
	var reason, id string
	cmd := &cobra.Command{
		Use:   "abort",
		Short: "End the upgrade that runs; the current version stays",
		Long: "End the upgrade that runs; the current version stays, and what was written is kept. During\n" +
			"SWITCHING this first completes what was announced, so that writes go on safely.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				res, err := api.AbortUpgrade(ctx, connect.NewRequest(&dbv1.AbortUpgradeRequest{
					Name: c.name, Reason: reason, UpgradeId: id,
				}))
				if err != nil {
					return err
				}
				return c.print(cmd, res.Msg)
			})
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read it later")
	cmd.Flags().StringVar(&id, "upgrade-id", "", "abort only this attempt; empty: whichever runs")
	return cmd
}

// onlyDeployment allows the noun that the other commands need.
func onlyDeployment(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) == 1 && args[0] == "deployment" {
		return nil
	}
	return fmt.Errorf("unknown argument %q: name the deployment with --name", args[0])
}

// call runs f with a time limit and explains what it returns.
func (c *client) call(cmd *cobra.Command, f func(context.Context, dbcontrollerv1connect.DeploymentServiceClient) error) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
	defer cancel()
	return c.explain(f(ctx, api))
}

// print shows a deployment.
func (c *client) print(cmd *cobra.Command, d *dbv1.Deployment) error {
	if c.json {
		return printJSON(cmd.OutOrStdout(), d)
	}
	return renderDeployment(cmd.OutOrStdout(), d)
}

// explain makes an error of the API one line for people.
func (c *client) explain(err error) error {
	var ce *connect.Error
	if err == nil || !errors.As(err, &ce) {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case connect.IsWireError(err) && strings.HasSuffix(ce.Message(), deployment.ErrNotFound.Error()):
		return fmt.Errorf("%s: 'dbcontroller list' shows those that do", ce.Message())
	case connect.IsWireError(err):
		return errors.New(ce.Message())
	case ce.Code() == connect.CodeUnavailable:
		return fmt.Errorf("no controller answers at %s: start one with 'dbcontroller run', or give another --server", c.address())
	case ce.Code() == connect.CodeDeadlineExceeded:
		return fmt.Errorf("the controller at %s does not answer in time: look at its log, or give another --server", c.address())
	default:
		return fmt.Errorf("what answers at %s is not a controller's API (%s): give the address of its API with --server", c.address(), ce.Message())
	}
}

// address is where open connects, as people write it.
func (c *client) address() string {
	server := c.server
	if server == "" {
		server = os.Getenv(serverEnv)
	}
	return strings.TrimSuffix(strings.TrimPrefix(server, "http://"), "/")
}
