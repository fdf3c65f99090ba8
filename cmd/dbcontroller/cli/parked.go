package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	dbv1 "dbcontroller/gen/dbcontroller/v1"
	"dbcontroller/gen/dbcontroller/v1/dbcontrollerv1connect"
)

func parkedCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "List the records that could not be moved; they block the switch",
		Args:  onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				res, err := api.ListParked(ctx, connect.NewRequest(&dbv1.ListParkedRequest{Name: c.name}))
				if err != nil {
					return err
				}
				if c.json {
					return printJSON(cmd.OutOrStdout(), res.Msg)
				}
				return renderParked(cmd.OutOrStdout(), res.Msg.GetParked())
			})
		},
	}
	c.register(cmd)
	cmd.AddCommand(waiveCommand())
	return cmd
}

func waiveCommand() *cobra.Command {
	c := &client{}
	var kind, key string
	cmd := &cobra.Command{
		Use:   "waive --kind KIND --key KEY",
		Short: "Let the upgrade go on without one parked record",
		Long: "Let the upgrade go on without one parked record. The record will be missing in the new version,\n" +
			"so rather correct it at the source where that is possible: it is then tried again by itself.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kind == "" || key == "" {
				return errors.New("no record named: give --kind and --key as 'dbcontroller parked' shows them")
			}
			return c.call(cmd, func(ctx context.Context, api dbcontrollerv1connect.DeploymentServiceClient) error {
				res, err := api.WaiveParked(ctx, connect.NewRequest(&dbv1.WaiveParkedRequest{Name: c.name, Kind: kind, Key: key}))
				if err != nil {
					return err
				}
				if c.json {
					return printJSON(cmd.OutOrStdout(), res.Msg)
				}
				return renderParked(cmd.OutOrStdout(), []*dbv1.ParkedRecord{res.Msg})
			})
		},
	}
	c.register(cmd)
	cmd.Flags().StringVar(&kind, "kind", "", "kind of the record")
	cmd.Flags().StringVar(&key, "key", "", "key of the record")
	return cmd
}

// errDifferent is the exit status of a comparison that found something.
var errDifferent = errors.New("source and target differ")

func verifyCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare all data of source and target once",
		Long: "Compare all data of source and target through the transform, once. Progress goes to standard\n" +
			"error, the report to standard output; the exit status is 1 when they differ.",
		Args: onlyDeployment,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.explain(c.verify(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	c.register(cmd)
	return cmd
}

func (c *client) verify(ctx context.Context, out, diagnostics io.Writer) error {
	api, err := c.open()
	if err != nil {
		return err
	}
	stream, err := api.Verify(ctx, connect.NewRequest(&dbv1.VerifyRequest{Name: c.name}))
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // nothing more is wanted of it
	var report *dbv1.VerifyReport
	for stream.Receive() {
		m := stream.Msg()
		if p := m.GetProgress(); p != nil {
			fmt.Fprintf(diagnostics, "compared %s groups, %s different\n", count(p.GetCompared()), count(p.GetMismatched()))
		}
		if m.GetReport() != nil {
			report = m.GetReport()
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if report == nil {
		return errors.New("the controller ended the comparison without a report: try again")
	}
	if err := c.printReport(out, report); err != nil {
		return err
	}
	if !report.GetEqual() {
		return errDifferent
	}
	return nil
}

func (c *client) printReport(w io.Writer, r *dbv1.VerifyReport) error {
	if c.json {
		return printJSON(w, r)
	}
	result := "equal"
	if !r.GetEqual() {
		result = "DIFFERENT"
	}
	text := fmt.Sprintf("%s: %s groups compared in %s, %s different\n", result, count(r.GetCompared()), millis(r.GetMillis()), count(r.GetMismatched()))
	for _, name := range r.GetExamples() {
		text += "  " + name + "\n"
	}
	return write(w, []byte(text))
}
