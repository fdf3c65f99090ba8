package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/terminal"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/view"
)

func parkedCommand() *cobra.Command {
	c := &connection{}
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "List the records that cannot be transformed; they block the switch",
		Args:  onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				all, err := c.parked(ctx, api)
				if err != nil {
					return err
				}
				if c.json {
					return terminal.JSON(cmd.OutOrStdout(), all)
				}
				return view.Parked(cmd.OutOrStdout(), all.GetParked())
			})
		},
	}
	c.register(cmd)
	cmd.AddCommand(waiveCommand())
	return cmd
}

// parked returns all pages together.
func (c *connection) parked(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) (*dbv1.ListParkedResponse, error) {
	all := &dbv1.ListParkedResponse{}
	for token := ""; ; {
		page, err := unary(ctx, c, api.ListParked, &dbv1.ListParkedRequest{Name: c.name, PageToken: token})
		if err != nil {
			return nil, err
		}
		all.Parked = append(all.Parked, page.GetParked()...)
		if token = page.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

func waiveCommand() *cobra.Command {
	a := &asker{}
	var kind, key string
	var all bool
	var number int64
	cmd := &cobra.Command{
		Use:   "waive --kind KIND (--key KEY | --all --count N)",
		Short: "Continue the upgrade without one parked record, or all of a kind",
		Long: "Continue the upgrade without one parked record. The new version will lack it, or keep its earlier\n" +
			"state. If you can, correct the record in the source instead: controllers then retry it. With\n" +
			"--all, waive every record of the kind that is parked now or later in this direction. Confirm this\n" +
			"with --count, the number of records parked now and not waived; the refusal names it. --count does\n" +
			"not limit later records. A waiver ends with its direction. After a switch it is about the\n" +
			"rollback.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			counted := cmd.Flags().Changed("count")
			switch {
			case counted && !all:
				return exit.Usagef("--count: give it only with --all")
			case all && kind == "":
				return exit.Usagef("no kind given: use --kind with a kind from 'dbcontroller parked'")
			case all && key != "":
				return exit.Usagef("--key and --all: give only one of them")
			case !all && (kind == "" || key == ""):
				return exit.Usagef("no record given: use --kind and --key with values from 'dbcontroller parked'")
			case all && counted:
				return a.waiveKind(cmd, kind, &number)
			case all:
				return a.waiveKind(cmd, kind, nil)
			}
			return a.waive(cmd, kind, key)
		},
	}
	a.register(cmd)
	cmd.Flags().StringVar(&kind, "kind", "", "kind of the record")
	cmd.Flags().StringVar(&key, "key", "", "key of the record")
	cmd.Flags().BoolVar(&all, "all", false, "every record of the kind, also records parked later in this direction")
	cmd.Flags().Int64Var(&number, "count", 0, "with --all: number of records of the kind parked now and not waived; the refusal prints it")
	return cmd
}

func (a *asker) waive(cmd *cobra.Command, kind, key string) error {
	return a.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
		ask := func(dryRun bool) func(context.Context) (*connect.Response[dbv1.ParkedRecord], error) {
			return func(ctx context.Context) (*connect.Response[dbv1.ParkedRecord], error) {
				return api.WaiveParked(ctx, connect.NewRequest(&dbv1.WaiveParkedRequest{
					Name: a.name, Kind: kind, Key: key, DryRun: dryRun, RequestedBy: a.who(),
				}))
			}
		}
		// The dry run also tells whether the record was waived before, which decides the text
		// below.
		now, err := would(ctx, &a.connection, ask(true))
		if err != nil {
			return err
		}
		name, was := kind+"/"+key, now.GetWaived()
		effect := "let the upgrade continue without " + name
		if was {
			effect = "nothing: " + name + " is waived already"
		}
		announce(cmd.ErrOrStderr(), "will", []string{effect})
		if !a.dryRun {
			now, _, err = change[dbv1.ParkedRecord]{send: ask(false), dry: ask(true), done: (*dbv1.ParkedRecord).GetWaived}.make(ctx, &a.connection, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
		}
		return a.waived(cmd, now, name, was)
	})
}

// waived prints the result of a waiver.
func (a *asker) waived(cmd *cobra.Command, m proto.Message, what string, was bool) error {
	text := "waived: " + what + "\n"
	switch {
	case a.json:
		return terminal.JSON(cmd.OutOrStdout(), m)
	case a.dryRun:
		return nil
	case was:
		text = "nothing changed: " + what + " is waived\n"
	}
	return terminal.Write(cmd.OutOrStdout(), []byte(text))
}

// waiveKind waives all records of a kind. The caller confirms with their number. The command checks
// for the number itself, because older controllers do not require it.
func (a *asker) waiveKind(cmd *cobra.Command, kind string, number *int64) error {
	return a.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
		ask := func(dryRun bool) func(context.Context) (*connect.Response[dbv1.WaiveKindResponse], error) {
			return func(ctx context.Context) (*connect.Response[dbv1.WaiveKindResponse], error) {
				return api.WaiveKind(ctx, connect.NewRequest(&dbv1.WaiveKindRequest{
					Name: a.name, Kind: kind, Count: number, DryRun: dryRun, RequestedBy: a.who(),
				}))
			}
		}
		now, err := would(ctx, &a.connection, ask(true))
		if err != nil {
			return err
		}
		was := idle(now.GetEffects())
		// Refuse before sending: an older controller would waive the kind without a number.
		if number == nil && !a.dryRun && !was {
			return exit.Refusedf("waive: it would %s; to do that, give --count %d", strings.Join(now.GetEffects(), "; "), now.GetWaived())
		}
		announce(cmd.ErrOrStderr(), "will", now.GetEffects())
		what := "every " + kind
		if !was {
			what = fmt.Sprintf("%s of %s", terminal.Count(now.GetWaived()), kind)
		}
		if !a.dryRun {
			now, _, err = change[dbv1.WaiveKindResponse]{
				send: ask(false), dry: ask(true), done: func(m *dbv1.WaiveKindResponse) bool { return idle(m.GetEffects()) },
			}.make(ctx, &a.connection, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
		}
		return a.waived(cmd, now, what, was)
	})
}

