package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment/api"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
)

func historyCommand() *cobra.Command {
	c := &connection{}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show past operations: who, when, how long, and the result",
		Long: "Show the history of a deployment, oldest first: who started what and when, how long each phase\n" +
			"took, and how it ended. Times are UTC. Old entries are dropped at a limit.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				d, err := unary(ctx, c, api.GetDeployment, &dbv1.GetDeploymentRequest{Name: c.name})
				if err != nil {
					return err
				}
				if c.json {
					return printHistory(cmd.OutOrStdout(), d.GetHistory())
				}
				// Standard error, so that a script that parses the table does not meet the notice.
				if n := d.GetHistoryDropped(); n > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "%d older entries were dropped; the audit logs of the controllers have them\n", n)
				}
				return renderHistory(cmd.OutOrStdout(), d.GetHistory())
			})
		},
	}
	c.register(cmd)
	return cmd
}

// printHistory writes the entries as JSON, each in the form of 'get deployment --json'.
func printHistory(w io.Writer, entries []*dbv1.HistoryEntry) error {
	list := make([]string, 0, len(entries))
	for _, e := range entries {
		text, err := api.ToJSON(e)
		if err != nil {
			return fmt.Errorf("encode JSON: %w", err)
		}
		list = append(list, string(text))
	}
	return terminal.Write(w, []byte(`{"history":[`+strings.Join(list, ",")+"]}\n"))
}

func renderHistory(w io.Writer, entries []*dbv1.HistoryEntry) error {
	if len(entries) == 0 {
		return terminal.Write(w, []byte("nothing has happened yet\n"))
	}
	var b bytes.Buffer
	t := terminal.Table(&b, "AT\tWHAT\tOF\tBY\tTOOK\tOUTCOME\tDETAIL")
	for _, e := range entries {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", terminal.Time(e.GetAt()), e.GetWhat(), cmp.Or(subjectOf(e), "-"), cmp.Or(whoOf(e), "-"),
			cmp.Or(between(e.GetAt(), e.GetEnded()), "-"), cmp.Or(outcomeOf(e), "-"), cmp.Or(e.GetDetail(), "-"))
		// Each phase lasts until the next one starts; the last one until the entry ends.
		for i, p := range e.GetPhases() {
			until := e.GetEnded()
			if i+1 < len(e.GetPhases()) {
				until = e.GetPhases()[i+1].GetAt()
			}
			fmt.Fprintf(t, "%s\t  %s\t\t\t%s\t\t\n", terminal.Time(p.GetAt()), p.GetPhase(), cmp.Or(between(p.GetAt(), until), "-"))
		}
	}
	terminal.Flush(t)
	return terminal.Write(w, trimLines(b.Bytes()))
}

// outcomeOf returns the result of an operation and, for a switch, the time that writes were held.
func outcomeOf(e *dbv1.HistoryEntry) string {
	if e.GetPauseMillis() == 0 {
		return e.GetOutcome()
	}
	return e.GetOutcome() + ", writes held " + terminal.Millis(e.GetPauseMillis())
}

// whoOf returns the caller: the authenticated identity, followed by the name it gave itself.
func whoOf(e *dbv1.HistoryEntry) string {
	switch {
	case e.GetIdentity() == "":
		return e.GetBy()
	case e.GetBy() == "" || e.GetBy() == e.GetIdentity():
		return e.GetIdentity()
	}
	return fmt.Sprintf("%s (%s)", e.GetIdentity(), e.GetBy())
}

// subjectOf returns the subject of an entry: the versions, or else the id.
func subjectOf(e *dbv1.HistoryEntry) string {
	switch {
	case e.GetFrom() != "" && e.GetTo() != "":
		return fmt.Sprintf("%s -> %s (%s)", e.GetFrom(), e.GetTo(), e.GetId())
	case e.GetFrom() != "":
		return e.GetFrom()
	default:
		return e.GetId()
	}
}

// between returns the duration between two times, or "" if either is missing or malformed.
func between(from, to string) string {
	a, errA := time.Parse(time.RFC3339, from)
	b, errB := time.Parse(time.RFC3339, to)
	if errA != nil || errB != nil {
		return ""
	}
	return terminal.Millis(b.Sub(a).Milliseconds())
}

// trimLines removes trailing blanks, which empty table cells leave.
func trimLines(b []byte) []byte {
	lines := strings.Split(string(b), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return []byte(strings.Join(lines, "\n"))
}
