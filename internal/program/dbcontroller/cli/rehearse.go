package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

// errRehearsal gives a rehearsal that found problems its exit status.
var errRehearsal = exit.Finding("the rehearsal found problems: correct them before begin-upgrade")

func rehearseCommand() *cobra.Command {
	c := &connection{}
	req := &dbv1.RehearseRequest{}
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "rehearse",
		Short: "Run the whole upgrade into scratch databases, and report",
		Long: "Run the whole upgrade into scratch databases and drop them: copy, follow and compare everything,\n" +
			"and switch a sample there and back. The data are only read, and clients do not notice: no session\n" +
			"is ended, and no fence waits for transactions. Collections of applications are therefore fenced by\n" +
			"a validator. The pace of the deployment applies. The user needs readWrite and dbAdmin on both\n" +
			"scratch databases, <database>_dbcrehearsal; 'plan' checks this. Progress goes to standard error,\n" +
			"the report to standard output. The exit status is 1 if it finds problems, or does not finish\n" +
			"within --limit; the report then names the step that it was in.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Sample < 0 {
				return exit.Usagef("--sample %d: give a number of records", req.Sample)
			}
			if limit < time.Second {
				return exit.Usagef("--limit %s: give a time of at least 1s, e.g. 48h", limit)
			}
			// The API counts whole seconds, hence the minimum above.
			req.Name, req.LimitSeconds = c.name, int64(limit/time.Second)
			return c.explain(c.rehearse(cmd.Context(), req, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&req.TargetVersion, "target-version", "", "version to rehearse; empty: the next one")
	cmd.Flags().Int64Var(&req.Sample, "sample", 0, "number of records of each kind in the switch; 0: 1000")
	cmd.Flags().DurationVar(&limit, "limit", 24*time.Hour, "limit for the rehearsal, with pauses and index builds")
	cmd.Flags().BoolVar(&req.SampleOnly, "sample-only", false, "skip the whole copy")
	return cmd
}

func (c *connection) rehearse(ctx context.Context, req *dbv1.RehearseRequest, out, diagnostics io.Writer) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	shown := terminal.NewProgress(diagnostics)
	defer shown.End()
	report, err := received(ctx, c, "rehearsal", api.Rehearse, req, func(m *dbv1.RehearseResponse) (*dbv1.WorkProgress, *dbv1.RehearseReport) {
		text := m.GetProgress() // from an older controller
		if w := m.GetWork(); w != nil {
			text = terminal.WorkText(w)
		}
		shown.Show(m.GetWork().GetDoing(), text)
		return m.GetWork(), m.GetReport()
	})
	if err != nil {
		return err
	}
	shown.End()
	if c.json {
		err = terminal.JSON(out, report)
	} else {
		err = terminal.Write(out, renderRehearsal(report))
	}
	if err == nil && !report.GetOk() {
		err = errRehearsal
	}
	return err
}

func renderRehearsal(r *dbv1.RehearseReport) []byte {
	var b bytes.Buffer
	result := "no problems found"
	if !r.GetOk() {
		result = "PROBLEMS"
	}
	fmt.Fprintln(&b, result)
	// A rehearsal that fails early copies nothing. A rate of zero would mislead.
	if r.GetCopyMillis() > 0 {
		fmt.Fprintf(&b, "  copied    %s records in %s, %s bytes\n", terminal.Count(r.GetCopied()), terminal.Millis(r.GetCopyMillis()), terminal.Count(r.GetBytes()))
		fmt.Fprintf(&b, "  compared  %s groups, %s different\n", terminal.Count(r.GetCompared()), terminal.Count(r.GetMismatched()))
	}
	fmt.Fprintf(&b, "  parked    %s\n", terminal.Count(r.GetParked()))
	for _, s := range r.GetSwitches() {
		var steps []string
		// Sort the steps, so that two reports can be compared.
		for _, step := range slices.Sorted(maps.Keys(s.GetMillis())) {
			steps = append(steps, fmt.Sprintf("%s %d", step, s.GetMillis()[step]))
		}
		fmt.Fprintf(&b, "  switch    %s -> %s in %s (%s), %s different\n", s.GetFrom(), s.GetTo(), terminal.Millis(s.GetPauseMillis()),
			strings.Join(steps, ", "), terminal.Count(s.GetMismatched()))
	}
	for _, text := range r.GetProblems() {
		fmt.Fprintf(&b, "  problem   %s\n", text)
	}
	for _, text := range r.GetExamples() {
		fmt.Fprintf(&b, "  example   %s\n", text)
	}
	return b.Bytes()
}
