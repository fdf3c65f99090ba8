package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/control/deployment/api"
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
	return write(w, []byte(`{"history":[`+strings.Join(list, ",")+"]}\n"))
}

func renderHistory(w io.Writer, entries []*dbv1.HistoryEntry) error {
	if len(entries) == 0 {
		return write(w, []byte("nothing has happened yet\n"))
	}
	var b bytes.Buffer
	t := newTable(&b, "AT\tWHAT\tOF\tBY\tTOOK\tOUTCOME\tDETAIL")
	for _, e := range entries {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shortTime(e.GetAt()), e.GetWhat(), or(subjectOf(e), "-"), or(whoOf(e), "-"),
			or(between(e.GetAt(), e.GetEnded()), "-"), or(outcomeOf(e), "-"), or(e.GetDetail(), "-"))
		// Each phase lasts until the next one starts; the last one until the entry ends.
		for i, p := range e.GetPhases() {
			until := e.GetEnded()
			if i+1 < len(e.GetPhases()) {
				until = e.GetPhases()[i+1].GetAt()
			}
			fmt.Fprintf(t, "%s\t  %s\t\t\t%s\t\t\n", shortTime(p.GetAt()), p.GetPhase(), or(between(p.GetAt(), until), "-"))
		}
	}
	flush(t)
	return write(w, trimLines(b.Bytes()))
}

// outcomeOf returns the result of an operation and, for a switch, the time that writes were held.
func outcomeOf(e *dbv1.HistoryEntry) string {
	if e.GetPauseMillis() == 0 {
		return e.GetOutcome()
	}
	return e.GetOutcome() + ", writes held " + millis(e.GetPauseMillis())
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

// shortTime formats a time to the second in UTC. It returns text that is no time unchanged.
func shortTime(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return or(at, "-")
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// between returns the duration between two times, or "" if either is missing or malformed.
func between(from, to string) string {
	a, errA := time.Parse(time.RFC3339, from)
	b, errB := time.Parse(time.RFC3339, to)
	if errA != nil || errB != nil {
		return ""
	}
	return millis(b.Sub(a).Milliseconds())
}

// trimLines removes trailing blanks, which empty table cells leave.
func trimLines(b []byte) []byte {
	lines := strings.Split(string(b), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return []byte(strings.Join(lines, "\n"))
}
