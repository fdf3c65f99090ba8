package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
)

// errPlan is the exit status of a plan that found what prevents the upgrade.
var errPlan = finding("the upgrade would fail as planned: correct what FAILED")

func planCommand() *cobra.Command {
	c := &connection{}
	var target string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what an upgrade would need and do, and what speaks against it",
		Long: "Show what an upgrade would need and do, and what speaks against it: space, oplog, indexes,\n" +
			"privileges, fences, servers, the time of the copy, the pause, the rollback. It reads, tries things in\n" +
			"scratch collections that it removes, and changes nothing. The exit status is 1 when a check failed.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.explain(c.plan(cmd.Context(), target, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&target, "target-version", "", "version to plan for; empty: the next one")
	return cmd
}

func (c *connection) plan(ctx context.Context, target string, out, diagnostics io.Writer) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	shown := newProgress(diagnostics)
	defer shown.end()
	req := &dbv1.PlanRequest{Name: c.name, TargetVersion: target}
	report, err := received(ctx, c, "plan", api.StreamPlan, req, func(m *dbv1.PlanResponse) (*dbv1.WorkProgress, *dbv1.PlanReport) {
		shown.show(m.GetWork().GetDoing(), planText(m.GetWork()))
		return m.GetWork(), m.GetReport()
	})
	if connect.CodeOf(err) == connect.CodeUnimplemented { // by an older controller
		shown.show("", "the controller is older and does not say how far it is")
		report, err = within(ctx, max(c.timeout, olderPlanMax), api.Plan, req)
	}
	if err != nil {
		return err
	}
	shown.end()
	return c.printPlan(out, report)
}

// olderPlanMax is how long a plan may take that does not say how far it is.
const olderPlanMax = 5 * time.Minute

// planText says which step of a plan runs.
func planText(w *dbv1.WorkProgress) string {
	if w.GetTotal() == 0 {
		return w.GetDoing()
	}
	return fmt.Sprintf("step %d of %d: %s", w.GetDone()+1, w.GetTotal(), w.GetDoing())
}

func (c *connection) printPlan(out io.Writer, report *dbv1.PlanReport) error {
	text := renderPlan(report)
	if c.json {
		if err := printJSON(out, report); err != nil {
			return err
		}
	} else if err := write(out, text); err != nil {
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
	t := newTable(&b, "VERDICT\tAREA\tSUBJECT\tFOUND")
	for _, c := range r.GetChecks() {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.GetVerdict(), c.GetArea(), or(c.GetSubject(), "-"), c.GetText())
	}
	flush(t)
	if r.EstimatedCopySeconds != nil {
		fmt.Fprintf(&b, "copy: about %s\n", span(r.GetEstimatedCopySeconds()))
	}
	if r.PredictedPauseMillis != nil {
		fmt.Fprintf(&b, "pause: about %s\n", millis(r.GetPredictedPauseMillis()))
	}
	return b.Bytes()
}
