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
)

// errRehearsal is the exit status of a rehearsal that found something.
var errRehearsal = finding("the rehearsal found problems: correct them before begin-upgrade")

func rehearseCommand() *cobra.Command {
	c := &connection{}
	req := &dbv1.RehearseRequest{}
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "rehearse",
		Short: "Do the whole upgrade into scratch databases, throw them away, and report",
		Long: "Do the whole upgrade into scratch databases and throw them away: everything is copied, followed and\n" +
			"compared, and a sample goes through the switch, and back. The data are only read, and clients do not\n" +
			"notice: no session is ended, and no fence waits for transactions, so that collections of applications\n" +
			"are fenced by a validator in it. The pace of the deployment holds. The user needs readWrite and dbAdmin\n" +
			"on both scratch databases, <database>_dbcrehearsal; 'plan' tries them. Progress goes to standard error,\n" +
			"the report to standard output; the exit status is 1 when it found problems, and when it was not done\n" +
			"within --limit: the report then says what it stood at.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Sample < 0 {
				return usage("--sample %d: give a number of records", req.Sample)
			}
			if limit < time.Second {
				return usage("--limit %s: give a time of at least 1s, e.g. 48h", limit)
			}
			req.Name, req.LimitSeconds = c.name, int64(limit/time.Second)
			return c.explain(c.rehearse(cmd.Context(), req, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&req.TargetVersion, "target-version", "", "version to rehearse; empty: the next one")
	cmd.Flags().Int64Var(&req.Sample, "sample", 0, "records of each kind that go through the switch; 0: 1000")
	cmd.Flags().DurationVar(&limit, "limit", 24*time.Hour, "how long it may take, pauses and builds of indexes included")
	cmd.Flags().BoolVar(&req.SampleOnly, "sample-only", false, "do not copy everything first")
	return cmd
}

func (c *connection) rehearse(ctx context.Context, req *dbv1.RehearseRequest, out, diagnostics io.Writer) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	shown := newProgress(diagnostics)
	defer shown.end()
	report, err := received(ctx, c, "rehearsal", api.Rehearse, req, func(m *dbv1.RehearseResponse) (*dbv1.WorkProgress, *dbv1.RehearseReport) {
		text := m.GetProgress() // of an older controller
		if w := m.GetWork(); w != nil {
			text = workText(w)
		}
		shown.show(m.GetWork().GetDoing(), text)
		return m.GetWork(), m.GetReport()
	})
	if err != nil {
		return err
	}
	shown.end()
	if c.json {
		err = printJSON(out, report)
	} else {
		err = write(out, renderRehearsal(report))
	}
	if err == nil && !report.GetOk() {
		err = errRehearsal
	}
	return err
}

func renderRehearsal(r *dbv1.RehearseReport) []byte {
	var b bytes.Buffer
	result := "all went well"
	if !r.GetOk() {
		result = "PROBLEMS"
	}
	fmt.Fprintln(&b, result)
	if r.GetCopyMillis() > 0 {
		fmt.Fprintf(&b, "  copied    %s records in %s, %s bytes\n", count(r.GetCopied()), millis(r.GetCopyMillis()), count(r.GetBytes()))
		fmt.Fprintf(&b, "  compared  %s groups, %s different\n", count(r.GetCompared()), count(r.GetMismatched()))
	}
	fmt.Fprintf(&b, "  parked    %s\n", count(r.GetParked()))
	for _, s := range r.GetSwitches() {
		var steps []string
		for _, step := range slices.Sorted(maps.Keys(s.GetMillis())) {
			steps = append(steps, fmt.Sprintf("%s %d", step, s.GetMillis()[step]))
		}
		fmt.Fprintf(&b, "  switch    %s -> %s in %s (%s), %s different\n", s.GetFrom(), s.GetTo(), millis(s.GetPauseMillis()),
			strings.Join(steps, ", "), count(s.GetMismatched()))
	}
	for _, text := range r.GetProblems() {
		fmt.Fprintf(&b, "  problem   %s\n", text)
	}
	for _, text := range r.GetExamples() {
		fmt.Fprintf(&b, "  example   %s\n", text)
	}
	return b.Bytes()
}
