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

// planTimeout bounds a plan, which tries things at the databases.
const planTimeout = 5 * time.Minute

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
			return c.explain(c.plan(cmd.Context(), target, cmd.OutOrStdout()))
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&target, "target-version", "", "version to plan for; empty: the next one")
	return cmd
}

func (c *connection) plan(ctx context.Context, target string, out io.Writer) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	res, err := api.Plan(ctx, connect.NewRequest(&dbv1.PlanRequest{Name: c.name, TargetVersion: target}))
	if err != nil {
		return err
	}
	if c.json {
		err = printJSON(out, res.Msg)
	} else {
		err = write(out, renderPlan(res.Msg))
	}
	if err == nil && !res.Msg.GetOk() {
		err = errPlan
	}
	return err
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
