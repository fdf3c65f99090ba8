package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/registry"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/view"
)

// operatorCommands returns the commands that call a controller's API.
func operatorCommands(register registry.Register) []*cobra.Command {
	return []*cobra.Command{
		deploymentVerb("create", "Create a deployment", createCommand()),
		deploymentVerb("begin-upgrade", "Start an upgrade to another version", beginCommand()),
		deploymentVerb("get", "Show a deployment", getCommand()),
		deploymentVerb("watch", "Follow a deployment as it changes", watchCommand()),
		listCommand(), historyCommand(), pauseCommand(), resumeCommand(), paceCommand(), switchCommand(), policyCommand(), breachesCommand(), restoredCommand(),
		rollbackCommand(), abortCommand(), completeCommand(), parkedCommand(), verifyCommand(), updateCommand(), keysCommand(), planCommand(register), rehearseCommand(), rolloutCommand(),
	}
}

// verb returns a command that requires a noun after it.
func verb(name, short string, nouns ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("%s: unknown object %q: use '%s %s'", name, args[0], cmd.CommandPath(), nouns[0].Name())
			}
			return exit.Usagef("%s: no object given: use '%s %s'", name, cmd.CommandPath(), nouns[0].Name())
		},
	}
	cmd.AddCommand(nouns...)
	return cmd
}

// deploymentVerb returns a verb whose only noun is the deployment. The noun is optional.
func deploymentVerb(name, short string, noun *cobra.Command) *cobra.Command {
	cmd := verb(name, short, noun)
	unknown := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(cmd, args)
		}
		return noun.RunE(cmd, args)
	}
	// Both commands share the flags themselves, so a flag counts as given whichever parses it.
	noun.Flags().VisitAll(func(f *pflag.Flag) { cmd.Flags().AddFlag(f) })
	return cmd
}

func getCommand() *cobra.Command {
	c := &connection{}
	cmd := &cobra.Command{
		Use:   "deployment",
		Short: "Show a deployment: versions, upgrade, progress, fences, servers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				d, err := unary(ctx, c, api.GetDeployment, &dbv1.GetDeploymentRequest{Name: c.name})
				if err != nil {
					return err
				}
				return c.print(cmd, d)
			})
		},
	}
	c.register(cmd)
	return cmd
}

func listCommand() *cobra.Command {
	c := &connection{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the deployments in the controllers' etcd, and those of configured regions",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				all, err := unary(ctx, c, api.ListDeployments, &dbv1.ListDeploymentsRequest{})
				if err != nil {
					return err
				}
				if c.json {
					err = terminal.JSON(cmd.OutOrStdout(), all)
				} else {
					err = view.List(cmd.OutOrStdout(), all)
				}
				if err != nil {
					return err
				}
				// Print the readable deployments first: one broken record must not hide the others.
				return unreadable(all.GetUnreadable())
			})
		},
	}
	c.register(cmd)
	cmd.Flags().Lookup("name").Hidden = true
	return cmd
}

// unreadable returns an error if the list lacks deployments, and nil otherwise.
func unreadable(all []*dbv1.ListDeploymentsResponse_Unreadable) error {
	var reasons []string
	for _, u := range all {
		reasons = append(reasons, u.GetReason())
	}
	if len(reasons) == 0 {
		return nil
	}
	return exit.Errorf(exit.Failed, "not listed: %s", strings.Join(reasons, "; "))
}

// onlyDeployment accepts no argument or the noun "deployment".
func onlyDeployment(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) == 1 && args[0] == "deployment" {
		return nil
	}
	return exit.Usagef("unknown argument %q: give the deployment with --name", args[0])
}

// call opens the connection, runs f and explains its error. f makes one call, or several that
// belong together. --timeout limits each of them.
func (c *connection) call(cmd *cobra.Command, f func(context.Context, dbcontrollerv1connect.DeploymentServiceClient) error) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	return c.explain(f(cmd.Context(), api))
}

// print prints a deployment as text or JSON.
func (c *connection) print(cmd *cobra.Command, d *dbv1.Deployment) error {
	if c.json {
		return terminal.JSON(cmd.OutOrStdout(), d)
	}
	return view.Deployment(cmd.OutOrStdout(), d)
}

