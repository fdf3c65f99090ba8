// Command server is the sample services, bbs and secrets: both API versions of each, on
// whichever version is active.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"dbcontroller.dev/cmd/internal/process"
	"dbcontroller.dev/cmd/server/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var common process.Flags
	var opts app.Options
	cmd := &cobra.Command{
		Use:           "server --config FILE",
		Short:         "Serve the sample APIs, bbs and secrets, v1 and v2, on the active version of their database",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := process.Start(cmd.Context(), common)
			if err != nil {
				return err
			}
			defer p.Close()
			opts.ID = p.ID
			opts.Insecure = common.Insecure
			return app.New(p.Config, p.Store, opts, p.Log).Run(cmd.Context())
		},
	}
	common.Register(cmd.Flags())
	cmd.Flags().StringVar(&opts.Listen, "listen", "127.0.0.1:8080", "address of the APIs")
	cmd.Flags().DurationVar(&opts.DeleteExpired, "delete-expired", 0, "delete secrets that expired longer ago than this, one server at a time; 0: never")
	cmd.Flags().StringVar(&opts.OperatorListen, "operator-listen", "127.0.0.1:7081", "address of /healthz, /readyz, /metrics and /usage")
	return cmd
}
