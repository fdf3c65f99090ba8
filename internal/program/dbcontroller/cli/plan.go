package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"dbcontroller.dev/config"
	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/program/dbcontroller/app"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/registry"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/process"
	"dbcontroller.dev/upgradestate"
)

// errPlan gives a plan with failed checks its exit status.
var errPlan = exit.Finding("the upgrade would fail as planned: fix the FAILED checks")

func planCommand(register registry.Register) *cobra.Command {
	c := &connection{}
	var target, file string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Forecast an upgrade: needs, duration, pause, and blockers",
		Long: "Show what an upgrade needs and does, and what blocks it: space, oplog, indexes, privileges,\n" +
			"fences, servers, the time of the copy, the pause, the rollback. It reads, and tries operations in\n" +
			"scratch collections that it drops. Nothing else changes. Progress goes to standard error, the\n" +
			"report to standard output; the exit status is 1 if a check fails.\n\n" +
			"With --config it needs no controller and only reads. It then reports that privileges, fences, the\n" +
			"rollback and the pause were not tried. If etcd does not answer or has no record of the deployment,\n" +
			"it plans a deployment that starts now.",
		Example: "  dbcontroller plan --target-version v2\n" +
			"  dbcontroller plan --config shop.yaml -o json",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case file != "" && (c.flags.Server != "" || c.context != ""):
				return exit.Usagef("--config and --server or --context: give only one: --config makes the plan here, the others at a controller")
			case file != "":
				return c.planAlone(cmd, register, file, target)
			}
			return c.explain(c.plan(cmd.Context(), target, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&target, "target-version", "", "version to plan for; empty: the next one")
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE`: plan without a controller, read only")
	return cmd
}

func (c *connection) plan(ctx context.Context, target string, out, diagnostics io.Writer) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	shown := terminal.NewProgress(diagnostics)
	defer shown.End()
	req := &dbv1.PlanRequest{Name: c.name, TargetVersion: target}
	report, err := received(ctx, c, "plan", api.StreamPlan, req, func(m *dbv1.PlanResponse) (*dbv1.WorkProgress, *dbv1.PlanReport) {
		shown.Show(m.GetWork().GetDoing(), planText(m.GetWork()))
		return m.GetWork(), m.GetReport()
	})
	if connect.CodeOf(err) == connect.CodeUnimplemented { // an older controller
		shown.Show("", "the controller is older and does not report its progress")
		report, err = within(ctx, max(c.timeout, olderPlanMax), api.Plan, req)
	}
	if err != nil {
		return err
	}
	shown.End()
	return c.printPlan(out, report)
}

// olderPlanMax limits a plan of a controller that reports no progress.
const olderPlanMax = 5 * time.Minute

// planAlone makes the plan in this process, without a controller.
func (c *connection) planAlone(cmd *cobra.Command, register registry.Register, file, target string) error {
	ctx := cmd.Context()
	cfg, err := config.Load(file, nil)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	// Load lenses before asking etcd: their errors need no network.
	transformers, carry, err := registry.Of(cfg, register)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	shown := terminal.NewProgress(cmd.ErrOrStderr())
	defer shown.End()
	shown.Show("", "asks etcd for the record of "+cfg.Deployment)
	known, embedded, err := recordOf(ctx, file)
	if err != nil {
		return err
	}
	if known == nil {
		shown.End()
		fmt.Fprintf(cmd.ErrOrStderr(), "etcd has no record of %s, or does not answer: this is the plan of a deployment that starts now\n", cfg.Deployment)
	}
	report, err := app.PlanAlone(ctx, cfg, transformers, carry, embedded, known, target, func(w api.Work) {
		now := &dbv1.WorkProgress{Doing: w.Doing, Done: w.Done, Total: w.Total}
		shown.Show(w.Doing, planText(now))
	}, zap.NewNop())
	if err != nil {
		if e := exit.Of(err); e == exit.Failed {
			err = exit.With(exit.Refused, err) // as when a controller cannot make the plan
		}
		return fmt.Errorf("plan: %w", err)
	}
	shown.End()
	return c.printPlan(cmd.OutOrStdout(), report)
}

// recordOf reads the deployment of a configuration. It returns nil if etcd has none or does not
// answer.
func recordOf(ctx context.Context, file string) (d *upgradestate.Deployment, embedded bool, err error) {
	p, err := start(ctx, process.Flags{Config: file, LogLevel: "error"})
	var etcd *process.EtcdError
	// An unreachable etcd is no reason to fail: the command then plans a new deployment.
	if errors.As(err, &etcd) && ctx.Err() == nil {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer p.Close()
	found, err := deployment.New(p.Store, p.Config.Deployment, deployment.Config{Log: zap.NewNop()}).Get(ctx)
	if errors.Is(err, deployment.ErrNotFound) {
		return nil, p.Embedded, nil
	}
	return &found, p.Embedded, err
}

// planText returns the running step of a plan.
func planText(w *dbv1.WorkProgress) string {
	if w.GetTotal() == 0 {
		return w.GetDoing()
	}
	return fmt.Sprintf("step %d of %d: %s", w.GetDone()+1, w.GetTotal(), w.GetDoing())
}

func (c *connection) printPlan(out io.Writer, report *dbv1.PlanReport) error {
	if !c.json {
		terminal.Quote(report) // a local report has not passed the quoting interceptor
	}
	text := renderPlan(report)
	if c.json {
		if err := terminal.JSON(out, report); err != nil {
			return err
		}
	} else if err := terminal.Write(out, text); err != nil {
		return err
	}
	if !report.GetOk() {
		return errPlan
	}
	return nil
}

func renderPlan(r *dbv1.PlanReport) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s -> %s\n", r.GetFromVersion(), r.GetToVersion())
	t := terminal.Table(&b, "VERDICT\tAREA\tSUBJECT\tFOUND")
	for _, c := range r.GetChecks() {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.GetVerdict(), c.GetArea(), cmp.Or(c.GetSubject(), "-"), c.GetText())
	}
	terminal.Flush(t)
	if r.EstimatedCopySeconds != nil {
		fmt.Fprintf(&b, "copy: about %s\n", terminal.Seconds(r.GetEstimatedCopySeconds()))
	}
	if r.PredictedPauseMillis != nil {
		fmt.Fprintf(&b, "pause: about %s\n", terminal.Millis(r.GetPredictedPauseMillis()))
	}
	return b.Bytes()
}