// explain turns an API error into one line for people, with its exit status.
func (c *connection) explain(err error) error {
	var ce *connect.Error
	var known *exit.Error
	if err == nil || errors.As(err, &known) || !errors.As(err, &ce) {
		return err
	}
	at := c.address()
	// Wire errors come from a controller. All others come from this client or the network.
	switch {
	case errors.Is(err, context.Canceled):
		return exit.Errorf(exit.Interrupted, "interrupted")
	case ce.Code() == connect.CodeUnauthenticated:
		return exit.Errorf(exit.NotAllowed, "%s: give --token-file, or --tls-cert and --tls-key", ce.Message())
	case !connect.IsWireError(err) && distrust(err, at) != nil:
		return exit.With(exit.Unreachable, distrust(err, at))
	case connect.IsWireError(err) && strings.HasSuffix(ce.Message(), deployment.ErrNotFound.Error()):
		return exit.Errorf(exit.NotFound, "%s: 'dbcontroller list' shows the existing deployments", ce.Message())
	case connect.IsWireError(err):
		return exit.With(exitOfCode(ce.Code()), errors.New(ce.Message()))
	case ce.Code() == connect.CodeUnavailable:
		return exit.Errorf(exit.Unreachable, "no controller answers at %s: start one with 'dbcontroller run', or give another --server", at)
	case ce.Code() == connect.CodeDeadlineExceeded:
		return exit.Errorf(exit.Timeout, "the controller at %s does not answer in time: check its log, or give another --server, or a longer --timeout", at)
	default:
		return exit.Errorf(exit.Unreachable, "the server at %s is not a controller's API (%s): give the address of the API with --server", at, ce.Message())
	}
}

// exitOfCode returns the exit status for a controller's error code.
func exitOfCode(code connect.Code) exit.Status {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return exit.Usage
	case connect.CodeNotFound:
		return exit.NotFound
	case connect.CodeFailedPrecondition, connect.CodeAlreadyExists, connect.CodeAborted:
		return exit.Refused
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return exit.NotAllowed
	case connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeCanceled:
		return exit.Unreachable // the controller ended the call
	case connect.CodeDeadlineExceeded:
		return exit.Timeout
	case connect.CodeUnknown, connect.CodeInternal, connect.CodeDataLoss, connect.CodeUnimplemented:
		return exit.Failed
	}
	return exit.Failed
}

// Limits for a silent controller. Present controllers announce when their next message is due, and
// are given up after that. Older ones announce nothing, so only the whole call is limited.
const (
	silence      = 3 // multiples of --timeout until the first message
	olderCallMax = 6 * time.Hour
)

// received begins a long call and waits for its report. report gets each message, shows the
// progress, and returns the report once it is there. If the caller is interrupted, or the
// controller stays silent for too long, the call is cancelled at the controller as well.
func received[Q, M, R any](ctx context.Context, c *connection, what string, begin func(context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[M], error), req *Q, report func(*M) (*dbv1.WorkProgress, *R)) (*R, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silence*c.timeout, func() {
		cancel(exit.Timeoutf("the controllers at %s have sent nothing for too long about the %s: it ends there, too; check their logs, or give a longer --timeout", c.address(), what))
	})
	defer silent.Stop()
	heard := false
	stream, err := begin(ctx, connect.NewRequest(req))
	if err == nil {
		defer stream.Close() //nolint:errcheck // the stream is not used any more
		var r *R
		for stream.Receive() {
			heard = true
			work, got := report(stream.Msg())
			if got != nil {
				r = got
			}
			wait := olderCallMax
			if within := time.Duration(work.GetNextWithinMillis()) * time.Millisecond; within > 0 {
				wait = max(c.timeout, within)
			}
			// Each message extends the limit by the time that it announces.
			silent.Reset(wait)
		}
		if err = stream.Err(); err == nil && r != nil {
			return r, nil
		}
		if err == nil {
			return nil, exit.Errorf(exit.Unreachable, "the controller ended the %s without a report: repeat the command", what)
		}
	}
	var gone *exit.Error
	// A silence limit hides behind the context's error, so ask for the cause.
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &gone):
		return nil, gone
	case cause == nil && heard && !connect.IsWireError(err): // the connection broke
		return nil, exit.Errorf(exit.Unreachable, "the controller stopped, and with it the %s: repeat the command", what)
	}
	return nil, err
}