// errDifferent gives a comparison that found differences its exit status.
var errDifferent = exit.Finding("source and target differ")

func verifyCommand() *cobra.Command {
	a := &asker{}
	var repair bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare all records of source and target, and repair the target",
		Long: "Compare all records of source and target through the transform, once. Progress goes to standard\n" +
			"error, the report to standard output; the exit status is 1 if they differ. Waived records, also of\n" +
			"the latest switch, are counted separately and are no difference.\n\n" +
			"A difference blocks the switch or rollback to the target until another comparison finds none. With\n" +
			"--repair the controllers compare everything, correct the target, and compare once more.",
		Example: "  dbcontroller verify\n  dbcontroller verify --repair",
		Args:    onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.dryRun && !repair {
				return exit.Usagef("--dry-run: give it together with --repair; otherwise the command only records the differences")
			}
			err := a.verify(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			// Repair only differences. Any other error means that the comparison is incomplete.
			if repair && errors.Is(err, errDifferent) {
				err = a.repair(cmd)
			}
			return a.explain(err)
		},
	}
	a.register(cmd)
	cmd.Flags().BoolVar(&repair, "repair", false, "let controllers correct the target, then compare again")
	return cmd
}

// repairPoll is the interval at which the command checks whether a repair has ended.
const repairPoll = 500 * time.Millisecond

// repair requests a repair, waits for its end, and compares once more.
func (a *asker) repair(cmd *cobra.Command) error {
	err := a.do(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient, dryRun bool, _ *dbv1.Deployment) (*connect.Response[dbv1.Deployment], error) {
		return api.Repair(ctx, connect.NewRequest(&dbv1.RepairRequest{Name: a.name, DryRun: dryRun, RequestedBy: a.who()}))
	})
	if err != nil || a.dryRun {
		return err
	}
	ctx := cmd.Context()
	api, err := a.open()
	if err != nil {
		return err
	}
	shown := terminal.NewProgress(cmd.ErrOrStderr())
	defer shown.End()
	for {
		got, err := unary(ctx, &a.connection, api.GetDeployment, &dbv1.GetDeploymentRequest{Name: a.name})
		if err != nil {
			return err
		}
		line := got.GetDifferent()
		// The controllers clear the difference when the repair has ended.
		if line == "" {
			break
		}
		shown.Show("repairs", line)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(repairPoll):
		}
	}
	shown.End()
	return a.verify(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

func (c *connection) verify(ctx context.Context, out, diagnostics io.Writer) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	shown := terminal.NewProgress(diagnostics)
	defer shown.End()
	report, err := received(ctx, c, "comparison", api.Verify, &dbv1.VerifyRequest{Name: c.name}, func(m *dbv1.VerifyResponse) (*dbv1.WorkProgress, *dbv1.VerifyReport) {
		// The last message holds the report, and its progress would repeat it.
		if p, w := m.GetProgress(), m.GetWork(); m.GetReport() == nil && p.GetCompared() > 0 {
			text := fmt.Sprintf("compared %s groups, %s different", terminal.Count(p.GetCompared()), terminal.Count(p.GetMismatched()))
			if w.GetTotal() > 0 {
				text += fmt.Sprintf(", %d %% of about %s records", w.GetDone()*100/w.GetTotal(), terminal.Count(w.GetTotal()))
			} else if strings.Contains(w.GetDoing(), "again") {
				text += "; " + w.GetDoing()
			}
			shown.Show(w.GetDoing(), text+terminal.TimeLeft(w))
		}
		return m.GetWork(), m.GetReport()
	})
	if err != nil {
		return err
	}
	shown.End()
	if err := c.printReport(out, report); err != nil {
		return err
	}
	if !report.GetEqual() {
		return errDifferent
	}
	return nil
}

func (c *connection) printReport(w io.Writer, r *dbv1.VerifyReport) error {
	if c.json {
		return terminal.JSON(w, r)
	}
	result := "equal"
	if !r.GetEqual() {
		result = "DIFFERENT"
	}
	text := fmt.Sprintf("%s: %s groups compared in %s, %s different", result, terminal.Count(r.GetCompared()), terminal.Millis(r.GetMillis()), terminal.Count(r.GetMismatched()))
	// Waived records are expected differences, so they are listed apart.
	if n := r.GetWaived(); n > 0 {
		text += fmt.Sprintf(", %s waived", terminal.Count(n))
	}
	if n := len(r.GetShapes()); n > 0 {
		text += fmt.Sprintf(", and %d indexes or options", n)
	}
	text += "\n"
	for _, line := range r.GetShapes() {
		text += "  " + line + "\n"
	}
	for _, line := range r.GetRollbackLacks() {
		text += "  a rollback will lack: " + line + "\n"
	}
	for _, name := range r.GetExamples() {
		text += "  " + name + "\n"
	}
	for _, name := range r.GetWaivedExamples() {
		text += "  " + name + " (waived)\n"
	}
	return terminal.Write(w, []byte(text))
}
