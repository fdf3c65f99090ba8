package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v4"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/view"
)

// watchPatience is the time that a view waits for a controller to return.
const watchPatience = time.Minute

func watchCommand() *cobra.Command {
	c := &connection{}
	var until string
	cmd := &cobra.Command{
		Use:   "deployment",
		Short: "Follow a deployment: progress, rate, lag, what the switch waits for",
		Long: "Follow a deployment and the reasons that its switch waits for. A terminal shows one view that is\n" +
			"redrawn; it folds shards that wait for nothing. Other outputs get a line for each change, or with\n" +
			"--json one JSON object in each line. The command ends when interrupted. With --until-version it\n" +
			"ends when that version is current, or when the upgrade to it ended otherwise.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.open()
			if err != nil {
				return err
			}
			show, note := c.view(cmd.OutOrStdout(), cmd.ErrOrStderr())
			return c.explain(c.follow(cmd.Context(), api, until, show, note))
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&until, "until-version", "", "end when this version is current")
	return cmd
}

// view returns the functions that show changes and notes. Output is JSON for programs, a redrawn
// view on a terminal, or lines for a log.
func (c *connection) view(w, diagnostics io.Writer) (show func(*dbv1.Deployment) error, note func(string)) {
	note = func(text string) { fmt.Fprintln(diagnostics, printable.Line(text)) }
	switch {
	case c.json:
		return func(d *dbv1.Deployment) error { return terminal.JSON(w, d) }, note
	case terminal.Is(w):
		s := view.NewScreen(w)
		return s.Draw, func(text string) { s.Note(printable.Line(text)) } // a separate line would displace the view
	default:
		return view.NewLines(w).Draw, note
	}
}

// errQuiet ends a stream without messages for --timeout. Either nothing changes or the controller
// is gone. The caller reopens the stream, possibly at another controller.
var errQuiet = errors.New("no message for a while")

// follow shows each change until the requested version is reached or ctx ends. Without a requested
// version, the end of ctx is no error. It reconnects to a lost controller for up to watchPatience.
func (c *connection) follow(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, until string, show func(*dbv1.Deployment) error, note func(string)) error {
	seen, started := false, false
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(watchPatience))
	for {
		err := c.followOnce(ctx, api, func(d *dbv1.Deployment) (done bool, err error) {
			seen = true
			retry.Reset()
			if err := show(d); err != nil || until == "" {
				return false, err
			}
			u := d.GetUpgradeState()
			switch {
			case u == nil && d.GetCurrentVersion() == until:
				return true, nil
			// An upgrade that was not seen may still begin. Only one that was seen can have ended.
			case u == nil && started:
				return true, exit.Refusedf("the upgrade to %s has ended, and %s is the current version: 'dbcontroller history' shows why", until, d.GetCurrentVersion())
			}
			started = started || u.GetTargetVersion() == until
			return false, nil
		})
		var ce *connect.Error
		switch {
		case ctx.Err() != nil:
			if until == "" {
				return nil
			}
			return exit.Errorf(exit.Interrupted, "interrupted before version %s", until)
		case err == nil:
			return nil
		case errors.Is(err, errQuiet):
			continue
		// Errors before the first answer, and refusals by a controller, do not heal by a retry.
		case !seen || !errors.As(err, &ce) || connect.IsWireError(err) && ce.Code() != connect.CodeUnavailable:
			return err
		}
		wait := retry.NextBackOff()
		if wait == backoff.Stop {
			return err
		}
		note("the controller does not answer; retrying")
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// followOnce follows one stream. It returns nil when show reports done. A stream that ends, or does
// not start within --timeout, gives an error to retry.
func (c *connection) followOnce(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, show func(*dbv1.Deployment) (done bool, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A connection may accept and stay silent. Without this timer the command would hang.
	quiet := time.AfterFunc(c.timeout, func() {
		cancel(connect.NewError(connect.CodeDeadlineExceeded, errors.New("no answer in time")))
	})
	defer quiet.Stop()
	stream, err := api.WatchDeployment(ctx, connect.NewRequest(&dbv1.WatchDeploymentRequest{Name: c.name}))
	if err != nil {
		return caused(ctx, err)
	}
	defer stream.Close() //nolint:errcheck // the stream is not used any more
	for stream.Receive() {
		quiet.Stop()
		if done, err := show(stream.Msg()); done || err != nil {
			return err
		}
		quiet = time.AfterFunc(c.timeout, func() { cancel(errQuiet) })
	}
	quiet.Stop()
	if err := stream.Err(); err != nil {
		return caused(ctx, err)
	}
	return connect.NewError(connect.CodeUnavailable, errors.New("the controller ended the stream"))
}

// caused returns the cause of a cancelled context, or else err.
func caused(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
