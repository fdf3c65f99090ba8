package cli

import (
	"context"
	"fmt"
	"io"

	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/view"
)

// asker is the connection of a command that changes something. Such a command first makes a dry run
// at the controller, prints the effects to standard error, and then makes the change.
type asker struct {
	connection
	by     string
	dryRun bool
	starts bool // the operation continues after the answer
}

func (a *asker) register(cmd *cobra.Command) {
	a.connection.register(cmd)
	cmd.Flags().StringVar(&a.by, "by", "", "name for the history (default: user@host)")
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "print the effect, change nothing")
}

// who returns the name for the history: --by, or else user@host.
func (a *asker) who() string {
	if a.by != "" {
		return a.by
	}
	return terminal.User()
}

// step is one call of a command. It runs first as a dry run, with a nil shown. The real call gets
// the dry run's answer as shown, so that it acts on the upgrade that the operator saw.
type step func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, shown *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error)

// do makes the calls of a command in order, after a dry run has allowed all of them. It then prints
// the state of the deployment.
func (a *asker) do(cmd *cobra.Command, steps ...step) error {
	return a.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
		// Run every dry run before the first change: a refused later step must not leave half done.
		var shown []*dbv1.Deployment
		for _, s := range steps {
			d, err := would(ctx, &a.connection, func(ctx context.Context) (*connect.Response[dbv1.Deployment], error) { return s(ctx, api, true, nil) })
			if err != nil {
				return err
			}
			shown = append(shown, d)
		}
		for _, d := range shown {
			announce(cmd.ErrOrStderr(), "will", d.GetEffects())
		}
		last := shown[len(shown)-1]
		if a.dryRun {
			if a.json {
				return terminal.JSON(cmd.OutOrStdout(), last)
			}
			return nil
		}
		changed := false
		for i, s := range steps {
			d, resolved, err := change[dbv1.Deployment]{
				send: func(ctx context.Context) (*connect.Response[dbv1.Deployment], error) {
					return s(ctx, api, false, shown[i])
				},
				dry: func(ctx context.Context) (*connect.Response[dbv1.Deployment], error) {
					return s(ctx, api, true, shown[i])
				},
				done: func(d *dbv1.Deployment) bool { return idle(d.GetEffects()) },
			}.make(ctx, &a.connection, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			// The answer was lost. The later dry run in its place has no effects left to report.
			if resolved {
				d.Effects = shown[i].GetEffects()
			}
			if last = d; !slices.Equal(last.GetEffects(), shown[i].GetEffects()) {
				announce(cmd.ErrOrStderr(), "did", last.GetEffects()) // the state changed since the dry run
			}
			changed = changed || !idle(last.GetEffects())
		}
		return a.answer(cmd, last, changed)
	})
}

// answer prints the result of a changing command: the state of the deployment on one line, or the
// whole deployment as JSON.
func (a *asker) answer(cmd *cobra.Command, d *dbv1.Deployment, changed bool) error {
	if a.json {
		return terminal.JSON(cmd.OutOrStdout(), d)
	}
	word, follow := "done", ""
	switch runs := d.GetUpgradeState() != nil || d.GetUpdate() != nil || d.GetRetiring() != ""; {
	// A repeated command must not claim that it started something.
	case !changed:
		word = "nothing changed"
	case a.starts && runs:
		word, follow = "started", "; 'watch deployment' shows the progress"
	}
	return terminal.Write(cmd.OutOrStdout(), fmt.Appendf(nil, "%s: %s%s\n", word, view.Standing(d), follow))
}

// announce prints effects, one on each line.
func announce(w io.Writer, when string, effects []string) {
	for _, e := range effects {
		if !strings.HasPrefix(e, "nothing: ") {
			e = when + ": " + e
		}
		fmt.Fprintln(w, printable.Line(e))
	}
}

// meant returns id, or without one the upgrade that the dry run saw. The command then misses an
// upgrade that began in between.
func meant(id string, shown *dbv1.Deployment) string {
	if id == "" {
		return shown.GetUpgradeState().GetId()
	}
	return id
}

// asMillis converts a duration flag to milliseconds. It refuses fractions, which the API cannot
// carry.
func asMillis(flag string, d time.Duration) (int64, error) {
	if d < 0 || d%time.Millisecond != 0 {
		return 0, exit.Usagef("--%s %s: give whole milliseconds from 0, such as 10s", flag, d)
	}
	return d.Milliseconds(), nil
}

// paceFlags limit the speed of bulk work.
type paceFlags struct {
	maxRate, maxSourceLoad int32
	window                 string
}

func (p *paceFlags) register(cmd *cobra.Command) {
	cmd.Flags().Int32Var(&p.maxRate, "max-rate", 0, "maximum records a second of all controllers together; 0: as configured")
	cmd.Flags().Int32Var(&p.maxSourceLoad, "max-source-load", 0, "load of the source in percent that slows down bulk work; 0: as configured")
	cmd.Flags().StringVar(&p.window, "window", "", "daily window in UTC for bulk work and the switch, e.g. 22:00-05:00; 'any': no window")
}

// anyTime is the value of --window that removes the window.
const anyTime = "any"

// request returns nil if no flag was given. Omitted flags keep their present values.
func (p *paceFlags) request(cmd *cobra.Command) (*dbv1.SetPaceRequest, error) {
	req, asked := &dbv1.SetPaceRequest{}, false
	// Send only the flags that were given: the API keeps the values of the others.
	given := func(flag string) bool {
		changed := cmd.Flags().Changed(flag)
		asked = asked || changed
		return changed
	}
	if given("max-rate") {
		if p.maxRate < 0 {
			return nil, exit.Usagef("--max-rate %d: give records a second, or 0 for as configured", p.maxRate)
		}
		req.MaxRate = &p.maxRate
	}
	if given("max-source-load") {
		if p.maxSourceLoad < 0 || p.maxSourceLoad > 100 {
			return nil, exit.Usagef("--max-source-load %d: give percent from 1 to 100, or 0 for as configured", p.maxSourceLoad)
		}
		req.MaxSourceLoad = &p.maxSourceLoad
	}
	if given("window") {
		window := p.window
		// The API removes the window for an empty text, which is also the flag's default.
		if window == anyTime {
			window = ""
		}
		req.Window = &window
	}
	if !asked {
		return nil, nil
	}
	return req, nil
}

// pace returns the step that sets the pace.
func (a *asker) pace(req *dbv1.SetPaceRequest) step {
	return func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
		return api.SetPace(ctx, connect.NewRequest(&dbv1.SetPaceRequest{
			Name: a.name, Paused: req.Paused, Reason: req.Reason, MaxRate: req.MaxRate,
			MaxSourceLoad: req.MaxSourceLoad, Window: req.Window, DryRun: dryRun, RequestedBy: a.who(),
		}))
	}
}
